"""What spilling is made of: batches of an even size, one open stream per shard, a count of keys."""

import os
import resource
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from partwise.tasks.data.dictionaries import ColumnStorage
from partwise.tasks.errors import InputError

# Fewer rows per batch make the slices that go to each shard tiny, more cost memory.
_SPILL_ROWS = 262_144
_SPILL_BYTES = 64 * 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class SpilledShard:
    """The unsorted rows of one shard on disk."""

    number: int
    """The hash of its keys modulo the number of shards."""

    path: str
    """Its file: rows as an IPC stream, then a stream of no rows with schema and dictionaries."""

    rows: int
    """How many rows it has, at least one."""

    size_bytes: int
    """The size of the file."""


def allow_open_files(n_shards: int) -> None:
    """Make room for one open file per shard."""
    needed = n_shards + len(os.listdir("/proc/self/fd")) + 64
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or needed <= soft:
        return
    if hard != resource.RLIM_INFINITY and needed > hard:
        raise InputError(
            f"Sharding into {n_shards} shards keeps {n_shards} files open, but this process may "
            f"open only {hard}: pass a smaller n_shards, or raise the limit ('ulimit -Hn')."
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (needed if hard < 0 else hard, hard))


def recut(batches: Iterator[pa.RecordBatch], storage: ColumnStorage) -> Iterator[pa.RecordBatch]:
    """Cut and join stored batches to `_SPILL_ROWS` rows, or `_SPILL_BYTES` if that is less."""
    pending: list[pa.RecordBatch] = []
    rows = size = 0
    for whole in batches:
        if not whole.num_rows:
            continue
        row_bytes = max(1, whole.nbytes // whole.num_rows)
        step = max(1, min(_SPILL_ROWS, _SPILL_BYTES // row_bytes))
        for start in range(0, whole.num_rows, step):
            batch = storage.store(whole.slice(start, step))
            pending.append(batch)
            rows, size = rows + batch.num_rows, size + batch.num_rows * row_bytes
            if rows >= _SPILL_ROWS or size >= _SPILL_BYTES:
                yield _joined(pending)
                pending, rows, size = [], 0, 0
    if pending:
        yield _joined(pending)


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


class DistinctHashes:
    """Counts distinct hashes; merges when what is new outgrows what is known."""

    def __init__(self) -> None:
        self._known = np.empty(0, np.uint64)
        self._new: list[np.ndarray] = []
        self._new_count = 0

    def add(self, hashes: np.ndarray) -> None:
        """Count the hashes of some rows."""
        distinct = pa.array(hashes).unique().to_numpy()
        self._new.append(distinct)
        self._new_count += len(distinct)
        if self._new_count > len(self._known) + 100_000:
            self._merge()

    def _merge(self) -> None:
        self._known = np.unique(np.concatenate([self._known, *self._new]))
        self._new, self._new_count = [], 0

    def count(self) -> int:
        """How many distinct hashes were added."""
        self._merge()
        return len(self._known)


class ShardWriters:
    """One open IPC stream for each shard that has rows so far."""

    def __init__(self, directory: Path, n_shards: int, storage: ColumnStorage) -> None:
        self._directory = directory
        self._storage = storage
        self._files: list[pa.OSFile | None] = [None] * n_shards
        self._writers: list[pa.RecordBatchWriter | None] = [None] * n_shards
        self.rows = np.zeros(n_shards, np.int64)

    def path(self, number: int) -> str:
        """The file of a shard."""
        return str(self._directory / f"{number:05d}.spill")

    def write(self, batch: pa.RecordBatch, hashes: np.ndarray) -> None:
        """Distribute a batch: one stable sort by shard, one take, one slice for each shard."""
        n_shards = len(self._files)
        numbers = (hashes % np.uint64(n_shards)).astype(np.uint16)
        order = np.argsort(numbers, kind="stable")
        counts = np.bincount(numbers, minlength=n_shards)
        taken = batch.take(pa.array(order))
        start = 0
        for number in np.flatnonzero(counts).tolist():
            writer = self._writers[number]
            if writer is None:
                self._files[number] = pa.OSFile(self.path(number), "wb")
                writer = pa.ipc.new_stream(self._files[number], batch.schema)
                self._writers[number] = writer
            count = int(counts[number])
            writer.write_batch(taken.slice(start, count))
            start += count
        self.rows += counts

    def finish(self) -> tuple[SpilledShard, ...]:
        """Append schema and dictionaries to every file and close it."""
        dictionaries = self._storage.dictionaries()
        shards = []
        for number in np.flatnonzero(self.rows).tolist():
            file, writer = self._files[number], self._writers[number]
            if file is None or writer is None:
                continue
            writer.close()
            with pa.ipc.new_stream(file, dictionaries.schema) as tail:
                tail.write_batch(dictionaries)
            file.close()
            shard = SpilledShard(
                number=number,
                path=self.path(number),
                rows=int(self.rows[number]),
                size_bytes=Path(self.path(number)).stat().st_size,
            )
            shards.append(shard)
        return tuple(shards)

    def close(self) -> None:
        """Close what is open; for the way out after an error."""
        for file in self._files:
            if file is not None:
                file.close()
