"""Processes that are killed with -9 before a write, collections beside readers, and many rows."""

import os
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from partwise.errors import RunBusyError, RunFormatError, RunNotFoundError
from partwise.outcomes import RunStatus
from partwise.runs.garbage import collect_garbage
from partwise.runs.run import Run
from partwise.store.store import Store
from tests.chaos.conftest import Experiment
from tests.run_maker import RunMaker

pytestmark = pytest.mark.slow

KEYS = "abcdef"

WRITER = """
import os, signal, sys
from partwise.store.store import Store
from tests.run_maker import RunMaker

folder, value, dies_at = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
count = 0
for name in ("create", "write", "move", "delete"):
    method = getattr(Store, name)
    def counted(store, path, *content, method=method):
        global count
        if "heartbeat" not in path:
            count += 1
            if count == dies_at:
                os.kill(os.getpid(), signal.SIGKILL)
        return method(store, path, *content)
    setattr(Store, name, counted)
maker = RunMaker(Store.parse(folder))
maker.begin("overwrite")
maker.commit(*((key, "DONE", value) for key in "abc"))
maker.commit(*((key, "DONE", value) for key in "def"))
maker.end(6)
print(count)
"""


def write_whole(maker: RunMaker, value: float) -> Run:
    """Write a whole generation of a run, in two segments."""
    maker.begin("overwrite")
    maker.commit(*((key, "DONE", value) for key in "abc"))
    maker.commit(*((key, "DONE", value) for key in "def"))
    return maker.end(6)


def write(folder: Path, value: float, dies_at: int) -> subprocess.CompletedProcess[str]:
    """Write a whole generation of a run in a process that may be killed before one write."""
    return subprocess.run(
        [sys.executable, "-c", WRITER, str(folder), str(value), str(dies_at)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def seen(run: Run) -> set[float]:
    """Return the values of all models and output rows that readers see; all must be readable."""
    keys = run.partitions["key"].to_pylist()
    assert keys == list(KEYS)
    models = {float(run.artifact(key, "note.txt").split()[1]) for key in keys}
    return models | set(run.predictions()["value"].to_pylist())


def test_a_writer_killed_before_any_write_leaves_old_or_new(
    experiment: Experiment, tmp_path: Path
) -> None:
    first = write(tmp_path / "store", 1.0, 0)
    assert first.returncode == 0, first.stderr
    writes = int(first.stdout)
    chance, lost, tried = experiment.chance, 0, 0
    points = chance.sample(range(1, writes + 1), writes)
    deadline = time.monotonic() + experiment.seconds
    # At least a third of all points, and all of them where there is time.
    while tried < writes // 3 or (time.monotonic() < deadline and tried < writes):
        folder = tmp_path / f"copy-{tried}"
        shutil.copytree(tmp_path / "store", folder)
        died = write(folder, 2.0, points[tried])
        assert died.returncode == -9, died.stderr
        lost += seen(Run.open("run", Store.parse(folder))) not in ({1.0}, {2.0})
        write_whole(RunMaker(Store.parse(folder)), 3.0)
        lost += seen(Run.open("run", Store.parse(folder))) != {3.0}
        tried += 1
    experiment.tell(
        "G4", tried=tried, lost=lost, what=f"of {writes} writes of a generation, old or new is seen"
    )


def test_collections_delete_nothing_that_lives(experiment: Experiment, tmp_path: Path) -> None:
    store = Store.parse(tmp_path / "store")
    maker = RunMaker(store)
    done = threading.Event()
    problems: list[str] = []
    counts = {"written": 0, "collected": 0, "read": 0}

    def collect() -> None:
        while not done.is_set():
            try:
                found = collect_garbage(store, "run", dry_run=False, grace_hours=0)
                counts["collected"] += len(found.files)
            except (RunBusyError, RunNotFoundError):
                time.sleep(0.01)

    def read() -> None:
        while not done.is_set():
            try:
                values = seen(Run.open("run", store))
            except (RunFormatError, RunNotFoundError):
                continue  # worked on since it was opened: a reader opens it again
            except Exception as error:  # anything else is a loss
                problems.append(repr(error))
                return
            counts["read"] += 1
            if len(values) != 1:
                problems.append(f"generations are mixed: {values}")

    def whole(value: float) -> None:
        assert write_whole(maker, value).status is RunStatus.SUCCESS
        counts["written"] += 1

    whole(0.0)
    threads = [threading.Thread(target=collect), threading.Thread(target=read)]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + experiment.seconds
    try:
        while counts["written"] < 20 or time.monotonic() < deadline:
            try:
                whole(float(counts["written"]))
            except RunBusyError:
                maker.die()
    finally:
        done.set()
        for thread in threads:
            thread.join()
    assert not problems, problems
    experiment.tell(
        "G15",
        tried=counts["read"],
        lost=len(problems),
        what="reads beside {written} generations, {collected} files collected".format(**counts),
    )


SCALE = """
import sys, time
import pyarrow as pa
from partwise import LocalCluster, map_partitions

def nothing(data, context):
    return None

if __name__ == "__main__":
    n = int(sys.argv[2])
    table = pa.table({"key": list(range(n)), "x": [0.0] * n})
    began = time.perf_counter()
    run = map_partitions(table, "key", nothing, run_id="chaos-scale", store=sys.argv[1],
                         cluster=LocalCluster(workers=2))
    seconds = time.perf_counter() - began
    # Of this program alone: ru_maxrss is also that of the process which has started it.
    (peak,) = [line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")]
    print(run.counts.get("DONE"), seconds, peak)
"""


def test_many_partitions(experiment: Experiment, tmp_path: Path, prefect_server: str) -> None:
    partitions = 20_000 if experiment.seconds else 4_000
    script = tmp_path / "scale.py"
    script.write_text(SCALE)
    ended = subprocess.run(
        [sys.executable, str(script), str(tmp_path / "store"), str(partitions)],
        capture_output=True,
        text=True,
        timeout=600,
        env=dict(os.environ),
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    done, seconds, peak = ended.stdout.split()[-3:]
    experiment.tell(
        "G13",
        tried=partitions,
        lost=partitions - int(done) + (int(peak) > 1 << 20),
        what=f"no-op functions in {float(seconds):.0f} s, driver {int(peak) >> 10} MiB",
    )
