"""A maker of runs: commits what workers would, without any worker."""

import secrets
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa

from partwise.choices import OnExisting
from partwise.outcomes import Stop
from partwise.runs.bundle import BundleWriter
from partwise.runs.claim import Claim, Identity, Intent
from partwise.runs.completion import Ending, complete_run
from partwise.runs.contents import write_segment
from partwise.runs.documents import (
    execution_token,
    run_path,
    segment_file,
    sha256_of,
)
from partwise.runs.kinds import KINDS, RunKind
from partwise.runs.ledger import LedgerRow, segment_table, write_table
from partwise.runs.run import Run
from partwise.store.signing import is_configured
from partwise.store.store import Store
from partwise.tables.keys.partition_keys import key_columns, partition_ids

TEXTS = pa.schema([("key", pa.string())])


def fingerprint_of(key: Any, value: float) -> str:
    """Return the fingerprint that a partition's ledger row has."""
    return f"of {key} {value}"


def ending(partitions: int, stopped: Stop | None = None) -> Ending:
    """Return the end of an execution that worked on so many partitions."""
    return Ending(
        partitions=partitions,
        unfinished=(),
        stopped=stopped,
        rows=partitions,
        dropped_rows=0,
        started_at=datetime.now(UTC),
        stages={},
    )


class RunMaker:
    """Commits segments of a run as workers do, without any worker.

    A partition is (key, status, what its model and its output rows hold). All are in shard 0. Keys
    are of the types in `keys`, tuples where these are several.
    """

    def __init__(
        self,
        store: Store,
        run_id: str = "run",
        kind: RunKind = "map",
        serde: str = "",
        metric: str = "value",
        keys: pa.Schema = TEXTS,
    ) -> None:
        self.store = store
        self.serde = serde
        self.metric = metric
        self.keys = keys
        self.columns = key_columns(keys, keys.names)
        self.identity = Identity(run_id=run_id, kind=kind, key_columns=self.columns)
        self._claim: Claim | None = None

    def begin(
        self,
        on_existing: OnExisting = "resume",
        code: str | None = "c",
        inputs: str | None = "i",
        partitions: int | None = None,
        keys: Sequence[Any] | None = None,
        n_shards: int = 1,
        **known: Any,
    ) -> Claim:
        """Begin a generation; `keys` are written down as those of the partitions to work on.

        `known` is what else is known of the call, as fields of an `Intent`.
        """
        claim = self._claim = Claim(self.store, self.identity, on_existing)
        claim.__enter__()
        intent = Intent(
            source_fingerprint="s", inputs_fingerprint=inputs, code_fingerprint=code, **known
        )
        table = None if keys is None else self._keys_of(keys)
        claim.begin(
            n_shards=n_shards,
            intent=intent,
            partitions=partitions if keys is None else len(keys),
            keys=table,
            rows=None if keys is None else np.arange(1, len(keys) + 1),
        )
        return claim

    def commit(
        self,
        *partitions: tuple[Any, str, float],
        generation: int | None = None,
        carried: pa.Table | None = None,
    ) -> str:
        """Commit one segment of a new execution, and return its token."""
        generation = generation or self.claim.generation
        token = execution_token(generation, secrets.token_hex(4))
        keys = self._keys_of([key for key, _, _ in partitions])
        names = partition_ids(keys, self.columns)
        bundle = BundleWriter(f"bundles/{segment_file(0, token, 1, 'zip')}")
        output = f"{KINDS[self.identity.kind].outputs}/{segment_file(0, token, 1, 'parquet')}"
        done = [(key, value) for key, status, value in partitions if status == "DONE"]
        outputs = b""
        if done:
            all_keys, values = zip(*done, strict=True)
            outputs = write_table(self._keys_of(all_keys).append_column("value", pa.array(values)))
        rows = []
        for name, (key, status, value) in zip(names, partitions, strict=True):
            ledger_row = LedgerRow(
                partition_id=name,
                shard=0,
                generation=generation,
                status=status,
                attempts=1,
                rows=1,
                fingerprint=fingerprint_of(key, value),
                reason="too few rows" if status == "SKIPPED" else None,
                error_type=None if status in ("DONE", "SKIPPED") else "ValueError",
                error_message=None if status in ("DONE", "SKIPPED") else f"bad {key}",
                error_fingerprint=None if status in ("DONE", "SKIPPED") else "f",
                metrics={self.metric: value},
            )
            if status == "DONE":
                content = f"{key} {value}".encode()
                ledger_row = replace(
                    ledger_row,
                    artifacts=(bundle.add(name, "note.txt", content, self.serde),),
                    rows_file=output,
                    rows_offset=[one for one, _ in done].index(key),
                    rows_count=1,
                    rows_in_file=len(done),
                    rows_sha256=sha256_of(outputs),
                )
            rows.append(ledger_row)
        if done:
            self._create(bundle.path, bundle.close())
            self._create(output, outputs)
        tables = [] if carried is None else [carried]
        if rows:
            tables.append(segment_table(keys, rows))
        path = f"ledger/{segment_file(0, token, 1, 'parquet')}"
        place = run_path(self.identity.run_id, path)
        store = self.store
        segment = write_segment(
            store, pa.concat_tables(tables), place, is_signed=is_configured(store)
        )
        self._create(path, segment)
        return token

    def _keys_of(self, keys: Sequence[Any]) -> pa.Table:
        rows = [key if isinstance(key, tuple) else (key,) for key in keys]
        lists = zip(*rows, strict=True) if rows else [()] * len(self.keys)
        arrays = [pa.array(each, kind) for each, kind in zip(lists, self.keys.types, strict=True)]
        return pa.table(arrays, schema=self.keys)

    def end(self, partitions: int, stopped: Stop | None = None) -> Run:
        """Complete the generation."""
        claim = self.claim
        run = complete_run(claim, ending(partitions, stopped))
        self.leave()
        return run

    def leave(self) -> None:
        """Let go of the run, complete or not."""
        self.claim.__exit__(None, None, None)
        self._claim = None

    def die(self) -> None:
        """Let go of the run as a process does that is killed: whoever looks finds it gone."""
        if self._claim is not None:
            self.leave()

    def open(self) -> Run:
        return Run.open(self.identity.run_id, self.store)

    @property
    def claim(self) -> Claim:
        """That of the generation at work."""
        assert self._claim is not None, "begin() first"
        return self._claim

    def _create(self, path: str, content: bytes) -> None:
        self.store.create(run_path(self.identity.run_id, path), content)
