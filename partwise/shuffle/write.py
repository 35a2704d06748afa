"""Reading fragments of a source once, and dividing their rows among shards by the hash of the key.

Memory is that of a few batches, for fragments of any size.
"""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from partwise.choices import NullKeys
from partwise.errors import NullKeyError
from partwise.shuffle.part_file import PartIndex, PartWriter
from partwise.sources.fetching import fetched_ahead
from partwise.sources.fragments import Fragment, Selection
from partwise.tables.dictionaries import ColumnStorage
from partwise.tables.keys.partition_keys import KeyColumn, hash_keys, normalize_keys
from partwise.tables.rows_by_number import join_batches

# Of a batch. Memory that a process touches for the first time is the dearest part of the work: what
# is as small as this lies where the batch before it lay.
_PART_ROWS = 262_144
_PART_BYTES = 16 * 2**20
# But each shard gets a slice of each column, and what comes with a slice costs as much as this.
_SLICE_BYTES = 1_024
_LARGEST_BATCH_BYTES = 64 * 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class Division:
    """How the rows of a source are divided: what all part files have in common."""

    selection: Selection
    key_columns: tuple[KeyColumn, ...]
    n_shards: int
    null_keys: NullKeys


class KeyRows:
    """Counts the rows of each key, by hash; merges when what is new outgrows what is known."""

    def __init__(self) -> None:
        self._hashes = np.empty(0, np.uint64)
        self._rows = np.empty(0, np.int64)
        self._keys: pa.Table | None = None
        self._new: list[tuple[np.ndarray, np.ndarray, pa.Table]] = []
        self._new_count = 0

    def add(self, hashes: np.ndarray, rows: np.ndarray, keys: pa.Table) -> None:
        """Count rows of keys.

        `hashes` is uint64 and `rows`, as many of each, int64; both of shape (keys,).
        """
        self._new.append((hashes, rows, keys))
        self._new_count += len(hashes)
        # Each merge sorts all that is known: so it at least doubles before the next one.
        if self._new_count > len(self._hashes) + 100_000:
            self._merge()

    def add_batch(self, hashes: np.ndarray, keys: pa.RecordBatch) -> None:
        """Count one row for each key."""
        encoded = pa.array(hashes).dictionary_encode()
        codes, distinct = encoded.indices.to_numpy(), encoded.dictionary.to_numpy()
        # Of several writes to one place numpy keeps the last, so the rows are written backwards.
        first = np.empty(len(distinct), np.int64)
        first[codes[::-1]] = np.arange(len(codes) - 1, -1, -1)
        counts = np.bincount(codes, minlength=len(distinct)).astype(np.int64)
        self.add(distinct, counts, pa.Table.from_batches([keys.take(pa.array(first))]))

    def _merge(self) -> None:
        hashes = np.concatenate([self._hashes, *(new for new, *_ in self._new)])
        rows = np.concatenate([self._rows, *(count for _, count, _ in self._new)])
        known = [] if self._keys is None else [self._keys]
        keys = pa.concat_tables(
            [*known, *(keys for *_, keys in self._new)], promote_options="permissive"
        )
        self._keys, self._new, self._new_count = None, [], 0
        order = np.argsort(hashes, kind="stable")
        hashes, rows = hashes[order], rows[order]
        first = np.flatnonzero(np.r_[True, hashes[1:] != hashes[:-1]]) if len(hashes) else order
        self._hashes = hashes[first]
        self._rows = np.add.reduceat(rows, first) if len(first) else rows
        self._keys = keys.take(pa.array(order[first]))

    def totals(self) -> tuple[np.ndarray, np.ndarray, pa.Table | None]:
        """The distinct hashes, sorted, the rows of each, and the keys; None: there are none."""
        if self._new:
            self._merge()
        return self._hashes, self._rows, self._keys


def write_fragments(
    division: Division,
    fragments: Sequence[tuple[int, Fragment]],
    path: str | os.PathLike[str],
    first_row: int | None,
) -> PartIndex:
    """Read fragments once, and write their rows to one part file, divided by shard.

    `first_row`: how many rows of the source stand before; None where nobody knows.
    """
    storage = ColumnStorage(division.selection.schema)
    counter = _RowCounter(division, storage, first_row)
    writer = PartWriter(path, division.n_shards, storage)
    try:
        for position, batch in _recut(division, fragments, storage):
            kept, hashes = counter.take(batch, fragments)
            if kept.num_rows:
                writer.write(kept, hashes, position)
        return writer.finish(*counter.keys.totals(), counter.dropped, counter.filled)
    finally:
        writer.close()


class _RowCounter:
    """Looks at the keys of batches, one after the other."""

    def __init__(self, division: Division, storage: ColumnStorage, first_row: int | None) -> None:
        self._division = division
        self._storage = storage
        self._row = 0
        self._first_row = first_row
        self._names = [column.name for column in division.key_columns]
        self._empty = set(storage.schema.names)
        self.keys = KeyRows()
        self.dropped = 0

    @property
    def filled(self) -> set[str]:
        """The columns that have had a value."""
        return set(self._storage.schema.names) - self._empty

    def take(
        self, batch: pa.RecordBatch, fragments: Sequence[tuple[int, Fragment]]
    ) -> tuple[pa.RecordBatch, np.ndarray]:
        """Leave out the rows with a null key, or refuse them; count and hash the others."""
        keys = normalize_keys(
            self._storage.show_keys(batch, self._names), self._division.key_columns
        )
        kept = batch
        nulls = None if self._division.null_keys == "keep" else _null_rows(keys)
        if nulls is not None:
            if self._division.null_keys == "error":
                self._refuse_null(keys, nulls, fragments)
            chosen = pa.array(~nulls)
            kept, keys = batch.filter(chosen), keys.filter(chosen)
            self.dropped += batch.num_rows - kept.num_rows
        self._row += batch.num_rows
        if kept.num_rows:
            self._empty = {n for n in self._empty if kept.column(n).null_count == kept.num_rows}
        hashes = hash_keys(keys)
        self.keys.add_batch(hashes, keys)
        return kept, hashes

    def _refuse_null(
        self,
        keys: pa.RecordBatch,
        nulls: np.ndarray,
        fragments: Sequence[tuple[int, Fragment]],
    ) -> None:
        first = int(np.argmax(nulls))
        name = next(n for n in keys.schema.names if not keys.column(n)[first].is_valid)
        row = self._row + first
        where = f"row {row} of the part of the source that begins with {fragments[0][1]}"
        if self._first_row is not None:
            where = f"row {self._first_row + row} of the source"
        refuse_null(name, f"{where} (counted from 0)")


def refuse_null(column: str, where: str) -> None:
    """Raise the error of a null key under the policy "error"."""
    raise NullKeyError(
        f"Key column {column!r} is null in {where}: pass null_keys='drop' to leave such rows out, "
        "or null_keys='keep' to make them a partition."
    )


def _null_rows(keys: pa.RecordBatch) -> np.ndarray | None:
    """Which rows have a null in some key column; None for no row."""
    nulls = [column.is_null() for column in keys.columns if column.null_count]
    if not nulls:
        return None
    flags: np.ndarray = reduce(pc.or_, nulls).to_numpy(zero_copy_only=False)
    return flags


def _recut(
    division: Division, fragments: Sequence[tuple[int, Fragment]], storage: ColumnStorage
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Cut and join stored batches to `_PART_ROWS` rows, or to fewer that have `part_bytes`.

    Rows of two fragments are joined only if none stands between them.
    """
    slices = division.n_shards * len(storage.stored_schema)
    part_bytes = min(_LARGEST_BATCH_BYTES, max(_PART_BYTES, slices * _SLICE_BYTES))
    pending: list[pa.RecordBatch] = []
    rows = size = 0
    last = -1
    positions = [position for position, _ in fragments]
    near = fetched_ahead([fragment for _, fragment in fragments])
    for position, fragment in zip(positions, near, strict=True):
        if pending and position != last + 1:
            yield last, join_batches(pending)
            pending, rows, size = [], 0, 0
        last = position
        for whole in division.selection.batches(fragment):
            row_bytes = max(1, whole.nbytes // whole.num_rows)
            step = max(1, min(_PART_ROWS, part_bytes // row_bytes))
            for start in range(0, whole.num_rows, step):
                batch = storage.store(whole.slice(start, step))
                pending.append(batch)
                rows, size = rows + batch.num_rows, size + batch.num_rows * row_bytes
                if rows >= _PART_ROWS or size >= part_bytes:
                    yield position, join_batches(pending)
                    pending, rows, size = [], 0, 0
    if pending:
        yield last, join_batches(pending)
