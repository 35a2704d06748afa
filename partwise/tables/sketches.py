"""What the rows of a training were like, in a few bytes a feature: a sketch, kept beside a model.

Of numbers and times it has 11 values that cut the rows into tenths, and how many rows each cut has
below it (of tied values tenths are not equal); of categories the 16 most frequent ones and their
counts. Numbers are compared in single precision, here as later.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from partwise.errors import RunFormatError
from partwise.tables.column_types import is_ordered_number, is_text
from partwise.tables.decimals import cast_values
from partwise.tables.dictionaries import without_views
from partwise.tables.local_times import UNITS_A_SECOND

CUTS = 11
MOST_ROWS = 10_000
"""Of a larger partition so many are looked at."""
MOST_CATEGORIES = 16
_LONGEST_TEXT = 40
_VERSION = 1
_TENTHS = np.arange(CUTS)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Numbers:
    """What all columns of numbers and times were like."""

    names: tuple[str, ...]
    is_time: tuple[bool, ...]
    missing: np.ndarray
    """Rows without a value, NaN among them: int64, shape (k,)."""
    cuts: np.ndarray
    """Values of the rows in ascending order, from the least to the largest: float32, shape (k, 11);
    NaN where no row has a value."""
    below: np.ndarray
    """How many rows have a value up to each cut, or below it where the next cut is the same: int64,
    shape (k, 11)."""
    is_tied: np.ndarray
    """Which columns have a value twice; those of the others follow from the number of rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Categories:
    """What a column of categories was like."""

    name: str
    missing: int
    counts: dict[str, int]
    """Of the most frequent categories."""
    other: int
    """Rows of all others."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Sketch:
    """What rows were like."""

    rows: int
    looked_at: int
    """Of these, how many were looked at; all counts are of them."""
    label: str
    """Which of the columns is the label; empty: none, or it is not known."""
    numbers: Numbers
    categories: tuple[Categories, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The columns, numbers first."""
        return (*self.numbers.names, *(each.name for each in self.categories))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Columns:
    """Which columns of a schema can be sketched, and how."""

    schema: pa.Schema
    left_out: tuple[str, ...]
    names: tuple[str, ...]
    plain: tuple[str, ...]
    """Integers and floating numbers, which Arrow makes a matrix of at once."""
    others: tuple[str, ...]
    """Further numbers, and times."""
    is_time: tuple[bool, ...]
    categories: tuple[str, ...]


def make_sketch(table: pa.Table, left_out: Sequence[str] = (), label: str = "") -> Sketch:
    """Return the sketch of rows: of all columns but those left out, and lists, bytes and the like.

    Example:
        >>> sketch = make_sketch(pa.table({"x": [3.0, 1.0, None], "shop": ["a", "a", "b"]}))
        >>> sketch.numbers.cuts[0, [0, 10]].tolist(), sketch.categories[0].counts
        ([1.0, 3.0], {'a': 2, 'b': 1})
    """
    columns = _columns_of(table.schema, tuple(left_out))
    rows = table.num_rows
    table = some_rows(table)
    return Sketch(
        rows=rows,
        looked_at=table.num_rows,
        label=label if label in columns.names or label in columns.categories else "",
        numbers=_numbers(columns, table),
        categories=tuple(_categories(name, table.column(name)) for name in columns.categories),
    )


def some_rows(table: pa.Table) -> pa.Table:
    """Return rows, or a sample of them spread over all: always the same ones.

    Of a sample only the columns are there that can be sketched.
    """
    count = table.num_rows
    if count <= MOST_ROWS:
        return table
    names = [field.name for field in table.schema if kind_of(field.type)]
    table = without_views(table.select(names))
    # A row of each stretch, by chance: every n-th would be the same hour of each day.
    steps = np.arange(MOST_ROWS) + np.random.default_rng(count).random(MOST_ROWS)
    return table.take(pa.array((steps * (count / MOST_ROWS)).astype(np.int64).clip(0, count - 1)))


def sorted_values(
    table: pa.Table, plain: Sequence[str], others: Sequence[str] = ()
) -> tuple[np.ndarray, np.ndarray]:
    """Return columns as sorted float32 of shape (k, n), and how many values each lacks.

    What is missing is NaN and stands last.
    """
    count = len(plain) + len(others)
    values = np.empty((count, table.num_rows), np.float32)
    with np.errstate(over="ignore", invalid="ignore"):
        if plain and table.num_rows:
            batches = table.to_batches()
            batch = batches[0] if len(batches) == 1 else table.combine_chunks().to_batches()[0]
            matrix = batch.select(plain).to_tensor(null_to_nan=True, row_major=False).to_numpy().T
            values[: len(plain)] = matrix if matrix.dtype.kind == "f" else matrix.astype(float)
        for place, name in enumerate(others, len(plain)):
            values[place] = _as_double(table.column(name))
    values.sort(axis=1)
    if table.num_rows == 0 or not np.isnan(values[:, -1]).any():
        return values, np.zeros(count, np.int64)
    return values, np.isnan(values).sum(axis=1)


def rows_below(values: np.ndarray, cuts: np.ndarray) -> np.ndarray:
    """Return how many of sorted values lie below each cut, as `Numbers.below` counts them."""
    below = np.asarray(np.searchsorted(values, cuts, side="right"))
    again = np.flatnonzero(cuts[:-1] == cuts[1:])
    below[again] = np.searchsorted(values, cuts[again])
    return below


def category_counts(column: pa.ChunkedArray) -> dict[str, int]:
    """Return how many rows each category has, the most frequent first, as texts; without nulls."""
    text = pa.large_string()
    if pa.types.is_dictionary(column.type):
        # Not all kinds of values can be taken, or counted, as they are.
        chunks = [chunk.dictionary.cast(text).take(chunk.indices) for chunk in column.chunks]
        column = pa.chunked_array(chunks, text)
    found: dict[str, int] = {}
    for each in pc.value_counts(column.cast(text)).to_pylist():
        if each["values"] is not None:
            short = _short(each["values"])
            found[short] = found.get(short, 0) + each["counts"]
    return dict(sorted(found.items(), key=lambda each: (-each[1], each[0])))


def _numbers(columns: _Columns, table: pa.Table) -> Numbers:
    # This is done for each partition: a call of numpy takes as long as the work itself.
    values, missing = sorted_values(table, columns.plain, columns.others)
    count = table.num_rows
    below = np.empty((len(values), CUTS), np.int64)
    if count == 0:
        cuts, tied = np.full(below.shape, np.nan, np.float32), np.zeros(len(values), bool)
        below[:] = 0
    else:
        if missing.any():
            places = _places(count - missing)
            cuts = np.take_along_axis(values, places, axis=1)
            below[:] = np.where(np.isnan(cuts), 0, places + 1)
        else:
            places = _places_of_all(count)
            cuts = values.take(places, axis=1)
            below[:] = places + 1
        same = values[:, 1:] == values[:, :-1]
        tied = same.any(axis=1)
        for place in tied.nonzero()[0]:
            below[place] = rows_below(values[place, : count - missing[place]], cuts[place])
    return Numbers(
        names=columns.names,
        is_time=columns.is_time,
        missing=missing,
        cuts=cuts,
        below=below,
        is_tied=tied,
    )


def _categories(name: str, column: pa.ChunkedArray) -> Categories:
    counts = category_counts(column)
    frequent = dict(list(counts.items())[:MOST_CATEGORIES])
    total = sum(counts.values())
    return Categories(
        name=name,
        missing=len(column) - total,
        counts=frequent,
        other=total - sum(frequent.values()),
    )


def _short(text: str) -> str:
    """Return a text, or of a long one how it begins and a checksum."""
    if len(text) <= _LONGEST_TEXT:
        return text
    checksum = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{text[: _LONGEST_TEXT - 9]}~{checksum}"


def _places(present: np.ndarray) -> np.ndarray:
    """Return where among sorted values the cuts stand, int64, shape (k, 11)."""
    return np.asarray(((np.maximum(present, 1)[:, None] - 1) * _TENTHS + 5) // 10)


@lru_cache(maxsize=64)
def _places_of_all(count: int) -> np.ndarray:
    return np.asarray(_places(np.array([count]))[0])


def _as_double(column: pa.ChunkedArray) -> np.ndarray:
    if pa.types.is_null(column.type):
        return np.full(len(column), np.nan)
    kind = column.type
    if not pa.types.is_temporal(kind):
        return np.asarray(cast_values(column, pa.float64(), safe=False).to_numpy())
    # In seconds: columns may count them in other units later.
    counts = column.cast(pa.int32() if kind.bit_width == 32 else pa.int64()).to_numpy()
    if pa.types.is_date(kind):
        return np.asarray(counts * 86_400.0 if pa.types.is_date32(kind) else counts / 1000)
    return np.asarray(counts / UNITS_A_SECOND[kind.unit])


def kind_of(kind: pa.DataType) -> str:
    """Return how a type is sketched: plain, number, time or category; empty: not at all."""
    if pa.types.is_dictionary(kind):
        values = kind.value_type
        is_flat = is_text(values) or is_ordered_number(values) or pa.types.is_temporal(values)
        return "category" if is_flat and not pa.types.is_interval(values) else ""
    if is_text(kind) or pa.types.is_boolean(kind):
        return "category"
    if pa.types.is_temporal(kind):
        return "" if pa.types.is_interval(kind) else "time"
    if pa.types.is_floating(kind) or (pa.types.is_integer(kind) and not pa.types.is_uint64(kind)):
        return "number" if pa.types.is_float16(kind) else "plain"
    return "number" if is_ordered_number(kind) or pa.types.is_null(kind) else ""


_known: list[_Columns] = []


def _columns_of(schema: pa.Schema, left_out: tuple[str, ...]) -> _Columns:
    """Return the columns of a schema: mostly they are those of the partition before."""
    if _known and _known[0].left_out == left_out and _known[0].schema.equals(schema):
        return _known[0]
    _known[:] = [_columns(schema, left_out)]
    return _known[0]


def _columns(schema: pa.Schema, left_out: tuple[str, ...]) -> _Columns:
    kinds: dict[str, list[str]] = {}
    for field in schema:
        if field.name not in left_out:
            kinds.setdefault(kind_of(field.type), []).append(field.name)
    plain, numbers, times = (kinds.get(each, []) for each in ("plain", "number", "time"))
    return _Columns(
        schema=schema,
        left_out=left_out,
        names=(*plain, *numbers, *times),
        plain=tuple(plain),
        others=(*numbers, *times),
        is_time=(False,) * (len(plain) + len(numbers)) + (True,) * len(times),
        categories=tuple(kinds.get("category", ())),
    )


def encode(sketch: Sketch) -> bytes:
    """Return a sketch as bytes: 48 and its name for most columns of numbers."""
    numbers = sketch.numbers
    missing, flags = numbers.missing.tolist(), [2 * is_time for is_time in numbers.is_time]
    head = [_VERSION, sketch.rows, sketch.looked_at, len(numbers.names), len(sketch.categories)]
    head.append(sketch.names.index(sketch.label) + 1 if sketch.label else 0)
    head += missing
    tied: list[int] = []
    if numbers.is_tied.any():
        flags = [
            flag + is_tied for flag, is_tied in zip(flags, numbers.is_tied.tolist(), strict=True)
        ]
        # The last is that of all values.
        tied = np.diff(numbers.below[numbers.is_tied, :-1], axis=1, prepend=0).ravel().tolist()
    head += [*flags, *tied]
    texts = [name.encode() for name in sketch.names]
    for each in sketch.categories:
        head += [each.missing, each.other, len(each.counts), *each.counts.values()]
        texts += [text.encode("utf-8", "surrogatepass") for text in each.counts]
    head += map(len, texts)
    cuts = numbers.cuts
    if missing and max(missing) == sketch.looked_at:
        cuts = cuts[numbers.missing < sketch.looked_at]
    return b"".join([_whole(head), cuts.astype("<f4", copy=False).tobytes(), *texts])


def decode(content: bytes) -> Sketch:
    """Return the sketch of bytes that `encode` made.

    Raises:
        RunFormatError: They are none.
    """
    try:
        return _Reader(content).sketch()
    except (IndexError, ValueError, OverflowError) as error:
        raise RunFormatError(
            "A sketch of the rows that a model was trained on cannot be read: it is damaged, or a "
            "newer partwise wrote it."
        ) from error


def _whole(numbers: list[int]) -> bytes:
    """Return whole numbers from 0, small ones in a byte each: seven bits a byte, lowest first."""
    if max(numbers) < 128:
        return bytes(numbers)
    found = bytearray()
    for number in numbers:
        rest = number
        while rest > 127:
            found.append(rest & 127 | 128)
            rest >>= 7
        found.append(rest)
    return bytes(found)


class _Reader:
    """Reads what `encode` wrote, from its beginning."""

    def __init__(self, content: bytes) -> None:
        self._content, self._place = content, 0

    def sketch(self) -> Sketch:
        version, rows, looked_at, n_numbers, n_categories, label = self._many(6)
        if version != _VERSION or max(n_numbers, n_categories) > len(self._content):
            raise ValueError("of another version")
        missing = np.array(self._many(n_numbers), np.int64)
        flags = np.array(self._many(n_numbers), np.int64)
        present = looked_at - missing
        below = np.where(present[:, None] > 0, _places(present) + 1, 0)
        is_tied = flags % 2 == 1
        tied = np.array(self._many(int(is_tied.sum()) * (CUTS - 1)), np.int64)
        below[is_tied, :-1] = tied.reshape(-1, CUTS - 1).cumsum(axis=1)
        counted = []
        for _ in range(n_categories):
            lacking, other, count = self._many(3)
            counted.append((lacking, other, self._many(count)))
        lengths = self._many(n_numbers + n_categories + sum(len(each[2]) for each in counted))
        cuts = np.full((n_numbers, CUTS), np.nan, np.float32)
        size = int((present > 0).sum()) * CUTS * 4
        cuts[present > 0] = np.frombuffer(self._bytes(size), "<f4").reshape(-1, CUTS)
        texts = [self._bytes(length).decode("utf-8", "surrogatepass") for length in lengths]
        if self._place != len(self._content) or (present < 0).any() or (missing < 0).any():
            raise ValueError("of another length")
        names, rest = texts[: n_numbers + n_categories], iter(texts[n_numbers + n_categories :])
        categories = [
            Categories(
                name=name,
                missing=lacking,
                other=other,
                counts={next(rest): count for count in counts},
            )
            for name, (lacking, other, counts) in zip(names[n_numbers:], counted, strict=True)
        ]
        return Sketch(
            rows=rows,
            looked_at=looked_at,
            label=names[label - 1] if label else "",
            numbers=Numbers(
                names=tuple(names[:n_numbers]),
                is_time=tuple((flags >= 2).tolist()),
                missing=missing,
                cuts=cuts,
                below=below,
                is_tied=is_tied,
            ),
            categories=tuple(categories),
        )

    def _many(self, count: int) -> list[int]:
        found = []
        for _ in range(count):
            number = shift = 0
            while (byte := self._content[self._place]) > 127:
                number |= (byte & 127) << shift
                self._place, shift = self._place + 1, shift + 7
            found.append(number | byte << shift)
            self._place += 1
        return found

    def _bytes(self, count: int) -> bytes:
        found = self._content[self._place : self._place + count]
        if len(found) < count:
            raise ValueError("cut off")
        self._place += count
        return found
