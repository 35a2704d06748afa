"""Runs with ledgers of any content, made without any worker."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from partwise.outcomes import Stop
from partwise.runs.claim import Claim, Identity, Intent
from partwise.runs.completion import Ending, complete_run
from partwise.runs.documents import execution_token, run_path, segment_file
from partwise.runs.kinds import RunKind
from partwise.runs.ledger import LedgerRow, segment_table, write_table
from partwise.runs.run import Run
from partwise.store.store import Store
from partwise.tables.keys.partition_keys import key_columns, partition_ids

BEGAN = datetime(2026, 11, 21, 3, 0, tzinfo=UTC)


def at(seconds: float) -> datetime:
    """A time that many seconds after the run began."""
    return BEGAN + timedelta(seconds=seconds)


class LedgerMaker:
    """Makes generations of one run, each of the rows it is given.

    A row is a mapping of `LedgerRow`'s fields; "key" is its key, a tuple for several columns.
    """

    def __init__(self, store: Store, kind: RunKind = "train", names: Sequence[str] = ("key",)):
        self.store = store
        self.kind: RunKind = kind
        self.names = list(names)

    def begin(self, rows: Sequence[dict[str, Any]], **intent: Any) -> tuple[Claim, pa.Table]:
        """Commit a generation that is not complete."""
        keys = self._keys(rows)
        columns = key_columns(keys.schema, self.names)
        identity = Identity(run_id="run", kind=self.kind, key_columns=columns)
        claim = Claim(self.store, identity, "overwrite")
        claim.__enter__()
        wanted: dict[str, Any] = {
            "source_fingerprint": "5" * 64,
            "inputs_fingerprint": "1" * 64,
            "code_fingerprint": "c" * 64,
        }
        claim.begin(n_shards=4, intent=Intent(**{**wanted, **intent}))
        names = partition_ids(keys, columns)
        made = [
            LedgerRow(
                **{
                    "partition_id": name,
                    "shard": 0,
                    "generation": claim.generation,
                    "status": "DONE",
                    "rows": 10,
                    "finished_at": at(10),
                    **{field: value for field, value in row.items() if field != "key"},
                }
            )
            for name, row in zip(names, rows, strict=True)
        ]
        table = segment_table(keys, made)
        if rows:
            token = execution_token(claim.generation, "00000000")
            path = run_path("run", "ledger", segment_file(0, token, 1, "parquet"))
            self.store.create(path, write_table(table))
        return claim, table

    def complete(
        self, rows: Sequence[dict[str, Any]], stopped: Stop | None = None, **intent: Any
    ) -> Run:
        """Make a complete generation."""
        claim, _ = self.begin(rows, **intent)
        ending = Ending(
            partitions=len(rows),
            unfinished=(),
            stopped=stopped,
            rows=sum(row.get("rows") or 0 for row in rows),
            dropped_rows=0,
            started_at=BEGAN,
            stages={"cluster": 1.5, "load": 0.5, "train": 8.0},
        )
        run = complete_run(claim, ending)
        claim.__exit__(None, None, None)
        return run

    def leave(self, rows: Sequence[dict[str, Any]], **intent: Any) -> Run:
        """Make a generation whose process ended before its end."""
        claim, _ = self.begin(rows, **intent)
        claim.__exit__(None, None, None)
        return Run.open("run", self.store)

    def _keys(self, rows: Sequence[dict[str, Any]]) -> pa.Table:
        keys = [row["key"] for row in rows]
        if len(self.names) == 1:
            return pa.table({self.names[0]: pa.array(keys, None if keys else pa.string())})
        return pa.table(dict(zip(self.names, map(list, zip(*keys, strict=True)), strict=True)))


@pytest.fixture
def make_ledger(tmp_path: Path) -> LedgerMaker:
    """A maker of the run "run" in an empty local store."""
    return LedgerMaker(Store.parse(tmp_path / "store"))


@pytest.fixture(scope="session")
def make_ledgers(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., LedgerMaker]:
    """Give a maker of the run "run" in an empty store, as often as it is called."""
    return lambda **options: LedgerMaker(Store.parse(tmp_path_factory.mktemp("store")), **options)
