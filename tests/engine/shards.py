"""A shard that runs in a test, without Dask and Prefect: a real child process, a real store."""

import secrets
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgpack
import pyarrow as pa

from partwise.engine.assignment import (
    Execution,
    ShardAssignment,
    ShardProgress,
    ShardReceipt,
    work_file,
)
from partwise.engine.driver.payload import pack_work
from partwise.engine.options import ExecutionOptions
from partwise.engine.worker.child import discard_child, end_marked
from partwise.engine.worker.shard_run import run_on
from partwise.engine.works import MapWork, Work
from partwise.runs.claim import Claim, Identity, Intent
from partwise.runs.completion import complete_run
from partwise.runs.run import Run
from partwise.shuffle.plan import shard_rows
from partwise.shuffle.shared_folder import SharedFolder
from partwise.sources.opening import open_source
from partwise.store.store import Store
from partwise.tables.keys.partition_keys import key_columns
from tests.run_maker import ending


class TestHost:
    """A host in this process, which keeps what the driver would be sent."""

    __test__ = False

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = str(folder)
        self.name, self.address = "test", "tcp://test"
        self.events: list[ShardProgress] = []
        self.timers: list[threading.Timer] = []

    def log_event(self, topic: str, message: dict[str, Any]) -> None:
        # Dask takes plain values only: a text of an Enum is none.
        msgpack.packb(message, strict_types=True)
        self.events.append(ShardProgress.from_message(message))

    def call_later(self, seconds: float, function: Callable[[], None]) -> None:
        self.timers.append(threading.Timer(seconds, function))
        self.timers[-1].start()

    @property
    def counts(self) -> Counter[str]:
        total: Counter[str] = Counter()
        for progress in list(self.events):
            total.update(progress.counts)
        return total

    def close(self) -> None:
        for timer in self.timers:
            timer.cancel()
            timer.join()


class ShardOfRun:
    """Runs all rows of a table as the one shard of a run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.store = Store.parse(folder / "store")
        self.host = TestHost(folder / "host")

    @contextmanager
    def assigned(self, table: Any, work: Work, options: ExecutionOptions):
        """Begin a generation of the run, and give the shard as the driver hands it out."""
        source = open_source(table)
        columns = key_columns(source.schema, ["key"])
        identity = Identity(run_id="run", kind="map", key_columns=columns)
        token = secrets.token_hex(6)
        folder = self.folder / token
        (folder / "shared").mkdir(parents=True)
        sharded = shard_rows(source, columns, 1, folder / "shared")
        shared = SharedFolder(folder / "shared", self.store, "run", token, shared=True)
        with Claim(self.store, identity, "resume") as claim:
            intent = Intent(source_fingerprint="s", inputs_fingerprint="i", code_fingerprint="c")
            claim.begin(n_shards=1, intent=intent)
            execution = Execution(
                token=token,
                run_id="run",
                kind="map",
                generation=claim.generation,
                store=self.store,
                key_columns=columns,
                seed=0,
                compatible=claim.compatible,
                options=options,
                limits=options.limits_on(()),
                work=shared.write(work_file(token), pack_work(work, "work")),
            )
            (shard,) = sharded.shards
            try:
                yield (
                    claim,
                    ShardAssignment(
                        execution=execution,
                        shard=shard,
                        where=shared.where,
                        only=None,
                        params=None,
                        models=None,
                    ),
                )
            finally:
                discard_child()
                end_marked(token)

    def run(
        self,
        function: Callable[..., Any],
        table: Any,
        is_stopped: Callable[[], bool] = lambda: False,
        complete: bool = True,
        **options: Any,
    ) -> tuple[ShardReceipt, Run]:
        """Run a function on each partition, and return the receipt and the run."""
        work = MapWork(function=function, key_columns=("key",))
        options = {"retry_backoff_s": 0.01, **options}
        with self.assigned(table, work, ExecutionOptions(**options)) as (claim, assignment):
            receipt = run_on(self.host, assignment, is_stopped)
            if complete:
                complete_run(claim, ending(receipt.partitions))
        return receipt, Run.open("run", self.store)


def table_of(**values: float) -> pa.Table:
    """Return a table with one row for each key."""
    return pa.table({"key": list(values), "value": [float(value) for value in values.values()]})
