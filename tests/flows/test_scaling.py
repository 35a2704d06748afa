"""CPUs and GPUs of a partition on real clusters: how many run at once, and what each is told."""

import os
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import polars as pl
import psutil
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from distributed import Client, Worker
from distributed.deploy.local import LocalCluster as DaskCluster

from partwise.blocks import LocalCluster, RemoteCluster
from partwise.engine.options import ExecutionOptions
from partwise.errors import InputError
from partwise.flows import map_partitions
from partwise.flows.running import execute_shards
from partwise.runs.run import Run

TABLE = pa.table({"key": list(range(12))})


def observe(data, context):
    """Return when a partition was at work, where, and what it is told of threads and GPUs."""
    began = time.time()
    time.sleep(0.1)
    return pa.table(
        {
            "began": [began],
            "ended": [time.time()],
            "worker": [psutil.Process().ppid()],
            "threads": [context.threads],
            "arrow": [pa.cpu_count()],
            "polars": [pl.thread_pool_size()],
            "openmp": [os.environ["OMP_NUM_THREADS"]],
            "gpus": [os.environ.get("CUDA_VISIBLE_DEVICES", "unset")],
        }
    )


def observed(run: Run) -> pa.Table:
    table = run.predictions()
    assert sorted(table["key"].to_pylist()) == list(range(12))
    return table


def most_at_once(table: pa.Table) -> int:
    times = [(time, 1) for time in table["began"].to_pylist()]
    times += [(time, -1) for time in table["ended"].to_pylist()]
    at_once = most = 0
    for _, change in sorted(times):
        at_once += change
        most = max(most, at_once)
    return most


def columns(table: pa.Table, *names: str) -> set[tuple]:
    return set(zip(*(table[name].to_pylist() for name in names), strict=True))


@pytest.fixture(scope="module")
def workers_of_two() -> Iterator[DaskCluster]:
    with DaskCluster(
        n_workers=2,
        threads_per_worker=2,
        host="127.0.0.1",
        dashboard_address="127.0.0.1:0",
        memory_limit=0,
    ) as cluster:
        yield cluster


@pytest.fixture
def four_threads(workers_of_two: DaskCluster) -> RemoteCluster:
    """A scheduler with two workers of two threads: what a partition uses is not Dask's to know.

    Of all tests: a worker that one of them has ended is replaced here, and one that joined is gone.
    """
    workers_of_two.scale(2)
    with Client(workers_of_two) as client:
        client.wait_for_workers(2)
        assert list(client.nthreads().values()) == [2, 2]
    return RemoteCluster(address=workers_of_two.scheduler_address, shares_filesystem=True)


@pytest.mark.slow
def test_partitions_of_two_cpus_run_half_as_many_at_once(four_threads, tmp_path):
    def run(cpus: int) -> pa.Table:
        options = ExecutionOptions(cpus=cpus, n_shards=12)
        return observed(
            map_partitions(
                TABLE,
                "key",
                observe,
                run_id=f"cpus-{cpus}",
                store=tmp_path,
                execution=options,
                cluster=four_threads,
            )
        )

    two = run(2)
    assert columns(two, "threads", "arrow", "polars", "openmp") == {(2, 2, 2, "2")}
    assert most_at_once(two) == 2
    # More than one worker has: the two make one slot.
    four = run(4)
    assert most_at_once(four) == 1
    assert columns(four, "threads", "arrow") == {(4, 4)}


def test_one_cpu_is_what_workers_have_threads_for(cluster, tmp_path):
    table = observed(
        map_partitions(TABLE, "key", observe, run_id="one", store=tmp_path, cluster=cluster)
    )
    assert columns(table, "threads", "arrow", "polars", "gpus") == {(1, 1, 1, "unset")}
    assert most_at_once(table) <= 2


@pytest.mark.slow
def test_each_partition_has_a_gpu_to_itself(four_threads, tmp_path):
    with Client(four_threads.address) as client:
        client.run(lambda: os.environ.update(CUDA_VISIBLE_DEVICES="4,7,9"))
    try:
        check_each_has_a_gpu(four_threads, tmp_path)
    finally:
        with Client(four_threads.address) as client:
            client.run(lambda: os.environ.pop("CUDA_VISIBLE_DEVICES"))


def check_each_has_a_gpu(four_threads, tmp_path) -> None:
    table = observed(
        map_partitions(
            TABLE,
            "key",
            observe,
            run_id="gpus",
            store=tmp_path,
            execution=ExecutionOptions(gpus=1, n_shards=12),
            cluster=four_threads,
        )
    )
    assert {gpus for (gpus,) in columns(table, "gpus")} <= {"4", "7", "9"}
    assert most_at_once(table) <= 3
    for gpus in {"4", "7", "9"}:
        mine = table.filter(pc.equal(table["gpus"], gpus))
        assert most_at_once(mine) <= 1

    hidden = map_partitions(
        TABLE,
        "key",
        observe,
        run_id="hidden",
        store=tmp_path,
        execution=ExecutionOptions(gpus=0, n_shards=2),
        cluster=four_threads,
    )
    assert columns(observed(hidden), "gpus") == {("",)}


def test_more_than_a_machine_has_is_refused_and_nothing_is_begun(cluster, tmp_path):
    with pytest.raises(InputError, match=r"3 CPUs \(cpus\), .* cluster has 2 CPUs"):
        map_partitions(
            TABLE,
            "key",
            observe,
            run_id="large",
            store=tmp_path,
            execution=ExecutionOptions(cpus=3),
            cluster=cluster,
        )
    with pytest.raises(InputError, match=r"99 GPUs \(gpus\), .* cluster has \d+ GPU"):
        map_partitions(
            TABLE,
            "key",
            observe,
            run_id="large",
            store=tmp_path,
            execution=ExecutionOptions(gpus=99),
            cluster=cluster,
        )


@pytest.mark.slow
def test_a_machine_that_joins_later_counts_its_slots_itself(four_threads, tmp_path, monkeypatch):
    """The driver has counted without 127.0.0.2."""
    counted = execute_shards.workers_at_most

    with Client(four_threads.address) as client:
        known = counted(four_threads, client)

        async def join(dask_worker: Worker) -> None:
            worker = await Worker(
                dask_worker.scheduler.address, host="127.0.0.2", nthreads=2, memory_limit=0
            )
            dask_worker._partwise_test_worker = worker

        async def leave(dask_worker: Worker) -> None:
            await dask_worker._partwise_test_worker.close()

        client.run(join, workers=[known[0].address])
        client.wait_for_workers(3)
    monkeypatch.setattr(execute_shards, "workers_at_most", lambda *_: known)
    table = observed(
        map_partitions(
            TABLE,
            "key",
            observe,
            run_id="late",
            store=tmp_path,
            execution=ExecutionOptions(cpus=2, n_shards=12),
            cluster=four_threads,
        )
    )
    assert most_at_once(table) <= 3
    hosts = Run.open("late", tmp_path).partitions["host"].to_pylist()
    assert len(set(hosts)) > 1
    with Client(four_threads.address) as client:
        client.run(leave, workers=[known[0].address])


@pytest.mark.slow
def test_a_growing_cluster_grows_and_shrinks_and_runs_each_partition_once(tmp_path, monkeypatch):
    seen: list[int] = []
    started = LocalCluster.client

    @contextmanager
    def watched(self):
        with started(self) as client:
            yield client
            # The run is done: what is idle goes again.
            deadline = time.monotonic() + 30
            while len(client.nthreads()) > 1 and time.monotonic() < deadline:
                time.sleep(0.1)
            seen.append(len(client.nthreads()))

    monkeypatch.setattr(LocalCluster, "client", watched)
    table = observed(
        map_partitions(
            TABLE,
            "key",
            observe_slowly,
            run_id="growing",
            store=tmp_path,
            execution=ExecutionOptions(n_shards=12),
            cluster=LocalCluster(max_workers=3),
        )
    )
    assert 1 < len(set(table["worker"].to_pylist())) <= 3
    assert seen == [1]
    assert Counter(table["key"].to_pylist()) == dict.fromkeys(range(12), 1)


def observe_slowly(data, context):
    """Take long enough for other workers to start meanwhile."""
    time.sleep(1.0)
    return observe(data, context)


@pytest.mark.slow
def test_a_worker_that_is_retired_at_work_loses_no_partition(four_threads, tmp_path):
    def retire() -> None:
        with Client(four_threads.address) as client:
            while not any(client.processing().values()):
                time.sleep(0.05)
            time.sleep(1.5)
            client.retire_workers(n=1)

    with ThreadPoolExecutor(1) as thread:
        retired = thread.submit(retire)
        run = map_partitions(
            TABLE,
            "key",
            observe_slowly,
            run_id="retired",
            store=tmp_path,
            execution=ExecutionOptions(n_shards=4),
            cluster=four_threads,
        )
        retired.result(timeout=60)
    assert run.counts == {"DONE": 12}
    observed(run)
