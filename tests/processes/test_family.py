"""Processes that functions start are ended, and what these hold in shared memory is removed."""

import multiprocessing
import os
import secrets
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from partwise.processes import family
from partwise.processes.family import (
    children_of,
    clears_up,
    command_of,
    descendants_of,
    environment_of,
    find_marked,
    is_running,
    state_of,
)
from tests.engine.shards import ShardOfRun, table_of


@pytest.fixture
def shard(tmp_path):
    shard = ShardOfRun(tmp_path)
    yield shard
    shard.host.close()


def held_in_shared_memory() -> list[str]:
    """Return the files of shared memory that this process has mapped."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    # By inode: a semaphore is made under a passing name, which the map goes on to show.
    held = {int(line.split()[4]) for line in lines if "/dev/shm/" in line}
    return sorted(entry.path for entry in os.scandir("/dev/shm") if entry.inode() in held)


def use_loky() -> None:
    import joblib

    assert joblib.Parallel(n_jobs=2)(joblib.delayed(abs)(i) for i in range(-3, 0)) == [3, 2, 1]


def use_multiprocessing() -> None:
    from multiprocessing.shared_memory import SharedMemory

    global kept
    context = multiprocessing.get_context("spawn")
    kept = [context.Lock(), context.Queue(), SharedMemory(create=True, size=1000)]


@pytest.mark.parametrize(
    ("use", "end"),
    [(use_loky, "killed"), (use_multiprocessing, "killed"), (use_multiprocessing, "too late")],
)
def test_a_killed_partition_leaves_no_semaphores(shard, tmp_path, use, end) -> None:
    listed = tmp_path / "held"

    def function(data, context):
        if context.key == "a":
            use()
            listed.write_text("\n".join(held_in_shared_memory()))
            if end == "killed":
                os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(60)

    limit = 4.0 if end == "too late" else None
    receipt, _ = shard.run(function, table_of(a=1, b=2), max_retries=0, timeout_s=limit)
    assert receipt.counts == {"DONE": 1, "FAILED": 1}
    held = listed.read_text().splitlines()
    assert len(held) >= 3, "the test has to see what it is about"
    assert [path for path in held if os.path.exists(path)] == []


@pytest.mark.slow
@pytest.mark.parametrize("isolation", ["shared", "partition"])
def test_what_multiprocessing_makes_goes_though_all_that_would_remove_it_was_killed(
    shard, tmp_path, isolation
) -> None:
    listed = tmp_path / "made"

    def function(data, context):
        from multiprocessing import resource_tracker

        # By its name, as multiprocessing finds it.
        from tests.multiprocessing_files import make_files

        make_files(listed)
        assert all(map(os.path.exists, listed.read_text().split()[-4:]))
        # All at once, so that nobody can look, or clear up.
        family = set(descendants_of(os.getpid())) - {os.getpid()}
        assert resource_tracker._resource_tracker._pid in family
        for pid in (*family, os.getpid()):
            os.kill(pid, signal.SIGKILL)
        time.sleep(60)

    receipt, _ = shard.run(function, table_of(a=1), max_retries=0, isolation=isolation)
    assert receipt.counts == {"FAILED": 1}
    made = listed.read_text().split()
    # Of two attempts, as the kernel may have killed it.
    assert len(made) == 8
    assert [path for path in made if os.path.exists(path)] == []


DAEMON = """
import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        print(os.getpid(), flush=True)
        time.sleep(300)
    os._exit(0)
os.wait()
"""


def test_a_daemon_without_session_and_environment_is_ended(shard, tmp_path) -> None:
    noted = tmp_path / "pid"

    def function(data, context):
        if context.key == "a":
            with noted.open("w") as file:
                subprocess.run([sys.executable, "-c", DAEMON], env={}, stdout=file, check=True)
            time.sleep(60)

    shard.run(function, table_of(a=1), max_retries=0, timeout_s=3.0)
    assert not is_running(int(noted.read_text()))


TREE = f"""
import os, subprocess, sys
from partwise.processes.family import adopt_orphans, children_of, end_children
adopt_orphans()
spared = subprocess.Popen(["sleep", "300"])
subprocess.run([sys.executable, "-c", {DAEMON!r}], env={{}}, check=True, stdout=subprocess.DEVNULL)
# Held: a Popen that nobody holds is asked how it ended as soon as the next one begins.
ended = subprocess.Popen(["true"])
shell = subprocess.Popen(["sh", "-c", "sleep 300 & sleep 300"])
assert len(list(children_of(os.getpid()))) == 4
end_children(frozenset([spared.pid]))
assert list(children_of(os.getpid())) == [spared.pid]
end_children()
assert list(children_of(os.getpid())) == []
"""


def test_all_children_are_ended_but_those_that_are_spared() -> None:
    result = subprocess.run([sys.executable, "-c", TREE], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr


ENDED_MEANWHILE = """
import os, subprocess, time
from partwise.processes import family
child = subprocess.Popen(["true"])
while family.is_running(child.pid):
    time.sleep(0.01)
calls, waitpid = [], os.waitpid
# As if it had ended a moment later, between being asked and being looked at.
def late(pid, options):
    calls.append(pid)
    return waitpid(pid, options) if len(calls) > 1 else (0, 0)

os.waitpid = late
family.end_children()
assert list(family.children_of(os.getpid())) == []
"""


def test_a_child_that_ends_while_it_is_looked_at_is_asked_too() -> None:
    result = subprocess.run(
        [sys.executable, "-c", ENDED_MEANWHILE], capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr


def test_what_is_known_of_a_process() -> None:
    # Popen returns a moment before the process has a command line of its own.
    with subprocess.Popen(["sleep", "20"]) as process:
        while command_of(process.pid) != "sleep 20":
            time.sleep(0.001)
        assert process.pid in children_of(os.getpid())
        assert process.pid in descendants_of(os.getpid())
        assert is_running(process.pid)
        assert not clears_up(process.pid)
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert state_of(process.pid) == "Z"
        assert not is_running(process.pid)
    assert state_of(process.pid) == ""
    assert command_of(process.pid) == ""
    assert not clears_up(process.pid)


def test_a_process_is_known_by_its_environment_from_its_first_moment() -> None:
    """Popen returns before the kernel shows the environment: most often on a busy machine."""
    marked = {"PARTWISE_TEST": secrets.token_hex()}
    needle = b"PARTWISE_TEST=" + marked["PARTWISE_TEST"].encode()
    spin = [sys.executable, "-c", "while True: pass"]
    busy = [subprocess.Popen(spin) for _ in range(2 * (os.cpu_count() or 1))]
    try:
        for _ in range(200):
            process = subprocess.Popen(["/bin/sleep", "60"], env=marked)
            try:
                assert environment_of(process.pid) == needle + b"\0"
            finally:
                process.kill()
                process.wait()
        assert find_marked(needle) == []
    finally:
        for process in busy:
            process.kill()
            process.wait()


def test_what_has_no_environment_is_not_waited_for(monkeypatch) -> None:
    monkeypatch.setattr(family, "BEGINNING_S", float("inf"))
    with subprocess.Popen(["/bin/sleep", "60"], env={}) as without:
        assert environment_of(without.pid) == b""
        without.kill()
        while state_of(without.pid) != "Z":
            time.sleep(0.001)
        with pytest.raises(ProcessLookupError):
            environment_of(without.pid)
    with pytest.raises(FileNotFoundError):
        environment_of(without.pid)
