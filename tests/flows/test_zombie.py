"""A shard executed twice at once, and two drivers on one run: nothing is lost or there twice."""

import os
import secrets
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import distributed
import psutil
import pyarrow as pa
import pyarrow.dataset
import pytest

from partwise.cluster_calls import known_workers
from partwise.engine.assignment import Execution, ShardAssignment, work_file
from partwise.engine.driver.payload import pack_work
from partwise.engine.options import ExecutionOptions
from partwise.engine.worker.shard_run import execution_folder
from partwise.engine.worker.tasks import DaskHost, end_execution, run_shard
from partwise.engine.works import MapWork
from partwise.errors import RunBusyError, RunExistsError, StoreError
from partwise.flows import map_partitions
from partwise.outcomes import RunStatus
from partwise.runs.claim import Claim, Identity, Intent
from partwise.runs.completion import Ending, complete_run
from partwise.runs.run import Run
from partwise.shuffle.plan import shard_rows
from partwise.shuffle.shared_folder import SharedFolder
from partwise.sources.opening import open_source
from partwise.store.store import Store
from partwise.tables.keys.partition_keys import key_columns
from tests.own_cluster import cut_off_others, wait_for

PARTITIONS = 24
SHARDS = 2
ROWS = pa.table(
    {
        "key": [key for key in range(PARTITIONS) for _ in range(2)],
        "y": [float(i) for i in range(2 * PARTITIONS)],
    }
)
EXPECTED = [
    {"key": key, "y": float(2 * key + i), "twice": 2.0 * (2 * key + i)}
    for key in range(PARTITIONS)
    for i in range(2)
]
INTENT = Intent(source_fingerprint="s", inputs_fingerprint="i", code_fingerprint="c")


@dataclass
class Begun:
    """A run that is begun as a flow begins it; its shards are not handed out yet."""

    claim: Claim
    assignments: list[ShardAssignment]
    store: Store
    partitions: int
    token: str

    def complete(self) -> Run:
        ending = Ending(
            partitions=self.partitions,
            unfinished=(),
            stopped=None,
            rows=ROWS.num_rows,
            dropped_rows=0,
            started_at=datetime.now(UTC),
            stages={},
        )
        return complete_run(self.claim, ending)


@contextmanager
def begun(client, folder: Path, nap_s: float, first_segment_s: float = 0.1) -> Iterator[Begun]:
    path = str(folder)

    def rows(data, context):
        with open(f"{path}/calls", "a") as file:
            file.write(f"{context.key}\n")
        time.sleep(nap_s)
        # Between the worker and this process stand its keeper, and what that was forked from.
        worker = psutil.Process(os.getppid()).parent().ppid()
        while os.path.exists(f"{path}/hold-{worker}"):
            time.sleep(0.02)
        context.upload(str(context.key), "key.txt")
        return {"y": data.to_numpy("y"), "twice": 2 * data.to_numpy("y")}

    store = Store.parse(folder / "store")
    columns = key_columns(ROWS.schema, ["key"])
    folder.mkdir(exist_ok=True)
    sharded = shard_rows(open_source(ROWS), columns, SHARDS, str(folder / "rows"))
    token = secrets.token_hex(6)
    with Claim(store, Identity(run_id="run", kind="map", key_columns=columns), "resume") as claim:
        claim.begin(n_shards=SHARDS, intent=INTENT)
        (folder / "shared").mkdir(exist_ok=True)
        shared_folder = SharedFolder(folder / "shared", store, "run", token, shared=True)
        work = pack_work(MapWork(function=rows, key_columns=("key",)), "rows")
        options = ExecutionOptions(first_segment_s=first_segment_s)
        execution = Execution(
            token=token,
            run_id="run",
            kind="map",
            generation=claim.generation,
            store=store,
            key_columns=columns,
            seed=0,
            compatible=claim.compatible,
            options=options,
            limits=options.limits_on(()),
            work=shared_folder.write(work_file(token), work),
        )
        assignments = [
            ShardAssignment(
                execution=execution,
                shard=shard,
                where=shared_folder.where,
                only=None,
                params=None,
                models=None,
            )
            for shard in sharded.shards
        ]
        try:
            yield Begun(claim, assignments, store, sharded.partitions, token)
        finally:
            client.run(end_execution, token)
            assert not any(client.run(has_folder, token).values())


def has_folder(token: str, dask_worker: distributed.Worker) -> bool:
    """Return whether a worker still has the folder of an execution."""
    return os.path.exists(execution_folder(DaskHost(dask_worker), token))


def calls_of(folder: Path) -> Counter[int]:
    path = folder / "calls"
    return Counter(map(int, path.read_text().split())) if path.exists() else Counter()


def submit(client, assignment: ShardAssignment, worker: str) -> distributed.Future:
    key = f"{assignment.number}-{secrets.token_hex(4)}"
    return client.submit(run_shard, assignment, key=key, workers=[worker], pure=False)


def check(run: Run) -> None:
    run = run.refresh()
    assert run.status is RunStatus.SUCCESS
    assert run.counts == {"DONE": PARTITIONS}
    assert run.partitions["key"].to_pylist() == list(range(PARTITIONS))
    for key in range(PARTITIONS):
        assert run.artifact(key, "key.txt") == str(key)
    order = [("key", "ascending"), ("y", "ascending")]
    assert run.predictions().sort_by(order).to_pylist() == EXPECTED
    everything = pyarrow.dataset.dataset(f"{run.path}/outputs", format="parquet").to_table()
    assert everything.sort_by(order).to_pylist() == EXPECTED


def test_a_shard_executed_twice_at_once_loses_and_doubles_nothing(dask_client, tmp_path) -> None:
    pids = dask_client.run(os.getpid)
    workers = list(pids)[:2]
    holds = [tmp_path / f"hold-{pids[worker]}" for worker in workers]
    with begun(dask_client, tmp_path, nap_s=0.03) as run:
        for hold in holds:
            hold.touch()
        twice = [
            submit(dask_client, assignment, worker)
            for assignment in run.assignments
            for worker in workers
        ]
        # Else one might be done before the other's child process has started.
        while calls_of(tmp_path).total() < len(workers):
            time.sleep(0.02)
        for hold in holds:
            hold.unlink()
        for future in twice:
            assert future.result().complete
        ended = run.complete()
    counted = calls_of(tmp_path)
    assert max(counted.values()) == 2, "they were to overlap"
    assert set(counted) == set(range(PARTITIONS))
    check(ended)
    # A later resume goes by what is left of the two.
    with begun(dask_client, tmp_path, nap_s=0.03) as run:
        for future in [submit(dask_client, one, workers[0]) for one in run.assignments]:
            future.result()
        check(run.complete())


def test_a_zombie_that_ends_after_the_run_writes_nothing_more(dask_client, tmp_path) -> None:
    pids = dask_client.run(os.getpid)
    [(slow, slow_pid), (fast, _)] = list(pids.items())[:2]
    with begun(dask_client, tmp_path, nap_s=0.05) as run:
        [first, second] = run.assignments
        submit(dask_client, second, fast).result()
        started = calls_of(tmp_path).total()
        zombie = submit(dask_client, first, slow)
        while calls_of(tmp_path).total() < started + 4:
            time.sleep(0.01)
        hold = tmp_path / f"hold-{slow_pid}"
        hold.touch()
        submit(dask_client, first, fast).result()
        ended = run.complete()
        files = run.store.list("runs/run/")
        hold.unlink()
        distributed.wait(zombie)
        assert isinstance(zombie.exception(), RunBusyError)
        assert run.store.list("runs/run/") == files
    check(ended)


def test_a_shard_after_one_that_the_store_refused_is_its_own(dask_client, tmp_path) -> None:
    worker = next(iter(known_workers(dask_client)))
    with begun(dask_client, tmp_path, nap_s=0.05) as run:
        [first, second] = run.assignments
        obstacle = Path(run.store.url, "runs/run/ledger")
        obstacle.touch()
        refused = submit(dask_client, first, worker)
        assert isinstance(refused.exception(), StoreError)
        obstacle.unlink()
        # The child process is still busy with the first one, of which it was not heard to the end.
        for assignment in (second, first):
            submit(dask_client, assignment, worker).result()
        check(run.complete())


def test_shards_of_a_driver_that_is_gone_commit_and_leave_their_worker(
    dask_client, tmp_path
) -> None:
    worker, pid = next(iter(dask_client.run(os.getpid).items()))
    hold = tmp_path / f"hold-{pid}"
    # Nothing is committed before its driver is gone.
    with begun(dask_client, tmp_path, nap_s=0.05, first_segment_s=600) as run:
        with distributed.Client(dask_client.scheduler.address, set_as_default=False) as driver:
            lost = [submit(driver, one, worker) for one in run.assignments]
            while calls_of(tmp_path).total() < 4:
                time.sleep(0.01)
            hold.touch()
        del lost
        # It held its partition for ever; and nobody has told the worker to tidy up.
        wait_for(
            lambda: not dask_client.run(has_folder, run.token, workers=[worker])[worker],
            "the worker goes on with the work of nobody",
        )
        before = calls_of(tmp_path).total()
        ledger = pyarrow.dataset.dataset(f"{run.store.url}/runs/run/ledger", format="parquet")
        committed = ledger.count_rows()
        assert committed > 0
        hold.unlink()
        for one in run.assignments:
            assert submit(dask_client, one, worker).result().complete
        check(run.complete())
    # What was committed is not done again, and what was not is.
    assert calls_of(tmp_path).total() == PARTITIONS + before - committed


def test_a_driver_that_finds_its_scheduler_again_goes_on(cluster, dask_client, tmp_path) -> None:
    calls = str(tmp_path / "calls")

    def rows(data, context):
        with open(calls, "a") as file:
            file.write(f"{context.key}\n")
        time.sleep(0.05)

    execution = ExecutionOptions(n_shards=SHARDS, max_shard_starts=1, first_segment_s=0.1)
    given = {"run_id": "one", "store": tmp_path / "store", "cluster": cluster}
    with ThreadPoolExecutor(1) as executor:
        working = executor.submit(map_partitions, ROWS, "key", rows, execution=execution, **given)
        for cut in (1, 2):
            enough = cut * PARTITIONS // 3
            wait_for(lambda n=enough: calls_of(tmp_path).total() >= n or working.done(), "no calls")
            cut_off_others(dask_client)
        run = working.result()
    assert run.counts == {"DONE": PARTITIONS}
    # What is not committed yet is begun again, for each cut once more.
    assert max(calls_of(tmp_path).values()) <= 3


def test_a_second_driver_is_refused_while_the_first_works(cluster, tmp_path) -> None:
    flag = tmp_path / "go"
    path = str(flag)

    def wait_for_flag(data, context):
        while not os.path.exists(path):
            time.sleep(0.02)

    def start(**arguments) -> Run:
        given = {"run_id": "one", "store": tmp_path / "store", "cluster": cluster}
        return map_partitions(ROWS, "key", wait_for_flag, **(given | arguments))

    with ThreadPoolExecutor(1) as executor:
        first = executor.submit(start)
        try:
            generation = tmp_path / "store/runs/one/generations/0001.json"
            # One that has failed says so below; it would never begin a generation.
            wait_for(lambda: generation.exists() or first.done(), "the first has not begun", 240)
            assert not first.done(), first.result()
            with pytest.raises(RunBusyError, match="one is worked on by process"):
                start(on_existing_artifacts="resume")
            with pytest.raises(RunBusyError, match="one is worked on by process"):
                start(on_existing_artifacts="overwrite")
            with pytest.raises(RunExistsError, match=r"'one' exists in .*IN_PROGRESS"):
                start()
            assert Run.open("one", tmp_path / "store").generation == 1
        finally:
            flag.touch()
    ended = first.result()
    assert ended.status is RunStatus.SUCCESS
    assert ended.generation == 1


def test_two_drivers_that_begin_a_new_run_at_once(tmp_path) -> None:
    identity = Identity(run_id="new", kind="map", key_columns=key_columns(ROWS.schema, ["key"]))
    store = Store.parse(tmp_path)
    with Claim(store, identity, "error") as first:
        with (
            pytest.raises(RunExistsError, match="'new' was claimed by another process"),
            Claim(store, identity, "error"),
        ):
            pass
        with (
            pytest.raises(RunBusyError, match="new is worked on"),
            Claim(store, identity, "resume"),
        ):
            pass
        first.begin(n_shards=2, intent=INTENT)
    assert Run.open("new", store).document.n_shards == 2
    assert Run.open("new", store).generation == 1
