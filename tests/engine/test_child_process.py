"""A child process seen from the worker: how it starts, is borrowed, is watched, and ends."""

import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from partwise.engine.child.main import MARK, Child
from partwise.engine.messages import RunPartitions
from partwise.engine.worker.child import (
    ChildPlan,
    ChildProcess,
    borrow_child,
    close_idle_children,
    discard_child,
    end_marked,
)
from partwise.environments.building import open_environment
from partwise.environments.cache import collect_environments
from partwise.environments.environment import Environment
from partwise.environments.resolution import resolve
from tests.environments.wheels import make_wheel
from tests.own_cluster import wait_for

MEMORY_BYTES = 2 << 30


def plan_of(folder, owner="owner", **more):
    return ChildPlan(owner=owner, directory=str(folder), memory_bytes=MEMORY_BYTES, **more)


@pytest.fixture
def borrow(tmp_path):
    yield lambda owner="owner": borrow_child(plan_of(tmp_path, owner=owner))
    discard_child()


def test_a_thread_has_one_child_until_it_ends(borrow) -> None:
    child = borrow()
    assert borrow() is child
    child.kill()
    assert borrow() is not child


def test_each_thread_has_a_child_of_its_own(borrow, tmp_path) -> None:
    pids = [borrow().pid]

    def work() -> None:
        pids.append(borrow().pid)
        discard_child()

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert len(set(pids)) == 2
    assert psutil.pid_exists(pids[0])


def test_two_executions_do_not_share_a_child(borrow) -> None:
    """The one that ends first kills its children: a partition of the other would be blamed."""
    first = borrow("one")
    second = borrow("other")
    assert first.pid != second.pid
    end_marked("one")
    assert not second.has_ended()


def test_an_idle_child_is_ended_with_its_work(borrow, tmp_path) -> None:
    work = tmp_path / "work-t.pkl"
    work.write_bytes(pickle.dumps(len))
    child = borrow()
    assert child.open_work(str(work)) is None
    close_idle_children("work-another.pkl")
    assert not child.has_ended()
    close_idle_children("work-t.pkl")
    assert child.has_ended()
    assert not list(tmp_path.glob("child-*"))


def test_work_that_cannot_be_loaded_is_described(borrow, tmp_path) -> None:
    work = tmp_path / "work.pkl"
    work.write_bytes(b"cno_such_module\nfunction\n.")
    failure = borrow().open_work(str(work))
    assert failure is not None
    assert failure.error_type == "ModuleNotFoundError"
    assert "no_such_module" in failure.message
    assert "Traceback" in failure.traceback


def test_how_a_child_ended_is_told_in_words(borrow) -> None:
    child = borrow()
    assert child.describe_end() == "it still runs"
    child.kill()
    assert child.describe_end().startswith("signal 9 (SIGKILL")


def test_a_child_that_has_not_begun_is_killed_without_waiting_for_its_keeper(
    borrow, monkeypatch
) -> None:
    monkeypatch.setattr("partwise.processes.kept.KEEPER_S", 600.0)
    child = borrow()
    killing = threading.Thread(target=child.kill)
    killing.start()
    killing.join(60)
    is_late = killing.is_alive()
    if is_late:
        os.kill(child.pid, signal.SIGKILL)
        killing.join()
    assert not is_late


def test_an_end_takes_along_what_the_function_started(borrow, tmp_path) -> None:
    script = "import subprocess; subprocess.Popen(['sleep', '300'], start_new_session=True)"
    child = borrow()
    environment = {**os.environ, "PARTWISE_CHILD": child.mark}
    subprocess.run([sys.executable, "-c", script], env=environment, check=True)

    def left() -> list[int]:
        return [
            process.pid
            for process in psutil.process_iter()
            if f"PARTWISE_CHILD={child.mark}".encode() in environment_of(process.pid)
            and process.status() != psutil.STATUS_ZOMBIE
            and process.pid != child.pid
        ]

    wait_for(left, "Popen returns a moment before the environment can be read", 5)
    child.close()
    wait_for(lambda: not left(), "they go on", 5)


def environment_of(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return b""


def test_a_child_dies_with_its_worker(tmp_path) -> None:
    script = (
        "import sys, time\n"
        "from partwise.engine.worker.child import ChildPlan, borrow_child\n"
        f"plan = ChildPlan(owner='o', directory={str(tmp_path)!r}, memory_bytes=2 << 30)\n"
        "print(borrow_child(plan).pid, flush=True)\n"
        "time.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as worker:
        pid = int(worker.stdout.readline())
        assert psutil.pid_exists(pid)
        worker.kill()
    wait_for(lambda: not psutil.pid_exists(pid) or is_zombie(pid), "it goes on", 5)


def is_zombie(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def test_nothing_runs_before_a_partition_is_begun(borrow) -> None:
    child = borrow()
    assert child.running() == (-1, 0.0)
    wait_for(lambda: child.memory_bytes(child.family(), 1 << 40) > 1 << 20, "it has no memory", 5)
    # A child that was given no work ends, and says why in its log.
    child.connection.send(RunPartitions(indices=[0], attempt=1))
    wait_for(child.has_ended, "it goes on", 5)
    assert b"before it was given work" in child.read_log()


def test_the_time_of_a_partition_begins_when_all_is_imported() -> None:
    seen: list[tuple[str, int, bool, bool]] = []
    mark = bytearray(MARK.size)
    watched: Any = SimpleNamespace(_mark=mark)

    def note(what: str) -> None:
        # The clock may stand still for a moment.
        time.sleep(0.001)
        index, seconds = ChildProcess.running(watched)
        seen.append((what, index, seconds > 0, ChildProcess.preparing_s(watched) > 0))

    def prepare() -> None:
        child._surroundings = object()
        note("imports")

    def attempt(index: int, attempt: int) -> bool:
        note("runs")
        return True

    child: Any = SimpleNamespace(
        _mark=mark, _surroundings=None, _obstacle=None, _prepare=prepare, _attempt=attempt
    )
    assert all(Child._run(child, index, 1) for index in (4, 5))
    assert seen == [
        ("imports", 4, False, True),
        ("runs", 4, True, False),
        ("runs", 5, True, False),
    ]


def test_a_child_has_packages_first_and_keeps_them_from_being_collected(tmp_path, monkeypatch):
    """An environment goes by its age, but not while a child works in it."""
    monkeypatch.setenv("PARTWISE_SCRATCH", str(tmp_path / "scratch"))
    make_wheel(tmp_path / "wheels", "cloudpickle", "99.0", "def answer(*_):\n    return 42\n")
    asked = Environment(packages=("cloudpickle",), find_links=(str(tmp_path / "wheels"),))
    asked = asked.model_copy(update={"no_index": True})
    work = tmp_path / "work.pkl"
    # Resolved in the child: it has no such function unless the package comes first.
    work.write_bytes(b"ccloudpickle\nanswer\n.")
    with open_environment(resolve(asked)) as built:
        child = borrow_child(plan_of(tmp_path, packages=built))
    assert child.open_work(str(work)) is None
    assert collect_environments(timedelta(0)) == []
    discard_child()
    assert len(collect_environments(timedelta(0))) == 1
