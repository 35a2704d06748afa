"""Sorted shards: the partitions of a shard one after the other, in one Arrow IPC file.

The file is meant to be memory-mapped: the rows of a partition lie together, in the order of the
source, and no batch boundary cuts a small partition.
"""

import bisect
import hashlib
import itertools
import os
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from partwise.shuffle.partition_categories import (
    CategoriesReader,
    CategoriesWriter,
    dictionary_columns,
    with_own_codes,
)
from partwise.shuffle.plan import UnsortedShard
from partwise.shuffle.read import read_keyed, stored_rows
from partwise.shuffle.sort import Piece, cut_pieces, encode_sorted, stable_order
from partwise.tables.categories import CODES_VERSION, keeps_order
from partwise.tables.dictionaries import decode_batch, read_dictionaries
from partwise.tables.keys.partition_keys import KeyColumn, partition_ids
from partwise.tables.row_hash import LaidOut, hash_rows, hash_schema, lay_out_batch

_BATCH_ROWS = 65_536
_BATCH_BYTES = 32 * 2**20
_HASH_ROWS = 65_536
_LONG_BATCH_ROWS = 2**20
_LONG_BATCH_BYTES = 128 * 2**20


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


def _batch_rows(row_bytes: int) -> int:
    """How many rows small partitions have together in a batch."""
    return max(1, min(_BATCH_ROWS, _BATCH_BYTES // row_bytes))


def _batch_bounds(offsets: np.ndarray, row_bytes: int) -> list[int]:
    """Where to cut a sorted shard into batches.

    Whole partitions go together up to `_BATCH_ROWS` rows (or `_BATCH_BYTES`); a bigger partition
    has batches of its own, so that it can be read without touching its neighbours.
    """
    limit = _batch_rows(row_bytes)
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
    shard: UnsortedShard, key_columns: Sequence[KeyColumn], directory: str | os.PathLike[str]
) -> SortedShard:
    """Sort an unsorted shard by key; rows of a partition keep the order of the source.

    Anonymous memory is about 12 bytes per row for the keys and 200 MB for rows, not the size of
    the shard; a shard of more than 64 MB is written twice.
    """
    Path(directory).mkdir(parents=True, exist_ok=True)
    path = Path(directory) / f"{shard.number:05d}.arrow"
    write = _write_sorted if shard.written else _write_keyed
    keys, offsets = write(shard, key_columns, path)
    return SortedShard(
        number=shard.number,
        path=str(path),
        keys=keys,
        partition_ids=partition_ids(keys, key_columns),
        offsets=offsets,
    )


@contextmanager
def _new_file(path: Path, schema: pa.Schema) -> Iterator[Any]:
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, schema) as writer:
        yield writer


def _write_sorted(
    shard: UnsortedShard, key_columns: Sequence[KeyColumn], path: Path
) -> tuple[pa.Table, np.ndarray]:
    """Write a shard of part files; returns its keys, and where the rows of each begin."""
    row_bytes = max(1, shard.size_bytes // shard.rows)
    with stored_rows(shard, key_columns, path.with_suffix(".spool")) as stored:
        dictionaries = stored.dictionaries
        codes = encode_sorted(stored.keys(key_columns))
        categories = CategoriesWriter(dictionaries)
        schema = with_own_codes(dictionaries.schema)
        with _new_file(path, schema) as writer:
            for piece in cut_pieces(stored.rows, codes, shard.size_bytes, path):
                offsets = codes.offsets[piece.keys.start : piece.keys.stop + 1]
                bounds = _batch_bounds(offsets - offsets[0], row_bytes)
                own = categories.take(piece)
                for batch, places in _sorted_batches(piece, bounds):
                    columns = [
                        each.of(batch.column(index), places)
                        for index, each in zip(categories.columns, own, strict=True)
                    ]
                    rows = decode_batch(batch, dictionaries)
                    if columns:
                        rows = pa.RecordBatch.from_arrays([*rows.columns, *columns], schema=schema)
                    writer.write_batch(rows)
        categories.write(path, codes.offsets)
    return codes.keys, codes.offsets


def _write_keyed(
    shard: UnsortedShard, key_columns: Sequence[KeyColumn], path: Path
) -> tuple[pa.Table, np.ndarray]:
    """Write a shard of fragments with one key each: they are read once, and written once."""
    codes = encode_sorted(pa.Table.from_batches([keyed.keys for keyed in shard.keyed]))
    dictionaries = read_dictionaries(shard.dictionaries, {0})[0]
    # Stable, since the fragments of a key keep the order of the source.
    order = np.argsort(codes.codes, kind="stable")
    limit = _batch_rows(max(1, shard.size_bytes // shard.rows))
    offsets = [0]
    read = read_keyed(shard, [shard.keyed[place] for place in order.tolist()], key_columns)

    def partition(first: int, end: int) -> Iterator[pa.RecordBatch]:
        offsets.append(offsets[-1])
        for _, batches in itertools.islice(read, end - first):
            for batch in batches:
                offsets[-1] += batch.num_rows
                yield batch

    partitions = itertools.starmap(partition, itertools.pairwise(codes.offsets.tolist()))
    # Without codes of categories: where rows have dictionaries, no fragment is keyed.
    with _new_file(path, dictionaries.schema) as writer:
        for batch in _joined(partitions, limit):
            writer.write_batch(decode_batch(batch, dictionaries))
    return codes.keys, np.array(offsets, np.int64)


def _joined(partitions: Iterator[Iterator[pa.RecordBatch]], limit: int) -> Iterator[pa.RecordBatch]:
    """Join the batches of partitions: of small ones as many as have `limit` rows together.

    A bigger one has batches of its own, as `_batch_bounds` cuts them.
    """
    small: list[pa.RecordBatch] = []
    small_rows = 0
    for batches in partitions:
        own: list[pa.RecordBatch] = []
        own_rows, is_big = 0, False
        for batch in batches:
            own.append(batch)
            own_rows += batch.num_rows
            if small and small_rows + own_rows > limit:
                yield pa.concat_batches(small)
                small, small_rows = [], 0
            if own_rows > limit:
                yield pa.concat_batches(own)
                own, own_rows, is_big = [], 0, True
        if is_big and own:
            yield pa.concat_batches(own)
        elif own:
            small, small_rows = [*small, *own], small_rows + own_rows
    if small:
        yield pa.concat_batches(small)


def _sorted_batches(piece: Piece, bounds: list[int]) -> Iterator[tuple[pa.RecordBatch, np.ndarray]]:
    """The rows of a piece in the order of their keys, cut at `bounds`, with their places in it."""
    order = stable_order(piece.codes)
    rows = piece.rows if order is None else piece.rows.combine_chunks()
    for start, stop in itertools.pairwise(bounds):
        if order is None:
            places = np.arange(start, stop)
            taken = rows.slice(start, stop - start).combine_chunks()
        else:
            places = order[start:stop]
            taken = rows.take(pa.array(places))
        for batch in taken.to_batches():
            yield batch, places[: batch.num_rows]
            places = places[batch.num_rows :]


class ShardReader:
    """Reads partitions of a sorted shard from its memory-mapped file.

    Columns `left_out` are in no fingerprint of rows.
    """

    def __init__(self, path: str | os.PathLike[str], left_out: Collection[str] = ()) -> None:
        reader = pa.ipc.open_file(pa.memory_map(str(path)))
        # Behind the rows' columns stand the own codes of as many as have a dictionary.
        count = len(reader.schema) - len(dictionary_columns(reader.schema))
        self.schema = pa.schema(
            [reader.schema.field(index) for index in range(count)],
            metadata=reader.schema.metadata,
        )
        """The schema of the rows."""
        self._categories: CategoriesReader | None = None
        if count < len(reader.schema):
            self._categories = CategoriesReader(path, self.schema)
        self._batches = [reader.get_batch(i) for i in range(reader.num_record_batches)]
        self._starts = [0, *itertools.accumulate(batch.num_rows for batch in self._batches)]
        self._hashed = [i for i in range(count) if self.schema.field(i).name not in left_out]
        self._laid_out: tuple[int, LaidOut] | None = None
        self._schema_hash: Any = None

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
        """The rows of a partition, without a copy, with the categories of these rows alone.

        Rows are counted as in `SortedShard.offsets`. The table points into the mapped file and
        keeps it open.
        """
        pieces = self._pieces(int(start_row), int(stop_row))
        slices = [self._batches[i].slice(start, stop - start) for i, start, stop in pieces]
        if self._categories is not None:
            own = self._categories.of(int(start_row))
            slices = [self._categories.encode(batch, self.schema, own) for batch in slices]
        return pa.Table.from_batches(slices, schema=self.schema)

    def codes_fingerprint(self, row: int, columns: Collection[str] | None) -> str | None:
        """Fingerprint what `fingerprint` leaves out: which columns are codes, and of what.

        Categories in the order of their values follow from these. None where no column has a
        dictionary. `columns` None: all matter.
        """
        # First what is one look: it is asked of each partition, and there may be 2,000 columns.
        if self._categories is None:
            return None
        coded = [
            index
            for index in dictionary_columns(self.schema)
            if columns is None or self.schema.field(index).name in columns
        ]
        if not coded:
            return None
        fields = [self.schema.field(index) for index in coded]
        marks = [CODES_VERSION, *((field.name, field.type.ordered) for field in fields)]
        digest = hashlib.sha256(repr(marks).encode())
        if any(keeps_order(field.type) for field in fields):
            own = self._categories.of(row)
            places = dictionary_columns(self.schema)
            for index, field in zip(coded, fields, strict=True):
                if keeps_order(field.type):
                    batch = pa.record_batch([own[places.index(index)]], [""])
                    hash_rows(digest, [(lay_out_batch(batch), 0, batch.num_rows)])
        return digest.hexdigest()

    def fingerprint(self, start_row: int, stop_row: int) -> str:
        """Fingerprint the rows of a partition, column names and types.

        It does not depend on neighbours, batches, slices or dictionaries, nor on what stands
        under nulls.
        """
        if self._schema_hash is None:
            # Not before: children fingerprint nothing, and there may be 2,000 columns.
            self._schema_hash = hash_schema(pa.schema([self.schema.field(i) for i in self._hashed]))
        digest = self._schema_hash.copy()
        # Cut from the first row of the partition on, so that neighbours move no cut.
        for start in range(int(start_row), int(stop_row), _HASH_ROWS):
            pieces = self._pieces(start, min(start + _HASH_ROWS, int(stop_row)))
            hash_rows(digest, [self._part(*piece) for piece in pieces])
        return str(digest.hexdigest())

    def _part(self, index: int, start: int, stop: int) -> tuple[LaidOut, int, int]:
        """Rows of a batch laid out for hashing; the last small batch is kept, for its next rows."""
        batch = self._batches[index]
        if len(self._hashed) != batch.num_columns:
            batch = batch.select(self._hashed)
        if batch.num_rows > _HASH_ROWS:
            return lay_out_batch(batch.slice(start, stop - start)), 0, stop - start
        if self._laid_out is None or self._laid_out[0] != index:
            self._laid_out = (index, lay_out_batch(batch))
        return self._laid_out[1], start, stop
