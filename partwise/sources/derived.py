"""A source with one column more, which says to which part of the whole each row belongs.

`in_blocks` divides rows that one model is for, so that they can be worked on like partitions;
`sampled` takes a few rows of all fragments, the same ones each time; `with_held_out` and `stacked`
have rows of another source behind their own.
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pyarrow as pa

from partwise.errors import ColumnError
from partwise.sources.descriptions import Source, SourceDescription, read_rows
from partwise.sources.fragments import FarFragment, Fragment, Place, Selection
from partwise.tables.column_names import columns_there
from partwise.tables.keys.hashing import mix
from partwise.tables.schemas import cast_batch, common_schema

if TYPE_CHECKING:
    from dask.delayed import Delayed

BLOCK = "block"
"""The name of the column that tells blocks apart, unless the rows have a column of that name."""
BLOCK_ROWS = 131_072
BLOCK_BYTES = 64 << 20
SAMPLE_ROWS = 20_000
SAMPLE_FRAGMENTS = 32


Marking = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
"""Adds a column, the last one, to the batches of one fragment, and may leave out rows; a value that
pickles."""


@dataclass(frozen=True, slots=True)
class DerivedFragment:
    """A fragment of what was selected of another one, with one column more."""

    fragment: Fragment
    selection: Selection
    marking: Marking
    rows: int | None
    known: Mapping[str, pa.Scalar]

    @property
    def place(self) -> Place:
        """Where the other one can be read."""
        return self.fragment.place

    @property
    def size_bytes(self) -> int:
        """About that of the other one."""
        return self.fragment.size_bytes

    @property
    def task(self) -> "Delayed":
        """Becomes such a fragment on the worker that computes the other one's task."""
        from dask.delayed import delayed

        derived: Delayed = delayed(DerivedFragment, pure=False)(
            fragment=self.fragment.task,  # type: ignore[attr-defined]
            selection=self.selection,
            marking=self.marking,
            rows=self.rows,
            known=self.known,
        )
        return derived

    @property
    def far_file(self) -> Any:
        """What there is to fetch of the other one."""
        return self.fragment.far_file if isinstance(self.fragment, FarFragment) else None

    def fetch_file(self) -> Any:
        """Return the other one's file, fetched."""
        return self._far.fetch_file()

    def with_file(self, file: Any) -> "DerivedFragment":
        """Return such a fragment of the other one, of the file that was fetched."""
        return replace(self, fragment=self._far.with_file(file))

    @property
    def _far(self) -> FarFragment:
        return cast("FarFragment", self.fragment)

    def __str__(self) -> str:
        return str(self.fragment)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Read its rows."""
        return self.marking(self.selection.batches(self.fragment))


class DerivedSource:
    """A source with one column more: a `Source`.

    `derivation` says how it gets the column; equal ones have equal `repr`.
    """

    def __init__(self, base: Source, derivation: "_Blocks | _Sample") -> None:
        self._base = base
        self._derivation = derivation
        self.schema = base.schema.append(derivation.field)
        # The filter of the rows is applied before they get their column.
        self.selection = Selection(schema=self.schema, read_schema=self.schema, conditions=None)

    def narrowed(self, columns: Sequence[str]) -> Source:
        """The same source, of whose rows fewer columns are read; the added one stays."""
        kept = [name for name in columns if name != self._derivation.field.name]
        return DerivedSource(self._base.narrowed(kept), self._derivation)

    def fragments(self, keys: Sequence[str] = ()) -> Sequence[Fragment]:
        """The parts that the rows come in, in their order."""
        asked = [key for key in keys if key != self._derivation.field.name]
        return self._derivation.derive(self._base.fragments(asked), self._base.selection)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Read all rows, from the first one again at each call."""
        return read_rows(self)

    def buckets(self) -> frozenset[str]:
        """The buckets that the rows are read from."""
        return self._base.buckets()

    def refuse_empty(self) -> None:
        """Raise `SourceError` where it is the filter that leaves no row."""
        self._base.refuse_empty()

    def description(self) -> SourceDescription:
        """That of the rows: their recipe opens them without the column."""
        about = self._base.description()
        digest = hashlib.sha256(f"{about.fingerprint} {self._derivation!r}".encode())
        return replace(about, fingerprint=digest.hexdigest())


def free_name(name: str, schema: pa.Schema) -> str:
    """Return a name that no column has: this one, or with as many underscores as it takes.

    Example:
        >>> free_name("block", pa.schema([("block", pa.int64())]))
        'block_'
    """
    while name in schema.names:
        name += "_"
    return name


def in_blocks(source: Source, rows: int = BLOCK_ROWS, size_bytes: int = BLOCK_BYTES) -> Source:
    """Return a source with a text column, the last one, that divides its rows into blocks.

    A block is rows of one fragment, or neighbouring fragments that are small. Its name begins with
    the number of its first fragment, so that names are in the order of the source. The same
    source has the same blocks each time, wherever it is read.
    """
    field = pa.field(free_name(BLOCK, source.schema), pa.string(), nullable=False)
    return DerivedSource(source, _Blocks(field=field, rows=rows, size_bytes=size_bytes))


def sampled(source: Source, name: str, value: int, rows: int = SAMPLE_ROWS) -> Source:
    """Return some rows of a source with an int64 column, the last one, of one value.

    At most 32 fragments are read, evenly chosen (with a filter all of them), and of each the rows
    whose numbers have the smallest hashes: the same ones each time. `name` gets underscores where
    the rows have one of that name.
    """
    field = pa.field(free_name(name, source.schema), pa.int64(), nullable=False)
    return DerivedSource(source, _Sample(field=field, value=value, rows=rows))


HELD_OUT = "held_out"
"""The name of the column that tells rows of two sources apart, unless they have one so named."""


class StackedSource:
    """The rows of a source, and behind them those of another: a `Source`.

    The column `name`, an int64 and the last one, is 0 in the one and 1 in the other. A column that
    one of them lacks is null there.
    """

    def __init__(self, base: Source, other: Source, name: str, columns: pa.Schema) -> None:
        """`columns` are those of both, of types to which the values of both fit."""
        self.name = name
        self._base, self._other = base, other
        self._columns = columns
        self.schema = columns.append(pa.field(name, pa.int64(), nullable=False))
        self.selection = Selection(schema=self.schema, read_schema=self.schema, conditions=None)

    def narrowed(self, columns: Sequence[str]) -> Source:
        """The same source, of whose rows fewer columns are read; the added one stays."""
        kept = [name for name in columns if name != self.name]
        base, other = (
            each.narrowed([name for name in kept if name in each.schema.names])
            for each in (self._base, self._other)
        )
        schema = pa.schema([self._columns.field(name) for name in kept])
        return StackedSource(base, other, self.name, schema)

    def fragments(self, keys: Sequence[str] = ()) -> Sequence[Fragment]:  # noqa: ARG002 (nothing is known of two sources alike)
        """The parts of the one, then those of the other."""
        return [
            DerivedFragment(
                fragment,
                source.selection,
                _Aligned(schema=self.schema, name=self.name, value=value),
                fragment.rows if source.selection.passes_all else None,
                {},
            )
            for value, source in enumerate((self._base, self._other))
            for fragment in source.fragments()
        ]

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Read all rows, from the first one again at each call."""
        for fragment in self.fragments():
            yield from fragment.batches()

    def buckets(self) -> frozenset[str]:
        """The buckets that the rows of both are read from."""
        return self._base.buckets() | self._other.buckets()

    def refuse_empty(self) -> None:
        """Raise `SourceError` where it is the filter that leaves no row."""
        self._base.refuse_empty()

    def description(self) -> SourceDescription:
        """That of the rows, as large as both; their recipe opens them without the others."""
        one, other = self._base.description(), self._other.description()
        digest = hashlib.sha256(f"{one.fingerprint} {other.fingerprint}".encode())
        return replace(
            one,
            fingerprint=digest.hexdigest(),
            recurs=one.recurs and other.recurs,
            rows=None if one.rows is None or other.rows is None else one.rows + other.rows,
            size_bytes=one.size_bytes + other.size_bytes,
        )


def with_held_out(base: Source, held_out: Source, what: str) -> StackedSource:
    """Return the rows of a source with those of another behind them.

    Raises:
        ColumnError: The other, which messages call `what`, lacks a column or has it of another
            type.
    """
    there = held_out.schema
    for field in base.schema:
        if field.name not in there.names:
            raise ColumnError(
                f"The column {field.name!r} of the rows is missing in {what}; "
                f"{columns_there(there.names, field.name)}"
            )
        if (kind := there.field(field.name).type) != field.type:
            raise ColumnError(
                f"The column {field.name!r} is {field.type}, and {kind} in {what}: give both one "
                "type."
            )
    name = free_name(HELD_OUT, base.schema)
    return StackedSource(base, held_out.narrowed(base.schema.names), name, base.schema)


def stacked(base: Source, other: Source, name: str, names: tuple[str, str]) -> StackedSource:
    """Return the rows of a source with those of another behind them, of which some columns differ.

    `name` gets underscores where one of them has a column of that name; `names` are what messages
    call them.

    Raises:
        ColumnError: A column of both is of types that do not go together.
    """
    schema = common_schema([(base.schema, names[0]), (other.schema, names[1])], "union")
    return StackedSource(base, other, free_name(name, schema), schema)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Blocks:
    field: pa.Field
    rows: int
    size_bytes: int

    def derive(self, fragments: Sequence[Fragment], selection: Selection) -> list[Fragment]:
        derived: list[Fragment] = []
        first = rows = size_bytes = 0
        for number, fragment in enumerate(fragments):
            # A filter leaves fewer, and how many is not known.
            count = fragment.rows if selection.passes_all else None
            if count is None or count > self.rows or fragment.size_bytes > self.size_bytes:
                marking: Marking = _Cut(
                    name=f"{number:06d}",
                    field=self.field,
                    rows=self.rows,
                    size_bytes=self.size_bytes,
                )
                derived.append(DerivedFragment(fragment, selection, marking, count, {}))
                first = number + 1
                rows = size_bytes = 0
                continue
            rows, size_bytes = rows + count, size_bytes + fragment.size_bytes
            if rows > self.rows or size_bytes > self.size_bytes:
                first, rows, size_bytes = number, count, fragment.size_bytes
            value = pa.scalar(f"{first:06d}", self.field.type)
            # It is known without reading: whoever works on the block reads it where it lies.
            known = {self.field.name: value}
            marking = _Constant(field=self.field, value=value.as_py())
            derived.append(DerivedFragment(fragment, selection, marking, count, known))
        return derived


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sample:
    field: pa.Field
    value: int
    rows: int

    def derive(self, fragments: Sequence[Fragment], selection: Selection) -> list[Fragment]:
        count = len(fragments)
        # With a filter, those that are chosen might be the ones of which no row passes.
        if count > SAMPLE_FRAGMENTS and selection.passes_all:
            places = np.linspace(0, count - 1, SAMPLE_FRAGMENTS).round().astype(np.int64)
            fragments = [fragments[place] for place in places]
        each = max(1, self.rows // max(1, len(fragments)))
        marking = _Chosen(field=self.field, value=self.value, rows=each)
        return [DerivedFragment(each, selection, marking, None, {}) for each in fragments]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Constant:
    """Gives all rows of a fragment one value."""

    field: pa.Field
    value: Any

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield _with_value(batch, self.field, self.value)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Aligned:
    """Brings rows into a schema, with one value in the column `name`, and nulls for what lacks."""

    schema: pa.Schema
    name: str
    value: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        constants = {**dict.fromkeys(self.schema.names), self.name: self.value}
        for batch in batches:
            yield cast_batch(batch, self.schema, constants, "the rows")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cut:
    """Names the rows of a large fragment by the block that they are in, with batches cut there."""

    name: str
    field: pa.Field
    rows: int
    size_bytes: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        block = rows = size_bytes = 0
        for batch in batches:
            row_bytes = max(1, batch.nbytes // batch.num_rows)
            start = 0
            while start < batch.num_rows:
                room = min(self.rows - rows, (self.size_bytes - size_bytes) // row_bytes)
                part = batch.slice(start, max(1, room))
                yield _with_value(part, self.field, f"{self.name}-{block:04d}")
                start += part.num_rows
                rows, size_bytes = rows + part.num_rows, size_bytes + part.num_rows * row_bytes
                if rows >= self.rows or size_bytes + row_bytes > self.size_bytes:
                    block, rows, size_bytes = block + 1, 0, 0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Chosen:
    """Keeps the rows of a fragment whose numbers have the smallest hashes."""

    field: pa.Field
    value: int
    rows: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        kept: list[pa.RecordBatch] = []
        hashes = np.empty(0, np.uint64)
        row = 0
        for batch in batches:
            numbers = np.arange(row, row + batch.num_rows, dtype=np.uint64)
            row += batch.num_rows
            # Plus 1, since 0 has the hash 0: each first row would be chosen.
            own = mix(numbers + np.uint64(1))
            # Only hashes below the largest one kept get in: of later batches few rows are copied.
            limit = hashes.max() if len(hashes) >= self.rows else None
            places = np.flatnonzero(own < limit) if limit is not None else np.arange(len(own))
            if not len(places):
                continue
            kept.append(batch.take(pa.array(places)))
            hashes = np.concatenate([hashes, own[places]])
            if len(hashes) > self.rows:
                # Sorted once more, so that rows stay in the order of the source.
                chosen = np.sort(np.argsort(hashes, kind="stable")[: self.rows])
                hashes = hashes[chosen]
                kept = pa.Table.from_batches(kept).take(pa.array(chosen)).to_batches()
        return (_with_value(batch, self.field, self.value) for batch in kept)


def _with_value(batch: pa.RecordBatch, field: pa.Field, value: Any) -> pa.RecordBatch:
    column = pa.repeat(pa.scalar(value, field.type), batch.num_rows)
    schema = batch.schema.append(field)
    return pa.RecordBatch.from_arrays([*batch.columns, column], schema=schema)
