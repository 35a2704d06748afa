"""The fingerprint of rows: SHA-256 over their values, which may lie in any buffers.

The IPC bytes of a slice would not do: their writer pads buffers with what follows in memory, so the
rows of a neighbour would show. Here the values of a batch are laid out once as plain streams
of bytes (null marks, lengths, data), of which each partition hashes its own part.
"""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from partwise.tables.column_types import has_offsets
from partwise.tables.dictionaries import plain_storage
from partwise.tables.roles import marked_labels


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stream:
    """One kind of bytes of one column, for all rows of a batch."""

    data: memoryview
    """The bytes."""

    width: int
    """Bytes per element."""

    bounds: np.ndarray | None
    """int64, shape (rows + 1,): where the elements of each row begin; None for one per row."""

    nulls: np.ndarray | None = None
    """For null marks: int64, shape (elements + 1,), how many nulls stand before each element."""

    marks: bool = False
    """Whether these are null marks, which count only where there is a null."""

    def elements(self, start: int, stop: int) -> tuple[int, int]:
        """The elements of some rows."""
        if self.bounds is None:
            return start, stop
        return self.bounds.item(start), self.bounds.item(stop)

    def has_nulls(self, start: int, stop: int) -> bool:
        """Whether an element of some rows is null."""
        if self.nulls is None:
            return False
        first, last = self.elements(start, stop)
        return bool(self.nulls.item(first) != self.nulls.item(last))

    def part(self, start: int, stop: int) -> bytes | memoryview:
        """The bytes of some rows."""
        first, last = self.elements(start, stop)
        if self.marks and self.nulls is None:
            # Other batches of the partition have nulls, this one has none: its marks are zeros.
            return bytes(last - first)
        return self.data[first * self.width : last * self.width]


_NO_MARKS = _Stream(data=memoryview(b""), width=1, bounds=None, marks=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class LaidOut:
    """A batch laid out for hashing; batches of one schema have as many streams, in one order."""

    streams: tuple[_Stream, ...]
    """All streams."""

    values: tuple[tuple[memoryview, int, np.ndarray | None], ...] | None
    """Data, width and bounds of those that are not null marks; None when the batch has nulls."""


def lay_out_batch(batch: pa.RecordBatch) -> LaidOut:
    """Lay out the rows of a batch for `hash_rows`."""
    streams: list[_Stream] = []
    for array in batch.columns:
        kind = array.type
        is_plain = pa.types.is_primitive(kind) and not pa.types.is_boolean(kind)
        if is_plain and not array.null_count:
            # As `_streams`, with less on the way: there may be 2,000 such columns.
            streams += (_NO_MARKS, _values_stream(array, kind.bit_width // 8))
            continue
        plain = plain_storage(kind)
        streams += _streams(array if kind == plain else array.cast(plain), None)
    values = None
    if not any(stream.nulls is not None for stream in streams):
        values = tuple((s.data, s.width, s.bounds) for s in streams if not s.marks)
    return LaidOut(streams=tuple(streams), values=values)


def _values_stream(array: pa.Array, width: int) -> _Stream:
    first = array.offset * width
    data = memoryview(array.buffers()[1] or b"")[first : first + len(array) * width]
    return _Stream(data=data, width=width, bounds=None)


def _bytes_of(values: np.ndarray) -> memoryview:
    return np.ascontiguousarray(values).view(np.uint8).data


def _streams(array: pa.Array, bounds: np.ndarray | None) -> Iterator[_Stream]:
    """The streams of an array whose elements `bounds` assigns to rows."""
    kind = array.type
    if isinstance(array, pa.ExtensionArray):
        yield from _streams(array.storage, bounds)
        return
    mask = array.is_null().to_numpy(zero_copy_only=False) if array.null_count else None
    yield _mark_stream(mask, bounds)
    if pa.types.is_null(kind):
        return
    if pa.types.is_primitive(kind) or pa.types.is_fixed_size_binary(kind):
        values = _fixed_width(array)
        # Anything may stand under a null, and equal rows have to give equal bytes.
        if mask is not None:
            values = np.where(mask[:, None], np.uint8(0), values)
        yield _Stream(data=_bytes_of(values.reshape(-1)), width=values.shape[1], bounds=bounds)
    elif pa.types.is_struct(kind):
        for child in array.flatten():
            yield from _streams(child, bounds)
    elif _is_list(kind):
        yield from _list_streams(array, bounds)
    elif has_offsets(kind):
        yield from _text_streams(array, bounds)
    else:
        # Maps and unions are rare: their Python values stand for them.
        texts = [repr(value).encode() for value in array.to_pylist()]
        yield from _text_streams(pa.array(texts, pa.large_binary()), bounds)


def _is_list(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    )


def _mark_stream(mask: np.ndarray | None, bounds: np.ndarray | None) -> _Stream:
    if mask is None:
        return _Stream(data=memoryview(b""), width=1, bounds=bounds, marks=True)
    nulls = np.concatenate([[0], np.cumsum(mask)])
    return _Stream(data=_bytes_of(mask), width=1, bounds=bounds, nulls=nulls, marks=True)


def _fixed_width(array: pa.Array) -> np.ndarray:
    """The values of a fixed-width array as uint8, shape (n, width)."""
    if pa.types.is_boolean(array.type):
        array = array.fill_null(False).cast(pa.uint8())
    width = array.type.bit_width // 8
    count = len(array)
    if not count or not width:
        return np.empty((count, width), np.uint8)
    values = np.frombuffer(array.buffers()[1], np.uint8)
    return values[array.offset * width : (array.offset + count) * width].reshape(count, width)


def _inner_bounds(lengths: np.ndarray, bounds: np.ndarray | None) -> np.ndarray:
    """Which items of a list or bytes of a text belong to each row."""
    starts = np.concatenate([[0], np.cumsum(lengths)])
    return starts if bounds is None else starts[bounds]


def _list_streams(array: pa.Array, bounds: np.ndarray | None) -> Iterator[_Stream]:
    lengths = pc.list_value_length(array).fill_null(0).to_numpy(zero_copy_only=False)
    lengths = lengths.astype(np.int64)
    yield _Stream(data=_bytes_of(lengths), width=8, bounds=bounds)
    # flatten leaves out what stands under nulls.
    yield from _streams(array.flatten(), _inner_bounds(lengths, bounds))


def _text_streams(array: pa.Array, bounds: np.ndarray | None) -> Iterator[_Stream]:
    array = array.cast(pa.large_binary())
    if array.null_count:
        array = array.fill_null(b"")
    _, offset_buffer, data = array.buffers()
    offsets = np.zeros(1, np.int64)
    if len(array):
        offsets = np.frombuffer(offset_buffer, np.int64)[array.offset :][: len(array) + 1]
    lengths = np.diff(offsets)
    yield _Stream(data=_bytes_of(lengths), width=8, bounds=bounds)
    content = memoryview(data or b"")[offsets[0] : offsets[-1]]
    yield _Stream(data=content, width=1, bounds=_inner_bounds(lengths, bounds))


def hash_rows(digest: Any, pieces: Sequence[tuple[LaidOut, int, int]]) -> None:
    """Add some rows to a digest.

    `digest` should know the schema already. A piece is a batch laid out, its first row and the row
    after its last: how rows are divided into batches makes no difference.
    """
    first, start, stop = pieces[0]
    if len(pieces) == 1 and first.values is not None:
        # What most partitions come to: half the time of the general way, and the same bytes.
        digest.update((stop - start).to_bytes(8, "little") + bytes(len(first.streams)))
        for data, width, bounds in first.values:
            if bounds is None:
                digest.update(data[start * width : stop * width])
            else:
                digest.update(data[bounds.item(start) * width : bounds.item(stop) * width])
        return
    rows = sum(stop - start for _, start, stop in pieces)
    marked = [
        any(part.streams[index].has_nulls(start, stop) for part, start, stop in pieces)
        for index in range(len(first.streams))
    ]
    # How many rows there are and which marks follow comes first: without it, the bytes of other
    # rows, divided otherwise among the streams, could be the same.
    digest.update(rows.to_bytes(8, "little") + bytes(marked))
    for index, stream in enumerate(first.streams):
        if stream.marks and not marked[index]:
            continue
        for part, start, stop in pieces:
            digest.update(part.streams[index].part(start, stop))


def hash_schema(schema: pa.Schema) -> Any:
    """A SHA-256 of the names, plain types and roles of a schema, to which rows can be added."""
    fields = [(field.name, str(plain_storage(field.type))) for field in schema]
    digest = hashlib.sha256(repr(fields).encode())
    if labels := marked_labels(schema):
        digest.update(repr(labels).encode())
    return digest
