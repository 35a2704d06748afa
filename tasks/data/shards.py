"""Shards: the rows of a source, spilled by the hash of their key and then sorted by it.

Spilling streams: it holds one batch and a writer per shard, never the table. A spill is one IPC
stream per shard, followed in the same file by a second stream of no rows that carries schema and
dictionaries. A sorted shard is one IPC file, meant to be memory-mapped: the rows of a partition lie
together, in the order of the source, and no batch boundary cuts a small partition.
"""

import bisect
import itertools
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from partwise.tasks.data.dictionaries import ColumnStorage, show
from partwise.tasks.data.keys import KeyColumn, hash_keys, normalize_keys, partition_ids
from partwise.tasks.data.row_hash import LaidOut, hash_rows, hash_schema, lay_out
from partwise.tasks.data.sorting import Piece, cut_pieces, encode_sorted, stable_order
from partwise.tasks.data.sources import Source
from partwise.tasks.data.spilling import (
    DistinctHashes,
    ShardWriters,
    SpilledShard,
    allow_open_files,
    recut,
)
from partwise.tasks.errors import InputError, NullKeyError, SourceError

NullKeys = Literal["error", "drop", "keep"]
"""What happens to a row whose key is null: refuse the data, leave the row out, or keep it as the
partition of the null key."""

_MAX_SHARDS = 65_536
_BATCH_ROWS = 65_536
_BATCH_BYTES = 32 * 2**20
_HASH_ROWS = 65_536
_LONG_BATCH_ROWS = 2**20
_LONG_BATCH_BYTES = 128 * 2**20
_SHARD_BYTES = 64 * 2**20
_ROWS_PER_SHARD = 10_000
_ROW_BYTES = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Spill:
    """A source that was read once and distributed over shards."""

    key_columns: tuple[KeyColumn, ...]
    """The columns by which it was distributed."""

    shards: tuple[SpilledShard, ...]
    """The shards that have rows, by number."""

    rows: int
    """Rows in all shards."""

    partitions: int
    """Distinct keys, counted by their 64-bit hash."""

    dropped_rows: int
    """Rows left out because their key was null (policy "drop")."""

    schema: pa.Schema
    """The schema of the rows as readers of the sorted shards see them."""

    empty_columns: frozenset[str]
    """The columns in which every value is null."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SortedShard:
    """One shard whose partitions lie one after the other."""

    number: int
    """Its number."""

    path: str
    """Its IPC file, to be opened with `ShardReader`."""

    keys: pa.Table
    """The normalized keys, one row per partition, sorted, nulls last."""

    partition_ids: list[str]
    """The partition IDs, in the order of `keys`."""

    offsets: np.ndarray
    """int64, shape (partitions + 1,): the rows of partition i are offsets[i] to offsets[i + 1]."""


def default_n_shards(rows: int | None, size_bytes: int, slots: int) -> int:
    """Choose the number of shards.

    At least 8 per slot keep the longest shard from delaying the end; up to 400 are cheap, and a
    later run with more workers must use the same number.

    Args:
        rows: Rows of the source, None where nobody knows.
        size_bytes: Its size in Arrow memory.
        slots: How many partitions are worked on at once.

    Returns:
        A number from 1 to 65,536.
    """
    about = size_bytes // _ROW_BYTES if rows is None else rows
    by_rows = min(64, about // _ROWS_PER_SHARD)
    by_size = min(400, size_bytes // _SHARD_BYTES)
    # Above 25 GB the shards grow, but only to 256 MB: what is bigger is sorted more slowly.
    wanted = max(8 * slots, by_rows, by_size, size_bytes // (4 * _SHARD_BYTES))
    return max(1, min(wanted, _MAX_SHARDS))


def _null_rows(keys: pa.RecordBatch) -> np.ndarray | None:
    """Which rows have a null in some key column; None for no row."""
    nulls = [column.is_null() for column in keys.columns if column.null_count]
    if not nulls:
        return None
    mask = nulls[0]
    for more in nulls[1:]:
        mask = pc.or_(mask, more)
    found: np.ndarray = mask.to_numpy(zero_copy_only=False)
    return found


def _refuse_null(keys: pa.RecordBatch, nulls: np.ndarray, rows_before: int) -> None:
    first = int(np.argmax(nulls))
    name = next(n for n in keys.schema.names if not keys.column(n)[first].is_valid)
    raise NullKeyError(
        f"Key column {name!r} is null in row {rows_before + first} of the source (counted from 0): "
        "pass null_keys='drop' to leave such rows out, or null_keys='keep' to make them "
        "a partition."
    )


def spill_shards(
    source: Source,
    key_columns: Sequence[KeyColumn],
    n_shards: int,
    directory: str | os.PathLike[str],
    *,
    null_keys: NullKeys = "error",
) -> Spill:
    """Read a source once and distribute its rows over shards by the hash of their key.

    Memory is that of a few batches and of one writer per shard, whatever the size of the source;
    open files are as many as shards. After an error the directory is left for the caller to delete.

    Args:
        source: Where the rows come from.
        key_columns: The columns of the partition key.
        n_shards: How many shards, 1 to 65,536.
        directory: Where the spill is written; made if it is missing.
        null_keys: What happens to rows whose key is null.

    Returns:
        The shards that have rows, with counts.

    Raises:
        SourceError: There are no rows.
        NullKeyError: A key is null under the policy "error".
        InputError: `n_shards` is out of range, or needs more open files than the system allows.

    Example:
        >>> source = open_source("sales.parquet")
        >>> columns = key_columns(source.schema, ["store"])
        >>> spill = spill_shards(source, columns, 64, "/tmp/spill")
    """
    if not 1 <= n_shards <= _MAX_SHARDS:
        raise InputError(f"n_shards is {n_shards}: choose a number from 1 to {_MAX_SHARDS}.")
    allow_open_files(n_shards)
    Path(directory).mkdir(parents=True, exist_ok=True)
    storage = ColumnStorage(source.schema)
    names = [column.name for column in key_columns]
    writers = ShardWriters(Path(directory), n_shards, storage)
    distinct = DistinctHashes()
    rows = dropped = 0
    empty = set(source.schema.names)
    try:
        for batch in recut(source.batches(), storage):
            kept = batch
            keys = normalize_keys(storage.show_keys(batch, names), key_columns)
            nulls = None if null_keys == "keep" else _null_rows(keys)
            if nulls is not None:
                if null_keys == "error":
                    _refuse_null(keys, nulls, rows)
                chosen = pa.array(~nulls)
                kept, keys = batch.filter(chosen), keys.filter(chosen)
                dropped += batch.num_rows - kept.num_rows
            rows += kept.num_rows
            if not kept.num_rows:
                continue
            empty = {n for n in empty if kept.column(n).null_count == kept.num_rows}
            hashes = hash_keys(keys)
            distinct.add(hashes)
            writers.write(kept, hashes)
        if not rows:
            _refuse_empty(dropped)
        shards = writers.finish()
    finally:
        writers.close()
    return Spill(
        key_columns=tuple(key_columns),
        shards=shards,
        rows=rows,
        partitions=distinct.count(),
        dropped_rows=dropped,
        schema=storage.shown_schema,
        empty_columns=frozenset(empty),
    )


def _refuse_empty(dropped: int) -> None:
    if dropped:
        raise SourceError(
            f"All {dropped} rows have a null key, and null_keys='drop' leaves none of them: "
            "check partition_by, or pass null_keys='keep'."
        )
    raise SourceError("The source has no rows: there is nothing to partition.")


def _open_spilled(path: str) -> tuple[pa.Table, pa.RecordBatch]:
    """Map a spilled shard: its stored rows and its dictionaries."""
    source = pa.memory_map(path)
    stored = pa.ipc.open_stream(source).read_all()
    return stored, pa.ipc.open_stream(source).read_next_batch()


def _shard_keys(
    stored: pa.Table, dictionaries: pa.RecordBatch, key_columns: Sequence[KeyColumn]
) -> pa.Table:
    """The normalized keys of all stored rows."""
    chosen = dictionaries.select([column.name for column in key_columns])
    batches = stored.select(chosen.schema.names).to_batches()
    shown = pa.Table.from_batches([show(batch, chosen) for batch in batches])
    return normalize_keys(shown, key_columns)


def read_shard_keys(shard: SpilledShard, key_columns: Sequence[KeyColumn]) -> pa.Table:
    """Read the distinct keys of a spilled shard.

    Args:
        shard: The shard.
        key_columns: The columns of the partition key.

    Returns:
        Normalized key columns, one row per partition, in the order of `SortedShard.keys`.
    """
    return encode_sorted(_shard_keys(*_open_spilled(shard.path), key_columns)).keys


def _batch_bounds(offsets: np.ndarray, row_bytes: int) -> list[int]:
    """Where to cut a sorted shard into batches.

    Whole partitions go together up to `_BATCH_ROWS` rows (or `_BATCH_BYTES`); a bigger partition
    has batches of its own, so that it can be read without touching its neighbours.
    """
    limit = max(1, min(_BATCH_ROWS, _BATCH_BYTES // row_bytes))
    long_limit = max(1, min(_LONG_BATCH_ROWS, _LONG_BATCH_BYTES // row_bytes))
    bounds = [0]
    for start, stop in zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True):
        if stop - bounds[-1] <= limit:
            continue
        if start > bounds[-1]:
            bounds.append(start)
        if stop - start > limit:
            bounds += range(start + long_limit, stop, long_limit)
            bounds.append(stop)
    if bounds[-1] < offsets[-1]:
        bounds.append(int(offsets[-1]))
    return bounds


def sort_shard(
    shard: SpilledShard, key_columns: Sequence[KeyColumn], directory: str | os.PathLike[str]
) -> SortedShard:
    """Sort a spilled shard by key; rows of a partition keep the order of the source.

    Anonymous memory is about 12 bytes per row for the keys and 200 MB for rows, not the size of
    the shard; a shard of more than 64 MB is written twice.

    Args:
        shard: The shard, whose file stays as it is.
        key_columns: The columns of the partition key.
        directory: Where the sorted file is written; made if it is missing.

    Returns:
        The sorted shard with its keys, partition IDs and row offsets.

    Example:
        >>> shard = sort_shard(spill.shards[0], spill.key_columns, "/tmp/sorted")
        >>> reader = ShardReader(shard.path)
        >>> first = reader.partition(shard.offsets[0], shard.offsets[1])
    """
    stored, dictionaries = _open_spilled(shard.path)
    codes = encode_sorted(_shard_keys(stored, dictionaries, key_columns))
    Path(directory).mkdir(parents=True, exist_ok=True)
    path = Path(directory) / f"{shard.number:05d}.arrow"
    row_bytes = max(1, shard.size_bytes // shard.rows)
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, dictionaries.schema) as writer:
        for piece in cut_pieces(stored, codes, shard.size_bytes, path):
            offsets = codes.offsets[piece.keys.start : piece.keys.stop + 1]
            bounds = _batch_bounds(offsets - offsets[0], row_bytes)
            for batch in _sorted_batches(piece, bounds):
                writer.write_batch(show(batch, dictionaries))
    return SortedShard(
        number=shard.number,
        path=str(path),
        keys=codes.keys,
        partition_ids=partition_ids(codes.keys, key_columns),
        offsets=codes.offsets,
    )


def _sorted_batches(piece: Piece, bounds: list[int]) -> Iterator[pa.RecordBatch]:
    """The rows of a piece in the order of their keys, cut at `bounds`."""
    order = stable_order(piece.codes)
    rows = piece.rows if order is None else piece.rows.combine_chunks()
    for start, stop in itertools.pairwise(bounds):
        if order is None:
            taken = rows.slice(start, stop - start).combine_chunks()
        else:
            taken = rows.take(pa.array(order[start:stop]))
        yield from taken.to_batches()


class ShardReader:
    """Reads partitions of a sorted shard from its memory-mapped file.

    Args:
        path: The file of a `SortedShard`.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        reader = pa.ipc.open_file(pa.memory_map(str(path)))
        self.schema: pa.Schema = reader.schema
        """The schema of the rows."""
        self._batches = [reader.get_batch(i) for i in range(reader.num_record_batches)]
        self._starts = [0, *itertools.accumulate(batch.num_rows for batch in self._batches)]
        self._schema_hash = hash_schema(self.schema)
        self._laid_out: tuple[int, LaidOut] | None = None

    def _pieces(self, start: int, stop: int) -> list[tuple[int, int, int]]:
        """Where rows lie: numbers of batches, each with a first row and the row after the last."""
        pieces = []
        index = bisect.bisect_right(self._starts, start) - 1
        while start < stop:
            offset = self._starts[index]
            end = min(stop, self._starts[index + 1])
            pieces.append((index, start - offset, end - offset))
            start = end
            index += 1
        return pieces

    def partition(self, start_row: int, stop_row: int) -> pa.Table:
        """The rows of a partition, without a copy.

        Args:
            start_row: Its first row, from `SortedShard.offsets`.
            stop_row: The row after its last.

        Returns:
            A table that points into the mapped file and keeps it open.
        """
        pieces = self._pieces(int(start_row), int(stop_row))
        slices = [self._batches[i].slice(start, stop - start) for i, start, stop in pieces]
        return pa.Table.from_batches(slices, schema=self.schema)

    def fingerprint(self, start_row: int, stop_row: int) -> str:
        """Fingerprint the rows of a partition, column names and types.

        It does not depend on neighbours, batches, slices or dictionaries, nor on what stands
        under nulls.

        Args:
            start_row: Its first row, from `SortedShard.offsets`.
            stop_row: The row after its last.

        Returns:
            64 hexadecimal digits.
        """
        digest = self._schema_hash.copy()
        for start in range(int(start_row), int(stop_row), _HASH_ROWS):
            pieces = self._pieces(start, min(start + _HASH_ROWS, int(stop_row)))
            hash_rows(digest, [self._part(*piece) for piece in pieces])
        return str(digest.hexdigest())

    def _part(self, index: int, start: int, stop: int) -> tuple[LaidOut, int, int]:
        """Rows of a batch laid out for hashing; the last small batch is kept, for its next rows."""
        batch = self._batches[index]
        if batch.num_rows > _HASH_ROWS:
            return lay_out(batch.slice(start, stop - start)), 0, stop - start
        if self._laid_out is None or self._laid_out[0] != index:
            self._laid_out = (index, lay_out(batch))
        return self._laid_out[1], start, stop
