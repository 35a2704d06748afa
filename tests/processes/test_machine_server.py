"""What servers of children are forked from: it loads once for all, and none needs it to live."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pyarrow as pa
import pytest

from partwise import map_partitions
from partwise.blocks import LocalCluster
from partwise.engine.worker.child import CHILD, discard_child
from partwise.processes import warm_server
from partwise.processes.family import is_running
from partwise.processes.machine_server import MACHINE_SERVERS, MachineServers
from partwise.processes.warm_server import WarmServers
from partwise.processes.worker_server import user_variables
from tests.engine.process_look import look
from tests.own_cluster import wait_for

WORKER = """
import os, sys
from partwise.engine.worker.child import ChildPlan, borrow_child
from partwise.processes.warm_server import Preloaded

folder, token = sys.argv[1:]
preloaded = Preloaded(modules=("slow_library",), token=token)
plan = ChildPlan(owner="owner", directory=folder, memory_bytes=2 << 30, preloaded=preloaded)
child = borrow_child(plan)
assert child.open_work(f"{folder}/work.pkl") is None
print(child.pid, child._process.keeper_pid, flush=True)
sys.stdin.readline()
"""


@pytest.fixture
def machine():
    """The servers of this test's driver."""
    made = MachineServers()
    yield made
    made.close()


@pytest.fixture
def begin(machine):
    """Begin to load `slow_library`; return the process and the token."""

    def call(**variables: str) -> tuple[subprocess.Popen[bytes], str]:
        token = machine.begin(CHILD, user_variables() | variables, ["slow_library"])
        return next(reversed(machine._servers.values()))[1], token

    return call


def server_of(child) -> psutil.Process:
    return psutil.Process(child._process.keeper_pid).parent()


def test_what_it_has_loaded_is_loaded_by_no_server_of_a_worker(
    begin, library, start, monkeypatch
) -> None:
    imported = library()
    process, token = begin()
    first = start(modules=["slow_library"], token=token)
    assert server_of(first).ppid() == process.pid
    with monkeypatch.context() as patch:
        # As in another worker.
        patch.setattr("partwise.engine.worker.child.SERVERS", other := WarmServers())
        second = start(modules=["slow_library"], token=token)
        assert server_of(second).ppid() == process.pid
        discard_child()
        other.close()
    assert imported.read_text().split() == [str(process.pid)]


def test_it_is_begun_once_for_the_same_children_and_is_closed_with_the_rest(
    begin, machine, library
) -> None:
    library()
    first, token = begin()
    assert begin() == (first, token)
    others = [begin(OMP_NUM_THREADS=str(number))[0] for number in (3, 4)]
    assert first.wait(10) == -signal.SIGTERM
    machine.close()
    assert [each.wait(10) for each in others] == [-signal.SIGTERM] * 2


@pytest.mark.parametrize("what", ["variable", "folder", "packages", "library", "limit"])
def test_a_child_that_would_find_anything_else_is_not_forked_from_it(
    begin, library, start, tmp_path, monkeypatch, what
) -> None:
    library()
    process, token = begin()
    variables, modules = {}, ["slow_library"]
    match what:
        case "variable":
            variables = {"PARTWISE_TEST": "1"}
        case "folder":
            monkeypatch.chdir(tmp_path)
        case "packages":
            (tmp_path / "site-packages" / "newer").mkdir(parents=True)
            (tmp_path / "site-packages" / "newer" / "__init__.py").touch()
            monkeypatch.syspath_prepend(str(tmp_path / "site-packages"))
        case "library":
            modules = []
        case "limit":
            monkeypatch.setattr("os.sched_getaffinity", lambda _: {977})
    child = start(modules=modules, token=token, **variables)
    assert server_of(child).pid != process.pid
    assert server_of(child).ppid() == os.getpid()


@pytest.mark.parametrize(
    ("folder", "file", "is_forked"),
    [
        ("here", "artifacts/runs/document.json", True),
        ("dask-scratch-space/worker", "storage/spilled", True),
        ("dask-scratch-space/worker", "sent_by_dask.py", False),
    ],
)
def test_what_comes_to_stand_in_a_folder_of_the_path_matters_where_it_is_code_of_dasks(
    begin, library, start, tmp_path, monkeypatch, folder, file, is_forked
) -> None:
    library()
    place = tmp_path / folder
    if folder == "here":
        monkeypatch.syspath_prepend(str(place))
    process, token = begin()
    if folder != "here":
        monkeypatch.syspath_prepend(str(place))
    (place / file).parent.mkdir(parents=True)
    (place / file).touch()
    child = start(modules=["slow_library"], token=token)
    assert (server_of(child).ppid() == process.pid) == is_forked


@pytest.mark.parametrize(
    "text",
    ["os.abort()", "raise ImportError('not here')", "threading.Thread(target=wait).start()"],
    ids=["crashes", "fails", "starts a thread"],
)
def test_a_library_that_it_cannot_load_is_left_to_the_children(begin, library, start, text) -> None:
    wait = "import threading\nwait = threading.Event().wait\n"
    imported = library(f"{wait}if '-' * 10 in os.environ['PARTWISE_CHILD']: {text}")
    process, token = begin()
    child = start(modules=["slow_library"], token=token)
    assert process.wait(10) != 0
    assert server_of(child).ppid() == os.getpid()
    assert imported.read_text().split()[-1] == str(child.pid)


def test_one_that_is_killed_while_it_loads_is_done_without(begin, library, start, tmp_path) -> None:
    flag = tmp_path / "loading"
    once = f"if not os.path.exists({str(flag)!r}): open({str(flag)!r}, 'w'); time.sleep(60)"
    library(f"import time\n{once}")
    process, token = begin()
    wait_for(flag.exists, "it loads")
    killed = subprocess.Popen(["sh", "-c", f"sleep 0.5; kill -9 {process.pid}"])
    child = start(modules=["slow_library"], token=token)
    assert killed.wait() == 0
    assert server_of(child).ppid() == os.getpid()


def test_one_that_hangs_is_done_without(begin, library, start, tmp_path, monkeypatch) -> None:
    library("import time\nif '-' * 10 in os.environ['PARTWISE_CHILD']: time.sleep(600)")
    monkeypatch.setattr(warm_server, "ANSWER_S", 2.0)
    process, token = begin()
    child = start(modules=["slow_library"], token=token)
    assert server_of(child).ppid() == os.getpid()
    assert process.poll() is None


def test_what_was_forked_from_one_that_is_killed_goes_on(begin, library, start) -> None:
    library()
    process, token = begin()
    child = start(modules=["slow_library"], token=token)
    server = server_of(child).pid
    process.kill()
    process.wait()
    again = start(owner="other", modules=["slow_library"], token=token)
    assert server_of(again).pid == server


def test_a_killed_server_of_a_worker_takes_its_children_along(begin, library, start) -> None:
    library()
    process, token = begin()
    child = start(modules=["slow_library"], token=token)
    os.kill(server_of(child).pid, signal.SIGKILL)
    wait_for(child.has_ended, "the child ends")
    wait_for(lambda: not is_running(child.pid), "nothing is left of it")
    again = start(modules=["slow_library"], token=token)
    assert server_of(again).ppid() == os.getpid()
    assert process.poll() is None


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
@pytest.mark.parametrize("of_machine", [False, True], ids=["", "and the machine's"])
def test_a_killed_worker_takes_its_children_along(
    begin, library, tmp_path, number, of_machine
) -> None:
    library()
    process, token = begin()
    (tmp_path / "work.pkl").write_bytes(b"cslow_library\nos\n.")
    words = [sys.executable, "-c", f"import sys; sys.path[:] = {sys.path}\n{WORKER}", tmp_path]
    with subprocess.Popen(
        [*words, token], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as worker:
        pids = [int(word) for word in worker.stdout.readline().split()]
        server = psutil.Process(pids[1]).parent()
        assert server.ppid() == process.pid
        if of_machine:
            process.kill()
        worker.send_signal(number)
    wait_for(lambda: not any(map(is_running, [*pids, server.pid])), "all of them end", 15)
    assert (process.poll() is None) is not of_machine


@pytest.mark.parametrize("name", ["COLUMNS", "__DASK_PARENT_PID"])
def test_what_a_driver_sets_in_passing_makes_no_difference(
    begin, library, start, monkeypatch, name
) -> None:
    library()
    process, token = begin()
    # As an interactive Python does, and Dask with the first cluster.
    monkeypatch.setenv(name, "80")
    child = start(modules=["slow_library"], token=token)
    assert server_of(child).ppid() == process.pid
    assert begin() == (process, token)


def test_the_working_directory_of_an_interactive_driver_is_that_of_its_workers(
    begin, library, start, monkeypatch
) -> None:
    library()
    with monkeypatch.context() as patch:
        # As in a notebook, a prompt and `python -c`.
        patch.setattr(sys, "path", ["", *sys.path])
        process, token = begin()
    # As Dask has it in what it starts.
    monkeypatch.setattr(sys, "path", [os.getcwd(), *sys.path])
    child = start(modules=["slow_library"], token=token)
    assert server_of(child).ppid() == process.pid


@pytest.mark.skipif(os.getuid() != 0, reason="only root may become another user")
def test_another_user_gets_nothing_of_it(begin, library, start) -> None:
    library()
    process, token = begin()
    child = start(modules=["slow_library"], token=token)
    [name] = set(re.findall(rf"@(partwise/warm/{token}/\w+)", Path("/proc/net/unix").read_text()))
    code = (
        "import os, socket, sys; os.setuid(65534);"
        "s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET); s.settimeout(10);"
        "s.connect(chr(0) + sys.argv[1]); print(s.recv(10))"
    )
    words = [sys.executable, "-c", code, name]
    stranger = subprocess.run(words, capture_output=True, text=True, check=False)
    assert stranger.stdout == "b''\n" or "ConnectionResetError" in stranger.stderr
    assert psutil.Process(process.pid).children() == [server_of(child)]


def _look(data, context):
    found = {**look(), "server": psutil.Process().parent().parent().cmdline()}
    context.upload(json.dumps(found).encode(), "found.json")


def test_partitions_find_what_they_would_find_without_it(tmp_path, monkeypatch) -> None:
    found = []
    for number in range(2):
        run = map_partitions(
            pa.table({"key": ["a"], "x": [1]}),
            "key",
            _look,
            store=tmp_path / str(number),
            cluster=LocalCluster(workers=1),
        )
        found.append(
            json.loads(run.read_artifact(run.ledger["partition_id"][0].as_py(), "found.json"))
        )
        monkeypatch.setattr(MACHINE_SERVERS, "begin", lambda *_: "")
    with_it, without = ("processes.machine_server" in str(each.pop("server")) for each in found)
    assert (with_it, without) == (True, False)
    for each in found:
        each["path"] = [place for place in each["path"] if "dask-scratch-space" not in place]
        # Set in a driver that has started a cluster before.
        each["variables"].pop("__DASK_PARENT_PID", None)
    assert found[0] == found[1]


def test_a_driver_that_can_start_no_process_does_without(machine, monkeypatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise BlockingIOError("too many processes")

    monkeypatch.setattr("partwise.processes.machine_server._starter.start", refuse)
    assert machine.begin(CHILD, {}, []) == ""
