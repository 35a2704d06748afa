"""What a source consists of: parts that any process can read, and what is taken of them."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol, runtime_checkable

import pyarrow as pa

from partwise.tables.dictionaries import check_no_opaque, plain_storage, readable_type
from partwise.tables.filters import Conditions, filter_batch, filter_columns
from partwise.tables.keys.given_keys import KeyFilter
from partwise.tables.schemas import cast_batch

Place = Literal["anywhere", "disk", "here", "cluster"]
"""Where a fragment can be read: in every process; in those that see this machine's disk; in the
one that opened it; or as a Dask task, which is its attribute `task`."""


_UNKNOWN = b"unknown "


class Fragment(Protocol):
    """A part of a source's rows. One that is read anywhere is a value that pickles."""

    @property
    def place(self) -> Place:
        """Where it can be read."""

    @property
    def rows(self) -> int | None:
        """How many rows it has; None where that is unknown before they are read."""

    @property
    def size_bytes(self) -> int:
        """An estimate of its size in Arrow memory."""

    @property
    def known(self) -> Mapping[str, pa.Scalar]:
        """The key columns known to have one value in all its rows."""

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Read its rows, from the first one again at each call."""


@runtime_checkable
class FarFragment(Protocol):
    """A fragment of which each look is a request or three: its file may be fetched beforehand."""

    @property
    def far_file(self) -> Any:
        """What there is to fetch, equal for fragments of one file, with its `size_bytes`.

        None: the fragment is to be read as it is.
        """

    def fetch_file(self) -> Any:
        """Return that file, fetched."""

    def with_file(self, file: Any) -> Fragment:
        """Return such a fragment of the file that was fetched."""


class Rows(Protocol):
    """Rows of one kind of source, before columns are chosen and a filter is applied."""

    schema: pa.Schema

    @property
    def rows(self) -> int | None:
        """How many rows there are; None where that is unknown before they are read."""

    def size_bytes(self, names: Sequence[str]) -> int:
        """An estimate of the size of some columns in Arrow memory."""

    def identity(self) -> bytes:
        """What is equal only when the rows are; `unknown_identity()` where that is unknown."""

    def recipe(self) -> dict[str, Any] | None:
        """What opens the rows again in another process, as JSON; None where that is impossible."""

    def buckets(self) -> frozenset[str]:
        """The buckets that fragments are read from, as `bucket_of` names them."""

    def fragments(
        self, names: Sequence[str], conditions: Conditions | None, keys: Sequence[str] = ()
    ) -> Sequence[Fragment]:
        """The parts of the rows, in their order.

        Args:
            names: The columns to read.
            conditions: A normalized filter, of whose rows none may be left out; to leave out others
                is up to the source.
            keys: The columns of which `Fragment.known` is asked.
        """


def unknown_identity() -> bytes:
    """The identity of rows that have to be read to see whether they changed."""
    return _UNKNOWN + os.urandom(16)


def is_known(identity: bytes) -> bool:
    """Whether an identity is one that can recur."""
    return not identity.startswith(_UNKNOWN)


class OpaqueRows:
    """Defaults for `Rows` that know only their columns; a kind that knows more overrides them."""

    rows: int | None = None

    def size_bytes(self, names: Sequence[str]) -> int:  # noqa: ARG002 (the protocol's)
        """0: unknown before the rows are read."""
        return 0

    def identity(self) -> bytes:
        """A new value each time: whether the rows are the same is unknown before they are read."""
        return unknown_identity()

    def recipe(self) -> dict[str, Any] | None:
        """None: what gives the rows ends with the process."""
        return None

    def buckets(self) -> frozenset[str]:
        """None: the rows lie in no bucket."""
        return frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalFragment:
    """Batches that only this process can read; nothing is known of their keys."""

    stream: Callable[[], Iterator[pa.RecordBatch]]
    rows: int | None = None
    size_bytes: int = 0
    what: str = "data in memory"
    """What messages call it."""
    known: ClassVar[Mapping[str, pa.Scalar]] = {}
    place: ClassVar[Place] = "here"

    def __str__(self) -> str:
        return self.what

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Read its rows."""
        return self.stream()


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The columns that are taken of the rows of fragments, and the filter that they pass."""

    schema: pa.Schema
    """Of what is delivered."""
    read_schema: pa.Schema
    """Of what is read for it: also the columns that only the filter looks at."""
    conditions: Conditions | None
    only: KeyFilter | None = None
    """The keys whose rows pass; None: all."""

    @property
    def passes_all(self) -> bool:
        """Whether all rows of a fragment are taken."""
        return not self.conditions and self.only is None

    @classmethod
    def of(
        cls, schema: pa.Schema, names: Sequence[str], conditions: Conditions | None
    ) -> "Selection":
        """Select columns of a schema.

        The filter may be on any columns.
        """
        read_names = dict.fromkeys([*names, *filter_columns(conditions)])
        fields = [schema.field(name) for name in read_names]
        check_no_opaque(fields)
        read = pa.schema([field.with_type(readable_type(field.type)) for field in fields])
        chosen = pa.schema([read.field(name) for name in names], metadata=schema.metadata)
        return cls(schema=chosen, read_schema=read, conditions=conditions)

    def check_filter(self) -> None:
        """Raise `ColumnError` for a value that does not compare with its column."""
        # Of dictionaries of dates, for one, Arrow makes no arrays of lists.
        plain = [field.with_type(plain_storage(field.type)) for field in self.read_schema]
        filter_batch(pa.RecordBatch.from_pylist([], schema=pa.schema(plain)), self.conditions or [])

    def batches(self, fragment: Fragment) -> Iterator[pa.RecordBatch]:
        """Read what is selected of a fragment; batches of no rows are left out."""
        names = self.schema.names
        for raw in fragment.batches():
            whole = cast_batch(raw, self.read_schema, {}, "the source")
            batch = filter_batch(whole, self.conditions) if self.conditions else whole
            if self.only is not None:
                batch = self.only.passing(batch)
            if batch.num_rows:
                columns = batch.select(names).columns
                yield pa.RecordBatch.from_arrays(columns, schema=self.schema)
