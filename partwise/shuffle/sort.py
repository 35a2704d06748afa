"""Sorting a shard by key without holding it: codes for keys, and pieces that fit into memory.

`take` on a chunked column first joins all its chunks, at every call. So rows are only ever taken
from one batch or one piece of at most `PIECE_BYTES`: a bigger shard is first split, in one pass,
into pieces of neighbouring keys. A partition that is bigger still is a piece of its own, which lies
in the order of the source already.
"""

import os
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from partwise.tables.rows_by_number import RowsByNumber

PIECE_BYTES = 64 * 2**20
_MAX_WIDTH = 2**62
_SPLIT_ROWS = 262_144


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyCodes:
    """The distinct keys of n rows, numbered in the order in which they sort."""

    codes: np.ndarray
    """uint16 or uint32, shape (n,): the number of each row's key."""

    offsets: np.ndarray
    """int64, shape (keys + 1,): where the rows of each key begin when they are sorted."""

    keys: pa.Table
    """The distinct keys in their order, nulls last."""


def _column_codes(column: pa.ChunkedArray) -> tuple[np.ndarray, int]:
    """Rank the values of one key column: codes below the width returned, nulls last."""
    if column.null_count == len(column):
        return np.zeros(len(column), np.int32), 1
    encoded = column.dictionary_encode(null_encoding="mask")
    # All chunks share one dictionary, so the first chunk's has every value. It is in the order of
    # appearance; `ranks` gives each of its codes the place among the sorted values, and nulls,
    # which are not a value of it, the place after them all.
    dictionary = encoded.chunk(0).dictionary
    count = len(dictionary)
    ranks = np.empty(count + 1, np.int32)
    ranks[pc.sort_indices(dictionary).to_numpy()] = np.arange(count)
    ranks[count] = count
    codes = np.empty(len(column), np.int32)
    start = 0
    for chunk in encoded.chunks:
        indices = chunk.indices.fill_null(count) if chunk.null_count else chunk.indices
        codes[start : start + len(chunk)] = ranks[indices.to_numpy(zero_copy_only=False)]
        start += len(chunk)
    return codes, count + 1


def _dense(codes: np.ndarray, width: int) -> tuple[np.ndarray, int]:
    """Renumber codes so that none below the returned width is unused."""
    # A table as wide as the codes is fast, but their products can be far wider than there are rows;
    # then sorting the codes that do occur is cheaper.
    if width > 4 * len(codes) + 65_536:
        known, dense = np.unique(codes, return_inverse=True)
        return dense, len(known)
    used = np.bincount(codes, minlength=width) > 0
    if used.all():
        return codes, width
    numbers = np.cumsum(used, dtype=np.int32) - 1
    return numbers[codes], int(used.sum())


def encode_sorted(keys: pa.Table) -> KeyCodes:
    """Number the distinct keys of some rows, at least one, in the order in which they sort."""
    # A row's number is that of a mixed-radix number: the first column is the highest digit, so that
    # numbers sort as tuples of keys do. It is renumbered whenever it might not fit into int64.
    total, width = np.zeros(keys.num_rows, np.int32), 1
    for column in keys.columns:
        codes, count = _column_codes(column)
        if width * count > _MAX_WIDTH:
            total, width = _dense(total, width)
        if width == 1:
            total, width = codes, count
        else:
            total, width = total * np.int64(count) + codes, width * count
    total, width = _dense(total, width)
    codes = total.astype(np.uint16 if width <= 2**16 else np.uint32)
    # The wide codes are the largest thing in memory here.
    del total
    # The first row of each key. Of several writes to one place numpy keeps the last, so the rows
    # are written backwards.
    first = np.empty(width, np.int64)
    first[codes[::-1]] = np.arange(len(codes) - 1, -1, -1)
    counts = np.bincount(codes, minlength=width)
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    distinct = pa.Table.from_batches([RowsByNumber(keys).take(first)])
    return KeyCodes(codes=codes, offsets=offsets, keys=distinct)


def stable_order(codes: np.ndarray) -> np.ndarray | None:
    """The stable order of uint16 or uint32 codes; None when they are in order already."""
    if bool((codes[1:] >= codes[:-1]).all()):
        return None
    # numpy sorts 16-bit integers by radix, several times faster than wider ones.
    # Two stable passes, the low half first, sort by the whole code.
    order = np.argsort(codes.astype(np.uint16), kind="stable")
    if codes.dtype != np.uint16:
        high = (codes >> 16).astype(np.uint16)
        order = order[np.argsort(high[order], kind="stable")]
    return order


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """Some partitions of a shard, side by side in its order."""

    rows: pa.Table
    """Their stored rows, in the order of the source."""

    codes: np.ndarray
    """The number of each row's key."""

    keys: range
    """The numbers of the keys that it holds."""


def _piece_bounds(offsets: np.ndarray, limit: int) -> list[int]:
    """Cut the numbered keys into ranges of at most `limit` rows, or of one bigger partition."""
    bounds = [0]
    for key, stop in enumerate(offsets[1:].tolist()):
        if stop - offsets[bounds[-1]] > limit and key > bounds[-1]:
            bounds.append(key)
    return [*bounds, len(offsets) - 1]


def cut_pieces(
    stored: pa.Table, codes: KeyCodes, size_bytes: int, scratch: Path
) -> Iterator[Piece]:
    """Cut a shard into pieces that fit into memory, in the order of their keys.

    A piece has at most `PIECE_BYTES`, or one partition. `scratch` is the stem of files for the
    pieces; each is deleted when the next piece is asked for.
    """
    keys = len(codes.offsets) - 1
    if size_bytes <= PIECE_BYTES or keys == 1:
        yield Piece(rows=stored, codes=codes.codes, keys=range(keys))
        return
    limit = max(1, PIECE_BYTES * stored.num_rows // size_bytes)
    bounds = _piece_bounds(codes.offsets, limit)
    paths = [f"{scratch}.{index}" for index in range(len(bounds) - 1)]
    _split(stored, codes, bounds, paths)
    for path, start, stop in zip(paths, bounds, bounds[1:], strict=False):
        table = pa.ipc.open_stream(pa.memory_map(path)).read_all()
        # The mapping keeps the content; without its name a killed process leaves nothing behind.
        os.unlink(path)
        own = table.column(table.num_columns - 1).to_numpy()
        rows = table.remove_column(table.num_columns - 1)
        yield Piece(rows=rows, codes=own, keys=range(start, stop))


def _split(stored: pa.Table, codes: KeyCodes, bounds: list[int], paths: list[str]) -> None:
    """Write the rows of each range of keys to a file of its own, with their codes."""
    # 16 bits, which are sorted by radix: two neighbouring pieces have more than 64 MB, so that
    # 65,536 of them would be a shard of 2 TB.
    piece_of = np.repeat(np.arange(len(paths)), np.diff(bounds)).astype(np.uint16)
    field = pa.field("", pa.from_numpy_dtype(codes.codes.dtype))
    schema = stored.schema.append(field)
    with ExitStack() as stack:
        writers = []
        for path in paths:
            file = stack.enter_context(pa.OSFile(path, "wb"))
            writers.append(stack.enter_context(pa.ipc.new_stream(file, schema)))
        for start in range(0, stored.num_rows, _SPLIT_ROWS):
            own = codes.codes[start : start + _SPLIT_ROWS]
            part = stored.slice(start, _SPLIT_ROWS).append_column(field, pa.array(own))
            numbers = piece_of[own]
            # Stable, since a partition's rows keep the order of the source.
            taken = part.combine_chunks().take(pa.array(np.argsort(numbers, kind="stable")))
            offset = 0
            for number, count in enumerate(np.bincount(numbers, minlength=len(paths)).tolist()):
                writers[number].write_table(taken.slice(offset, count))
                offset += count
