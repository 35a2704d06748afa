"""Segments: what a worker commits of a shard at one time.

Files first, the ledger last: a partition counts once its ledger row is on the store.
"""

import secrets
import time
from collections import defaultdict
from dataclasses import replace

import pyarrow as pa

from partwise.engine.assignment import Execution
from partwise.errors import RunBusyError, StoreError
from partwise.runs.bundle import BundleWriter, StoredArtifact
from partwise.runs.contents import list_generations, write_segment
from partwise.runs.documents import execution_token, run_path, segment_file, sha256_of
from partwise.runs.kinds import KINDS
from partwise.runs.ledger import LedgerRow, segment_table, write_table

LONGEST_SEGMENT_S = 600.0
# The bundle and the output rows of a segment are in memory until it is committed.
LARGEST_SEGMENT_BYTES = 256 << 20


class SegmentWriter:
    """Collects outcomes of one shard and commits them as numbered segments."""

    def __init__(self, execution: Execution, shard: int, keys: pa.Table) -> None:
        # Of this execution alone: one that was cut off, and went on late, once wrote under names of
        # the one in its place, and seven of eight segments were lost.
        self.token = execution_token(execution.generation, secrets.token_hex(4))
        self._execution = execution
        self._shard = shard
        self._keys = keys
        self._segment = 0
        self._interval_s = execution.options.first_segment_s
        self._open()

    def _open(self) -> None:
        self._segment += 1
        self._began = time.monotonic()
        self._indices: list[int] = []
        self._rows: list[LedgerRow] = []
        self._carried: list[pa.Table] = []
        self._output_bytes = 0
        self._outputs: dict[pa.Schema, list[tuple[int, pa.Table]]] = defaultdict(list)
        self._bundle = BundleWriter(self._name("bundles", "zip"))

    def _name(self, folder: str, suffix: str) -> str:
        return f"{folder}/{segment_file(self._shard, self.token, self._segment, suffix)}"

    def add_artifact(
        self, partition_id: str, filename: str, content: bytes, serde: str = ""
    ) -> StoredArtifact:
        """Put a file into the segment's bundle."""
        return self._bundle.add(partition_id, filename, content, serde)

    def add(self, index: int, row: LedgerRow, output: pa.Table | None = None) -> None:
        """Add the outcome of a partition."""
        if output is not None:
            self._outputs[output.schema].append((len(self._rows), output))
            self._output_bytes += output.nbytes
        self._indices.append(index)
        self._rows.append(row)

    def carry(self, table: pa.Table) -> None:
        """Add ledger rows of earlier generations; their column `generation` tells them apart."""
        self._carried.append(table)

    @property
    def is_due(self) -> bool:
        """Whether the segment has run long enough, or holds enough, and holds anything."""
        if not self._rows and not self._carried:
            return False
        if self._bundle.size_bytes + self._output_bytes >= LARGEST_SEGMENT_BYTES:
            return True
        return time.monotonic() - self._began >= self._interval_s

    def commit(self) -> None:
        """Write the segment, if it holds anything, and open the next.

        Raises:
            RunBusyError: The run has ended without this execution, which was out of reach, or
                another generation is at work.
            StoreError: The store refused, or has no such run any more; nothing of this segment
                counts.
        """
        if not self._rows and not self._carried:
            return
        # From the look at the run on it is the same store, or nothing is written.
        with self._execution.store.held():
            self._commit()

    def _commit(self) -> None:
        store, run_id = self._execution.store, self._execution.run_id
        # An execution that was cut off may wake up when its run is complete, or when another
        # generation is at work. What it writes then would change what readers have seen.
        is_signed = self._execution.is_signed
        generations = list_generations(store, run_id, is_signed=is_signed)
        if generations.is_over(self._execution.generation):
            raise RunBusyError(
                f"The run {run_id!r} ended without this execution of its shard {self._shard}, "
                "which was out of reach for too long; it writes nothing more."
            )
        if generations.begun < self._execution.generation:
            raise StoreError(
                f"The run {run_id!r} is not in {store.url} any more: it was deleted, or the store "
                "was moved away, unmounted or made again in the middle of the run. Put it back and "
                "resume the run, or begin it again."
            )
        # The order is the commit: bundle, output rows, and the ledger last. A crash before the
        # ledger leaves files to which no row refers, and no reader looks at them. The other way
        # round a row would promise files that never come.
        if not self._bundle.is_empty:
            store.create(run_path(run_id, self._bundle.path), self._bundle.close())
        # A Parquet file has one schema. Functions mostly return the same for all partitions; each
        # further schema gets a file of its own.
        for number, (schema, parts) in enumerate(self._outputs.items()):
            folder = KINDS[self._execution.kind].outputs
            path = self._name(folder, "parquet" if number == 0 else f"{number}.parquet")
            offset = 0
            in_file = sum(part.num_rows for _, part in parts)
            table = pa.concat_tables([part for _, part in parts]).cast(schema)
            content = write_table(table)
            sha256 = sha256_of(content)
            for place, part in parts:
                self._rows[place] = replace(
                    self._rows[place],
                    rows_file=path,
                    rows_offset=offset,
                    rows_count=part.num_rows,
                    rows_in_file=in_file,
                    rows_sha256=sha256,
                )
                offset += part.num_rows
            store.create(run_path(run_id, path), content)
        tables = list(self._carried)
        if self._rows:
            keys = self._keys.take(pa.array(self._indices, pa.int64()))
            tables.insert(0, segment_table(keys, self._rows))
        ledger = pa.concat_tables(tables, promote_options="permissive")
        path = run_path(run_id, self._name("ledger", "parquet"))
        store.create(path, write_segment(store, ledger, path, is_signed=is_signed))
        # Short at first, so that a crash soon after the start loses little; then longer and longer,
        # so that a long run does not leave thousands of small files.
        self._interval_s = min(2 * self._interval_s, LONGEST_SEGMENT_S)
        self._open()
