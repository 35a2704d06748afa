"""Processes killed, interrupted and terminated: what was committed stays and is not run again."""

import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import distributed
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from partwise.cluster_calls import known_workers
from partwise.engine.options import ExecutionOptions
from partwise.flows import map_partitions
from partwise.models.serdes import PickleSerde
from partwise.outcomes import RunStatus
from partwise.runs.contents import read_generation
from partwise.runs.run import Run
from tests.chaos.training import kill_family, wait_for

PARTITIONS = 60
ODD = 30
MARK = "PARTWISE_KILL_TEST"

PREFECT: dict[str, str] = {}
DIRECT = {"PREFECT_API_URL": ""}

SCRIPT = """
import os, sys, time

FOLDER = os.path.dirname(os.path.abspath(__file__))


def fit(data, context):
    with open(f"{FOLDER}/calls", "a") as file:
        file.write(f"{context.run_id}:{context.key}\\n")
    with open(f"{FOLDER}/nap_s") as file:
        time.sleep(float(file.read()))
    return {"mean": float(data.to_numpy("y").mean()), "seed": context.seed}


if __name__ == "__main__":
    # Not above: each worker that is started runs this file again.
    from partwise.blocks import LocalCluster, RemoteCluster
    from partwise.flows import train_models
    from partwise.engine.options import ExecutionOptions
    from partwise.models.serdes import PickleSerde

    rows, store, address, *run_ids = sys.argv[1:]
    cluster = RemoteCluster(address=address, shares_filesystem=True) if address else None
    for run_id in run_ids:
        train_models(
            rows,
            "key",
            fit,
            run_id=run_id,
            store=store,
            serde=PickleSerde(),
            on_existing_artifacts="resume",
            execution=ExecutionOptions(first_segment_s=0.2),
            cluster=cluster or LocalCluster(workers=2),
        )
"""


class Scene:
    """A script that trains sixty models, the processes that it starts, and what they leave."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.store = folder / "store"
        self.mark = uuid.uuid4().hex
        self.script = folder / "script.py"
        self.script.write_text(SCRIPT)
        self.rows = folder / "rows.parquet"
        keys = [key for key in range(PARTITIONS) for _ in range(4)]
        pq.write_table(pa.table({"key": keys, "y": [k * 0.1 for k in range(len(keys))]}), self.rows)

    def start(
        self, *run_ids: str, address: str = "", nap_s: float = 0.1, **environment: str
    ) -> subprocess.Popen[str]:
        (self.folder / "nap_s").write_text(str(nap_s))
        return subprocess.Popen(
            [sys.executable, str(self.script), str(self.rows), str(self.store), address, *run_ids],
            env=os.environ | {MARK: self.mark} | environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            cwd=self.folder,
        )

    def calls(self, run_id: str) -> Counter[int]:
        """How often the function was called for each key, as it told itself."""
        path = self.folder / "calls"
        lines = path.read_text().split() if path.exists() else []
        return Counter(int(line.partition(":")[2]) for line in lines if line.startswith(run_id))

    def committed(self, run_id: str) -> set[int]:
        """The keys that some generation has committed; all of them are of the same code."""
        run = Run.open(run_id, self.store)
        tables = [
            read_generation(run.store, run_id, number).merge()
            for number in range(1, run.generation + 1)
        ]
        rows = [row for table in tables if table is not None for row in table.to_pylist()]
        return {row["key.key"] for row in rows}

    def segments(self, run_id: str) -> int:
        return len(list((self.store / "runs" / run_id).glob("ledger/*.parquet")))

    def processes(self) -> list[psutil.Process]:
        found = []
        for process in psutil.process_iter():
            try:
                if process.environ().get(MARK) == self.mark:
                    found.append(process)
            except psutil.Error:
                continue
        return found

    def starts_workers(self) -> bool:
        """Whether the process is there that workers are forked from, once it has imported all."""
        with suppress(psutil.Error):
            commands = [" ".join(process.cmdline()) for process in self.processes()]
            return any("multiprocessing.forkserver" in command for command in commands)
        return False

    def is_left_alone(self) -> bool:
        """Whether all processes end by themselves, with some patience for a busy machine."""
        return wait_for(lambda: not self.processes())

    def kill(self) -> None:
        for process in self.processes():
            process.kill()


def kill_tree(process: subprocess.Popen[str]) -> None:
    family = psutil.Process(process.pid)
    for member in [family, *family.children(recursive=True)]:
        try:
            member.kill()
        except psutil.NoSuchProcess:
            continue
    process.communicate()


def finish(process: subprocess.Popen[str]) -> str:
    output, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    return output


@pytest.fixture
def scene(tmp_path: Path, prefect_server: str) -> Iterator[Scene]:
    scene = Scene(tmp_path)
    yield scene
    scene.kill()


@pytest.mark.slow
def test_a_killed_run_leaves_nothing_at_work_and_goes_on_from_what_was_committed(
    scene: Scene, cluster
) -> None:
    """Killed with all of its processes; then the driver alone, where there is no server."""
    address = cluster.address
    for already, (way, kill) in enumerate([(PREFECT, kill_tree), (DIRECT, kill_family)]):
        process = scene.start("killed", **way)
        before, started = scene.calls("killed"), scene.segments("killed")
        assert wait_for(
            lambda before=before, started=started: (
                scene.calls("killed").total() >= before.total() + 12
                and scene.segments("killed") >= started + 2
            )
        ), process.communicate()
        kill(process)
        assert scene.is_left_alone()
        run = Run.open("killed", scene.store)
        assert (run.status, run.generation) == (RunStatus.IN_PROGRESS, already + 1)
        assert set(run.counts) == {"DONE", "PENDING"}
        assert 0 < run.counts["DONE"] <= len(scene.committed("killed")) < PARTITIONS

    before = scene.calls("killed")
    kept = scene.committed("killed")
    finish(scene.start("killed", "whole", address=address, nap_s=0))
    ran = scene.calls("killed") - before
    run = Run.open("killed", scene.store)
    assert (run.status, run.generation) == (RunStatus.SUCCESS, 3)
    assert set(ran) == set(range(PARTITIONS)) - kept
    assert set(ran.values()) == {1}
    assert (run.executed, run.kept) == (PARTITIONS - len(kept), len(kept))
    assert run.counts == {"DONE": PARTITIONS}

    whole = Run.open("whole", scene.store)
    for name in whole.partitions["partition_id"].to_pylist():
        model = run.read_artifact(name, PickleSerde().filename)
        assert model == whole.read_artifact(name, PickleSerde().filename)


@pytest.mark.slow
def test_a_killed_driver_leaves_a_cluster_that_stays_to_others(
    scene: Scene, cluster, dask_client
) -> None:
    # Other tests may have left something on the cluster of the session.
    before = dask_client.run(work_on)
    process = scene.start("alone", address=cluster.address)
    assert wait_for(lambda: scene.calls("alone").total() >= 12), process.communicate()
    (scene.folder / "nap_s").write_text("600")
    # Whatever runs now began before, or naps.
    time.sleep(0.3)
    kill_family(process)
    assert wait_for(lambda: is_as_before(dask_client.run(work_on), before))
    ran = scene.calls("alone")
    # All but one partition on each worker.
    assert len(scene.committed("alone")) >= len(ran) - 2
    finish(scene.start("alone", address=cluster.address, nap_s=0))
    assert Run.open("alone", scene.store).counts == {"DONE": PARTITIONS}
    assert (scene.calls("alone") - ran).total() <= PARTITIONS - len(ran) + 2


def work_on(dask_worker: distributed.Worker) -> set[str]:
    """Return what a worker runs, and what executions have left there."""
    left = {name for name in os.listdir(dask_worker.local_directory) if "partwise-" in name}
    return left | {*map(str, dask_worker.active_threads.values())}


def is_as_before(now: dict[str, set[str]], before: dict[str, set[str]]) -> bool:
    return all(work <= before.get(worker, set()) for worker, work in now.items())


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("way", [PREFECT, DIRECT], ids=["prefect", "direct"])
def test_an_interrupted_run_is_cancelled_in_good_order(scene: Scene, cluster, how, way) -> None:
    process = scene.start("cancelled", **way)
    assert wait_for(lambda: scene.calls("cancelled").total() >= 12), process.communicate()
    if how is signal.SIGINT:
        # As a terminal does it.
        os.killpg(process.pid, how)
    else:
        process.send_signal(how)
    _, errors = process.communicate(timeout=60)
    assert process.returncode != 0
    assert scene.is_left_alone()
    lines = errors.splitlines()
    assert lines[-1].startswith("partwise.errors.RunCancelledError: The run 'cancelled'")
    assert len(lines) < 40
    run = Run.open("cancelled", scene.store)
    assert run.status is RunStatus.CANCELLED
    before, kept = scene.calls("cancelled"), scene.committed("cancelled")
    assert run.counts == {"DONE": len(kept), "CANCELLED": PARTITIONS - len(kept)}
    # All but what ran at that moment.
    assert len(before) - 2 <= len(kept)
    if how is signal.SIGTERM:
        return
    finish(scene.start("cancelled", address=cluster.address, nap_s=0, **way))
    ran = scene.calls("cancelled") - before
    assert set(ran) == set(range(PARTITIONS)) - kept
    assert set(ran.values()) == {1}


@pytest.mark.slow
@pytest.mark.parametrize("way", [PREFECT, DIRECT], ids=["prefect", "direct"])
def test_an_interrupt_while_workers_start_reaches_only_the_driver(scene: Scene, way) -> None:
    process = scene.start("early", **way)
    assert wait_for(scene.starts_workers), process.communicate()
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode != 0
    assert errors.splitlines()[-1].startswith("partwise.errors.RunCancelledError: ")
    assert errors.splitlines()[-1].endswith(
        "'early' was interrupted before anything was begun: there is nothing to go on with."
    )
    assert "multiprocessing" not in errors
    assert "Nanny failed" not in errors
    assert "atexit" not in errors
    assert scene.is_left_alone()
    assert not scene.calls("early")


def slow(calls: Path):
    path = str(calls)

    def rows(data, context):
        with open(path, "a") as file:
            file.write(f"{context.run_id}:{context.key}\n")
        time.sleep(0.1)
        if context.key % 2:
            raise ValueError("odd")
        return {"twice": 2 * data.to_numpy("y")}

    return rows


@pytest.mark.parametrize(
    "whom", ["worker", pytest.param("worker and nanny", marks=pytest.mark.slow)]
)
def test_a_run_survives_the_death_of_a_worker(scene: Scene, cluster, dask_client, whom) -> None:
    workers = len(known_workers(dask_client))
    command = [sys.executable, "-m", "distributed.cli.dask_worker", cluster.address]
    command += ["--nthreads", "1", "--no-dashboard", "--local-directory", str(scene.folder)]
    with subprocess.Popen(
        command,
        env=os.environ | {MARK: scene.mark},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as nanny:
        dask_client.wait_for_workers(workers + 1, timeout=60)
        pids = set(dask_client.run(os.getpid).values())
        family = psutil.Process(nanny.pid).children(recursive=True)
        [worker] = [process for process in family if process.pid in pids]
        committed: set[int] = set()

        def kill() -> None:
            wait_for(lambda: scene.calls("mapped").total() >= 20 and scene.segments("mapped") > 3)
            committed.update(scene.committed("mapped"))
            if whom != "worker":
                nanny.kill()
            worker.kill()

        killer = threading.Thread(target=kill)
        killer.start()
        try:
            run = map_partitions(
                str(scene.rows),
                "key",
                slow(scene.folder / "calls"),
                run_id="mapped",
                store=scene.store,
                execution=ExecutionOptions(
                    n_shards=9, first_segment_s=0.2, max_retries=0, max_failed=ODD
                ),
                cluster=cluster,
            )
        finally:
            killer.join()
            nanny.terminate()
    # What failed is counted once, though it was told of by the worker that died, too.
    assert run.status is RunStatus.PARTIAL_FAILURE
    assert run.counts == {"DONE": PARTITIONS - ODD, "FAILED": ODD}
    calls = scene.calls("mapped")
    assert set(calls) == set(range(PARTITIONS))
    assert committed
    assert {calls[key] for key in committed} == {1}
    assert max(calls.values()) <= 2
    assert (run.executed, run.kept) == (PARTITIONS, 0)
    rows = run.predictions().sort_by("twice")
    assert rows["key"].to_pylist() == [key for key in range(0, PARTITIONS, 2) for _ in range(4)]
    assert scene.is_left_alone()
