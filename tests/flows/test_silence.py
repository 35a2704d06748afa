"""Workers, schedulers, children, servers and stores that stop answering: nothing waits for ever."""

import os
import re
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from distributed import Client

from partwise.engine.options import ExecutionOptions
from partwise.errors import ClusterError
from partwise.flows import map_partitions
from partwise.outcomes import RunStatus
from partwise.runs.run import Run
from tests.own_cluster import START_S, OwnCluster, own_cluster, wait_for

PARTITIONS = 40
ROWS = pa.table(
    {
        "key": [key for key in range(PARTITIONS) for _ in range(2)],
        "y": [float(i) for i in range(2 * PARTITIONS)],
    }
)
OPTIONS = ExecutionOptions(n_shards=6, first_segment_s=0.2, silence_s=3.0, report_interval_s=0.5)


def twice(folder: Path) -> Callable[..., object]:
    path = str(folder / "calls")

    def rows(data, context):
        with open(path, "a") as file:
            file.write(f"{context.key}\n")
        time.sleep(0.1)
        return {"twice": 2 * data.to_numpy("y")}

    return rows


def calls(folder: Path) -> Counter[int]:
    path = folder / "calls"
    return Counter(map(int, path.read_text().split())) if path.exists() else Counter()


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OwnCluster]:
    with own_cluster(tmp_path_factory.mktemp("cluster"), nanny=False) as cluster:
        yield cluster


@pytest.fixture
def cluster(own: OwnCluster) -> Iterator[OwnCluster]:
    """Two workers that nobody has stopped, and that the scheduler has not let go."""
    own.commands = [worker for worker in own.commands if worker.poll() is None]
    own.add(2 - len(own.commands), nanny=False)
    with Client(own.address) as client:
        client.wait_for_workers(2, timeout=START_S)
    yield own
    own.scheduler.send_signal(signal.SIGCONT)
    with Client(own.address, timeout=START_S) as client:
        known = client.run(os.getpid, on_error="ignore").values()
    for worker in own.commands:
        if worker.pid not in known:
            worker.kill()
            worker.wait()


def check(run: Run) -> None:
    assert run.status is RunStatus.SUCCESS
    assert run.counts == {"DONE": PARTITIONS}
    assert run.partitions["key"].to_pylist() == list(range(PARTITIONS))
    twice = run.predictions().sort_by("twice")["twice"].to_pylist()
    assert twice == [2.0 * i for i in range(2 * PARTITIONS)]


def during(act: Callable[[], None], work: Callable[[], Run]) -> Run:
    """Do something on another thread while a flow works."""
    thread = threading.Thread(target=act)
    thread.start()
    try:
        return work()
    finally:
        thread.join()


@pytest.mark.slow
@pytest.mark.parametrize("thawed", ["in mid-run", "after the run"])
def test_the_work_of_a_stopped_worker_is_done_by_others(cluster, tmp_path, caplog, thawed) -> None:
    frozen = []
    caplog.set_level("INFO", logger="prefect.flow_runs")

    def stop() -> None:
        wait_for(lambda: calls(tmp_path).total() >= 6, "it works")
        frozen.append(cluster.workers()[0])
        frozen[0].suspend()
        wait_for(lambda: "others take over its work" in caplog.text, "it is let go")
        if thawed == "in mid-run":
            frozen[0].resume()

    run = during(
        stop,
        lambda: map_partitions(
            ROWS,
            "key",
            twice(tmp_path),
            run_id=f"silent-{thawed[:2]}",
            store=tmp_path / "store",
            execution=OPTIONS,
            cluster=cluster.block,
        ),
    )
    check(run)
    assert max(calls(tmp_path).values()) <= 2
    files = run.store.list(f"runs/{run.run_id}/")
    if thawed == "after the run":
        frozen[0].resume()
        # It ends by itself: the scheduler has dropped it, and nobody waits for what it does.
        frozen[0].wait(60)
    check(run.refresh())
    # Stopped in the middle of a commit, it has written that one to its end, which nobody reads.
    late = sorted(set(run.store.list(f"runs/{run.run_id}/")) - set(files))
    assert len({path.rpartition("/")[2].split(".")[0] for path in late}) <= 1, late
    assert set(files) <= set(run.store.list(f"runs/{run.run_id}/"))
    # What it said last, before it was stopped: a partition's run, or what comes before that.
    assert re.search(r"shard \d: .+ since [\d.]+ s on the worker tcp", caplog.text)


@pytest.mark.slow
def test_time_for_which_all_stood_still_counts_against_no_partition(cluster, tmp_path) -> None:
    def stop() -> None:
        wait_for(lambda: calls(tmp_path).total() >= 4, "it works")
        everybody = [*cluster.workers(), *cluster.children()]
        for process in everybody:
            process.suspend()
        time.sleep(4)
        for process in everybody:
            process.resume()

    options = OPTIONS.model_copy(update={"timeout_s": 2.0, "silence_s": 60.0, "max_retries": 0})
    run = during(
        stop,
        lambda: map_partitions(
            ROWS,
            "key",
            twice(tmp_path),
            run_id="stood-still",
            store=tmp_path / "store",
            execution=options,
            cluster=cluster.block,
        ),
    )
    check(run)
    assert max(calls(tmp_path).values()) == 1


@pytest.mark.slow
def test_a_stopped_scheduler_ends_the_run_with_a_sentence(cluster, tmp_path, monkeypatch) -> None:
    from partwise.engine.driver import cluster_watch

    monkeypatch.setattr(cluster_watch, "SCHEDULER_S", 1.0)

    def stop() -> None:
        wait_for(lambda: calls(tmp_path).total() >= 4, "it works")
        cluster.stop_scheduler()

    with pytest.raises(ClusterError, match="scheduler has not answered"):
        during(
            stop,
            lambda: map_partitions(
                ROWS,
                "key",
                twice(tmp_path),
                run_id="no-scheduler",
                store=tmp_path / "store",
                execution=OPTIONS,
                cluster=cluster.block,
            ),
        )
    assert Run.open("no-scheduler", tmp_path / "store").status is RunStatus.IN_PROGRESS
