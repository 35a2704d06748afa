"""The process that workers are forked from: what they get of it, what it survives, when it ends."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import psutil
import pyarrow as pa
import pytest

from partwise import map_partitions
from partwise.blocks import LocalCluster
from partwise.processes.worker_server import begin_worker_server
from tests.own_cluster import wait_for
from tests.plain_cluster import plain_cluster

NAME = "PARTWISE_TEST_WORKER_SERVER"
DRIVER = """
import os, pathlib, sys, time
from partwise.blocks import LocalCluster
from partwise.processes.worker_server import begin_worker_server

if __name__ == "__main__":
    # As scripts do. Python passes it over, and so has its server of forks to.
    sys.path.append(pathlib.Path("/nowhere"))
    begin_worker_server()
    with LocalCluster(workers=1).client() as client:
        print(client.submit(os.getppid).result(), client.submit(os.getpid).result(), flush=True)
        for line in sys.stdin:
            print(client.submit(sum, [int(word) for word in line.split()]).result(), flush=True)
"""


def _environment() -> dict[str, str]:
    return dict(os.environ)


def _count(data, context):
    return {"rows": [data.num_rows]}


def _trim_threshold(data, context):
    return {"threshold": [os.environ.get("MALLOC_TRIM_THRESHOLD_", "the library's own")]}


ASKED = """
import json, os, sys
from partwise.processes import worker_server

begun, cores = [], int(sys.argv.pop())
os.sched_getaffinity = lambda _: set(range(cores))
worker_server.begin_worker_server = lambda: begun.append(1)
from partwise.flows.cli.main import main

for words in json.loads(sys.argv[1]):
    begun.clear()
    sys.argv[1:] = words
    main()
    print(len(begun), flush=True)
"""
REFUSED = ("train", "nowhere.parquet", "-p", "store", "--trainer", "lightgbm", "--label", "sales")
BEGUN = (REFUSED, ("infer",), ("map", "nowhere.parquet", "--", "--help"))
NOT_BEGUN = (
    (*REFUSED, "--cluster", "cuda-cluster/big"),
    (*REFUSED, "--address=tls://127.0.0.1:1"),
    (*REFUSED, "--devices", "0"),
    (*REFUSED, "--cluster-class", "no.Such"),
    (*REFUSED, "--on-existing-artifacts", "resume"),
    (*REFUSED, "--help"),
    ("runs", "show", "nothing"),
    ("nothing",),
)
"""Commands that cannot be carried out: so none gets as far as a cluster."""


@pytest.fixture
def driver(tmp_path: Path):
    """A driver in a process group of its own, in a folder whose files have names of libraries."""
    for name in ("distributed", "pandas", "numpy"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('not the library')")
    script = tmp_path / "elsewhere" / "driver.py"
    script.parent.mkdir()
    script.write_text(DRIVER)
    process = subprocess.Popen(
        [sys.executable, "-P", script],
        cwd=tmp_path,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    yield process
    process.kill()
    process.communicate()


def _answer(process: subprocess.Popen[str]) -> list[int]:
    return [int(word) for word in process.stdout.readline().split()]


def test_a_worker_has_the_environment_of_its_driver_whenever_the_server_was_started(monkeypatch):
    begin_worker_server()
    monkeypatch.setenv(NAME, "first")
    with LocalCluster(workers=1).client() as client:
        first = client.submit(_environment).result()
        server = client.submit(os.getppid).result()
    monkeypatch.delenv(NAME)
    monkeypatch.setenv(f"{NAME}_2", "second")
    with LocalCluster(workers=1).client() as client:
        second = client.submit(_environment).result()
        assert client.submit(os.getppid).result() == server

    of_dask = {"MALLOC_TRIM_THRESHOLD_", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "PYTHONHASHSEED"}
    of_dask |= {"OPENBLAS_NUM_THREADS"}
    assert first[NAME] == "first"
    for name in of_dask:
        second.pop(name, None)
    assert second == {name: value for name, value in os.environ.items() if name not in of_dask}
    # Arrow has read this before any worker was forked, and users' code is not to have it.
    assert b"MIMALLOC_ALLOW_THP=0" in Path(f"/proc/{server}/environ").read_bytes().split(b"\0")


def test_workers_are_forked_with_all_that_they_import_of_us(prefect_server, tmp_path):
    code = "import partwise.engine.worker.preload, sys; print(*sys.modules)"
    words = [sys.executable, "-c", code]
    shown = subprocess.run(words, capture_output=True, text=True, check=True)
    with plain_cluster(1) as client:
        map_partitions(
            pa.table({"key": ["a", "b"], "x": [1, 2]}),
            "key",
            _count,
            store=tmp_path,
            cluster=client.scheduler.address,
        )
        # By value: else the worker would import this file.
        loaded = client.submit(lambda: sorted(sys.modules)).result()

    ours = {name for name in loaded if name.startswith("partwise.")}
    assert ours - set(shown.stdout.split()) == set()
    assert "pandas" in loaded


@pytest.mark.parametrize("users", [None, "1000000"])
def test_the_allocator_of_users_code_is_as_the_user_has_it(monkeypatch, tmp_path, users):
    if users is not None:
        monkeypatch.setenv("MALLOC_TRIM_THRESHOLD_", users)
    rows = pa.table({"key": ["a"], "x": [1]})
    run = map_partitions(
        rows, "key", _trim_threshold, store=tmp_path, cluster=LocalCluster(workers=1)
    )
    assert run.predictions()["threshold"].to_pylist() == [users or "the library's own"]


def test_a_command_that_may_start_workers_begins_their_server_before_it_is_read(tmp_path):
    begun = _begun(tmp_path, [*BEGUN, *NOT_BEGUN], cores=2)
    assert begun == [1] * len(BEGUN) + [0] * len(NOT_BEGUN)


def test_on_one_core_nothing_is_begun_before_a_command_is_read(tmp_path):
    assert _begun(tmp_path, [REFUSED], cores=1) == [0]


def _begun(folder: Path, commands: list[Sequence[str]], cores: int) -> list[int]:
    """Whether each command begins the server, on a machine of so many cores."""
    words = [sys.executable, "-c", ASKED, json.dumps(commands), str(cores)]
    shown = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=True)
    return [int(line) for line in shown.stdout.splitlines() if line in ("0", "1")]


def test_a_refused_command_leaves_no_server(tmp_path):
    command = [sys.executable, "-m", "partwise.flows.cli.main", *REFUSED]
    environment = {**os.environ, NAME: str(tmp_path)}
    process = subprocess.Popen(
        command, cwd=tmp_path, env=environment, stderr=subprocess.PIPE, text=True
    )
    seen = set()
    while process.poll() is None:
        seen |= _having(str(tmp_path))
        time.sleep(0.01)
    assert "nowhere.parquet" in process.communicate()[1]
    assert len(seen) > 1 or len(os.sched_getaffinity(0)) == 1

    wait_for(lambda: not _having(str(tmp_path)), "it has files of the driver", 10)


def test_workers_go_on_through_signals_to_the_driver_and_the_death_of_their_server(driver):
    server, worker = _answer(driver)
    for place, number in enumerate((signal.SIGINT, signal.SIGTERM)):
        # The driver itself is spared, to see that its worker goes on.
        members = [p.pid for p in psutil.process_iter() if _group(p.pid) == os.getpgid(driver.pid)]
        assert driver.pid in members
        for pid in members:
            if pid != driver.pid:
                os.kill(pid, number)
        assert _sum(driver, place) == place + 1
        assert {server, worker}.isdisjoint(members)

    os.kill(server, signal.SIGKILL)
    assert _sum(driver, 7) == 8


def _sum(process: subprocess.Popen[str], number: int) -> int:
    """Return what its worker makes of a number and 1."""
    process.stdin.write(f"{number} 1\n")
    process.stdin.flush()
    [found] = _answer(process)
    return found


def _group(pid: int) -> int:
    try:
        return os.getpgid(pid)
    except ProcessLookupError:
        return 0


@pytest.mark.parametrize(
    ("number", "is_stopped"),
    [
        pytest.param(signal.SIGKILL, False, id="killed"),
        pytest.param(signal.SIGTERM, True, id="ended, stopped"),
        pytest.param(signal.SIGKILL, True, id="killed, stopped", marks=pytest.mark.slow),
        pytest.param(signal.SIGTERM, False, id="ended", marks=pytest.mark.slow),
    ],
)
def test_the_server_ends_with_its_driver(driver, number, is_stopped):
    left = [psutil.Process(pid) for pid in _answer(driver)]
    if is_stopped:
        left[0].suspend()
    driver.send_signal(number)
    driver.wait(10)

    assert psutil.wait_procs(left, timeout=30)[1] == []


def _having(value: str) -> set[int]:
    """The processes whose environment has a mark."""
    found = set()
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.environ().get(NAME) == value:
                found.add(process.pid)
    return found
