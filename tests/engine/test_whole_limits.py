"""The limits of a partition hold for all that it starts and shares, and all of it ends with it."""

import mmap
import os
import signal
import subprocess
import sys
import time
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path

import numpy as np
import pytest

from partwise.processes.family import (
    children_of,
    command_of,
    descendants_of,
    is_running,
    state_of,
)
from partwise.processes.memory import FamilyMemory
from tests.engine.shards import ShardOfRun, table_of
from tests.thoroughness import quick_and_slow

MIB = 1 << 20
DAEMON = """
import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        with open(sys.argv[1], "w") as file:
            file.write(str(os.getpid()))
        os.rename(sys.argv[1], sys.argv[1] + ".pid")
        time.sleep(300)
    os._exit(0)
os.wait()
"""


@pytest.fixture
def shard(tmp_path):
    shard = ShardOfRun(tmp_path)
    yield shard
    shard.host.close()


ISOLATIONS = ("shared", "partition")


@pytest.fixture(params=ISOLATIONS)
def isolation(request) -> str:
    return request.param


def fill(mapped: mmap.mmap) -> None:
    view = np.frombuffer(mapped, np.uint8)
    view[:: mmap.PAGESIZE] = 1


def start_daemon(note: str) -> int:
    """Start a process with a session and an environment of its own; return its number."""
    subprocess.run([sys.executable, "-I", "-S", "-c", DAEMON, note], env={}, check=True)
    while not os.path.exists(f"{note}.pid"):
        time.sleep(0.01)
    return int(Path(f"{note}.pid").read_text())


def is_gone(pid: int) -> bool:
    deadline = time.monotonic() + 10
    while is_running(pid) and time.monotonic() < deadline:
        time.sleep(0.02)
    return not is_running(pid)


def map_anonymous(size: int) -> None:
    # By a name: without one it is given back before the watch has seen it.
    mapped = mmap.mmap(-1, size)
    fill(mapped)
    time.sleep(30)


def map_in_children(size: int) -> None:
    """Have two forks take half of it each: only the sum is too much."""
    for _ in range(2):
        if os.fork() == 0:
            mapped = mmap.mmap(-1, size // 2)
            fill(mapped)
            time.sleep(60)
    time.sleep(30)


def take_shared_memory(size: int) -> None:
    global kept
    kept = SharedMemory(create=True, size=size)
    fill(kept._mmap)
    time.sleep(30)


@pytest.mark.parametrize("take", [map_anonymous, map_in_children, take_shared_memory])
def test_shared_memory_counts(shard, isolation, take) -> None:
    def function(data, context):
        if context.key == "a":
            take(300 * MIB)

    receipt, run = shard.run(
        function,
        table_of(a=1, b=2),
        max_retries=0,
        memory_bytes=200 * MIB,
        timeout_s=20.0,
        isolation=isolation,
    )
    assert receipt.counts == {"DONE": 1, "FAILED": 1}
    row = run.ledger.to_pylist()[0]
    assert row["error_type"] == "MemoryLimitExceeded"
    assert "the limit (memory_bytes) is 200 MiB" in row["error_message"]
    assert row["peak_memory_bytes"] > 200 * MIB


def share_among_forks(size: int) -> None:
    """Have three forks map the same memory, which the sum over them has four times."""
    mapped = mmap.mmap(-1, size)
    fill(mapped)
    forks = []
    for _ in range(3):
        if (pid := os.fork()) == 0:
            fill(mapped)
            time.sleep(1.0)
            os._exit(0)
        forks.append(pid)
    for pid in forks:
        os.waitpid(pid, 0)


def test_what_processes_share_counts_once(shard) -> None:
    def function(data, context):
        share_among_forks(150 * MIB)

    # Once it is 150 MiB and what four processes have of their own, which depends on what was loaded
    # before, 30 to 50 MiB each; four times it would be 600 MiB and that.
    receipt, run = shard.run(function, table_of(a=1), max_retries=0, memory_bytes=500 * MIB)
    assert receipt.counts == {"DONE": 1}
    assert 150 * MIB < run.ledger["peak_memory_bytes"][0].as_py() < 500 * MIB


@pytest.mark.skipif(not os.access("/dev/shm", os.W_OK), reason="there is no shared memory here")
def test_rows_that_are_mapped_from_a_scratch_folder_in_memory_do_not_count() -> None:
    folder = Path(f"/dev/shm/partwise-test-{os.getpid()}")
    theirs = Path(f"{folder}-theirs")
    folder.mkdir()
    try:
        memory = FamilyMemory(str(folder))
        for path, counts in ((folder / "rows", False), (theirs, True)):
            with path.open("w+b") as file:
                file.truncate(100 * MIB)
                mapped = mmap.mmap(file.fileno(), 0)
            fill(mapped)
            # The limit is such that the exact figure has to be asked for.
            figure = memory.measure([os.getpid()], 1)
            path.unlink()
            mapped.close()
            before = memory.measure([os.getpid()], 1)
            assert (figure - before > 90 * MIB) is counts
    finally:
        folder.rmdir()


@pytest.mark.parametrize("end", ["crash", "exit", "kill", "late", "parent"])
def test_a_daemon_ends_with_its_partition_however_that_ends(shard, tmp_path, isolation, end):
    def function(data, context):
        if context.key == "a":
            start_daemon(str(tmp_path / "daemon"))
            match end:
                case "crash":
                    signal.raise_signal(signal.SIGSEGV)
                case "exit":
                    os._exit(3)
                case "kill":
                    os.kill(os.getpid(), signal.SIGKILL)
                case "parent":
                    os.kill(os.getppid(), signal.SIGTERM)
            time.sleep(60)

    receipt, _ = shard.run(
        function,
        table_of(a=1, b=2),
        max_retries=0,
        timeout_s=4.0 if end == "late" else None,
        isolation=isolation,
    )
    assert receipt.counts == {"DONE": 1, "FAILED": 1}
    assert is_gone(int((tmp_path / "daemon.pid").read_text()))


def kill_keeper(isolation: str) -> None:
    keeper = os.getppid()
    if isolation == "partition":
        keeper = int(Path(f"/proc/{keeper}/stat").read_text().rpartition(")")[2].split()[1])
    os.kill(keeper, signal.SIGKILL)
    time.sleep(60)


def test_a_daemon_ends_also_when_its_keeper_is_killed(shard, tmp_path, isolation) -> None:
    """It has dropped session and environment: only who takes it in then knows of it."""

    def function(data, context):
        if context.key == "a":
            start_daemon(str(tmp_path / f"daemon-{context.attempt}"))
            kill_keeper(isolation)

    receipt, run = shard.run(function, table_of(a=1, b=2), max_retries=0, isolation=isolation)
    assert receipt.counts == {"DONE": 1, "FAILED": 1}
    assert run.failures()["error_type"].to_pylist() == ["ProcessDied"]
    daemons = [int(path.read_text()) for path in tmp_path.glob("daemon-*.pid")]
    # Twice: a SIGKILL may have been for want of memory.
    assert len(daemons) == 2
    assert all(map(is_gone, daemons))


WORKER = """
import os, sys, time
from pathlib import Path
from tests.engine.shards import ShardOfRun, table_of
from tests.engine.test_whole_limits import hold_all
folder = sys.argv[1]
ShardOfRun(Path(folder)).run(
    lambda data, context: hold_all(folder), table_of(a=1), isolation=sys.argv[2]
)
"""


def hold_all(folder: str) -> None:
    """Start a daemon, hold a file of shared memory, and wait."""
    daemon = start_daemon(f"{folder}/daemon")
    with open(f"/dev/shm/partwise-test-{daemon}", "w+b") as file:
        file.truncate(MIB)
        Path(folder, "held").write_text(file.name)
        Path(folder, "ready").touch()
        time.sleep(60)


@pytest.mark.slow
@pytest.mark.parametrize("victim", ["worker", "both"])
def test_nothing_is_left_when_a_worker_is_killed_alone_or_with_a_child(
    tmp_path, isolation, victim
) -> None:
    words = [sys.executable, "-c", WORKER, str(tmp_path), isolation]
    with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as worker:
        while not (tmp_path / "ready").exists():
            assert worker.poll() is None
            time.sleep(0.05)
        below = list(descendants_of(worker.pid))
        daemon = int((tmp_path / "daemon.pid").read_text())
        assert daemon in below
        if victim == "both":
            # The child and what it has started; before it come its server and its keeper.
            os.kill(below[2], signal.SIGKILL)
        worker.kill()
        assert is_gone(daemon)
    assert [pid for pid in below if not is_gone(pid)] == []
    held = Path((tmp_path / "held").read_text())
    deadline = time.monotonic() + 10
    # Of a child that is killed by others, nobody could look what it held.
    while victim == "worker" and held.exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    held.unlink(missing_ok=True)


def test_a_daemon_ends_also_when_its_keeper_and_the_worker_are_killed_at_once(tmp_path) -> None:
    words = [sys.executable, "-c", WORKER, str(tmp_path), "shared"]
    with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as worker:
        while not (tmp_path / "ready").exists():
            assert worker.poll() is None
            time.sleep(0.05)
        server, keeper, *_ = below = list(descendants_of(worker.pid))
        was = {pid: f"{state_of(pid)} {command_of(pid)[-200:]}" for pid in below}
        # Held still first, so that it ends nothing when the worker is gone.
        os.kill(keeper, signal.SIGSTOP)
        worker.kill()
        os.kill(keeper, signal.SIGKILL)
    assert {pid: was[pid] for pid in (server, *below) if not is_gone(pid)} == {}
    assert is_gone(int((tmp_path / "daemon.pid").read_text()))
    Path((tmp_path / "held").read_text()).unlink(missing_ok=True)


@pytest.mark.parametrize("isolation", quick_and_slow({"partition"}, ISOLATIONS))
def test_files_in_shared_memory_go_with_a_partition_that_is_killed_and_others_stay(
    shard, tmp_path, isolation
) -> None:
    def path(name: str) -> Path:
        return Path(f"/dev/shm/partwise-test-{os.getpid()}-{name}")

    names = {"held": path("held"), "before": path("before"), "shared": path("shared")}
    names["before"].write_bytes(b"before")

    def function(data, context):
        if context.key == "a":
            named = Path(f"/dev/shm/torch_{os.getpid()}_1_2")
            named.write_bytes(b"x")
            (tmp_path / "named").write_text(str(named))
            files = [each.open("r+b" if each.exists() else "w+b") for each in names.values()]
            assert len(files) == 3
            (tmp_path / "ready").touch()
            time.sleep(60)

    def hold_shared() -> subprocess.Popen[bytes]:
        code = (
            "import sys, time, os\n"
            "while not os.path.exists(sys.argv[1]): time.sleep(0.02)\n"
            "file = open(sys.argv[1]); time.sleep(120)"
        )
        return subprocess.Popen([sys.executable, "-c", code, str(names["shared"])])

    with hold_shared() as other:
        try:
            shard.run(
                function,
                table_of(a=1),
                max_retries=0,
                timeout_s=4.0,
                isolation=isolation,
            )
            assert (tmp_path / "ready").exists()
            assert not names["held"].exists()
            assert not Path((tmp_path / "named").read_text()).exists()
            assert names["before"].read_bytes() == b"before"
            assert names["shared"].exists()
        finally:
            other.kill()
            for each in names.values():
                each.unlink(missing_ok=True)


@pytest.mark.parametrize("isolation", quick_and_slow({"partition"}, ISOLATIONS))
def test_a_log_is_bounded_while_it_is_written(shard, tmp_path, isolation) -> None:
    largest = tmp_path / "largest"

    def function(data, context):
        print("the beginning")
        lines = ("x" * 65_535 + "\n").encode() * 32
        most = 0
        for _ in range(120):
            os.write(1, lines)
            status = os.fstat(1)
            most = max(most, status.st_blocks * 512)
            time.sleep(0.01)
        largest.write_text(f"{most} {status.st_size}")
        print("the end")

    receipt, run = shard.run(function, table_of(a=1, b=2), isolation=isolation)
    assert receipt.counts == {"DONE": 2}
    most, written = map(int, largest.read_text().split())
    assert written > 100 * MIB, "the test has to write more than is allowed"
    assert most < written / 2
    log = run.logs("b")
    assert log.startswith("the beginning\nxxx")
    assert log.endswith("xxx\nthe end\n")
    assert "bytes left out" in log
    assert "\0" not in log
    assert len(log) < 2 * MIB


def test_a_fork_bomb_is_stopped(shard, isolation, monkeypatch) -> None:
    monkeypatch.setattr("partwise.engine.worker.supervisor.MOST_PROCESSES", 40)

    def function(data, context):
        if context.key == "a":
            # Bounded here, should nobody stop it.
            for _ in range(6):
                os.fork()
            time.sleep(60)

    def below_servers() -> set[int]:
        return set(descendants_of(os.getpid())) - set(children_of(os.getpid()))

    before = below_servers()
    receipt, run = shard.run(function, table_of(a=1, b=2), max_retries=0, isolation=isolation)
    assert receipt.counts == {"DONE": 1, "FAILED": 1}
    assert run.failures()["error_type"].to_pylist() == ["ProcessLimitExceeded"]
    assert below_servers() <= before


def test_what_was_killed_for_want_of_memory_runs_once_more_and_alone(shard, tmp_path) -> None:
    """As the kernel does: it takes a process, whoever took the memory."""

    def function(data, context):
        with open(tmp_path / f"attempts-{context.key}", "a") as file:
            file.write(f"{context.attempt}\n")
        if context.key in "ac" and (context.attempt == 1 or context.key == "c"):
            os.kill(os.getpid(), signal.SIGKILL)

    receipt, run = shard.run(function, table_of(a=1, b=2, c=3, d=4), max_retries=0)
    assert receipt.counts == {"DONE": 3, "FAILED": 1}
    attempts = {key: (tmp_path / f"attempts-{key}").read_text().split() for key in "abcd"}
    assert attempts == {"a": ["1", "2"], "b": ["1"], "c": ["1", "2"], "d": ["1"]}
    rows = {row["key.key"]: row for row in run.ledger.to_pylist()}
    assert rows["c"]["error_type"] == "ProcessDied"
    assert (rows["c"]["attempts"], rows["a"]["attempts"], rows["a"]["status"]) == (2, 2, "DONE")


def test_what_found_no_gpu_memory_runs_once_more_alone_and_without_a_cap(shard, tmp_path) -> None:
    """A GPU is shared: a neighbour, or the part that is its own, may have left it too little."""

    def function(data, context):
        with open(tmp_path / f"seen-{context.key}", "a") as file:
            file.write(f"{os.getpid()} {os.environ.get('CUPY_GPU_MEMORY_LIMIT')}\n")
        if context.key == "c" or (context.key == "a" and context.attempt == 1):
            raise RuntimeError("CUDA out of memory. Tried to allocate 186.27 GiB.")

    receipt, run = shard.run(function, table_of(a=1, b=2, c=3), max_retries=0, gpus=0.25)
    assert receipt.counts == {"DONE": 2, "FAILED": 1}
    seen = {key: (tmp_path / f"seen-{key}").read_text().splitlines() for key in "abc"}
    assert [len(lines) for lines in seen.values()] == [2, 1, 2]
    assert [line.split()[1] for line in seen["a"]] == ["20.00%", "None"]
    # After each such failure another process, since CUDA may refuse all that this one asks for.
    processes = {line.split()[0] for lines in seen.values() for line in lines}
    assert len(processes) == 3
    rows = {row["key.key"]: row for row in run.ledger.to_pylist()}
    assert (rows["c"]["reason"], rows["c"]["attempts"]) == ("out of GPU memory", 2)
    assert (rows["a"]["status"], rows["a"]["attempts"]) == ("DONE", 2)
