"""What children are forked from: it loads what they use, and who breaks it breaks none of them."""

import json
import os
import pickle
import random
import signal
import subprocess
import threading
from pathlib import Path

import pytest

from partwise.engine.worker.child import ChildPlan, ChildProcess, borrow_child, discard_child
from partwise.errors import ClusterError
from partwise.processes import warm_server
from partwise.processes.family import children_of, is_running
from partwise.processes.forking import ENVIRONMENT_MARK, MARK_BYTES
from partwise.processes.starting import python_words
from partwise.processes.worker_server import user_variables
from tests.engine.process_look import LIBRARIES, Look
from tests.own_cluster import wait_for


def server_pids() -> list[int]:
    return [pid for pid in children_of(os.getpid()) if is_server(pid)]


def is_server(pid: int) -> bool:
    words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    return b"partwise.processes.warm_server" in words and is_running(pid)


def variables_of(pid: int) -> list[bytes]:
    return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")


def test_what_a_child_has_used_is_loaded_once_for_those_after_it(servers, library, start) -> None:
    imported = library()
    first = start().pid
    assert imported.read_text().split() == [str(first)]
    servers.learn("work", ["slow_library"])
    start()
    start()
    _, server = sorted(server_pids())
    assert imported.read_text().split() == [str(first), str(server)]
    other = start(work_name="of others").pid
    assert imported.read_text().split() == [str(first), str(server), str(other)]


def test_what_a_work_names_is_loaded_before_its_first_child(servers, library, start) -> None:
    imported = library()
    start(modules=["slow_library"])
    start(modules=["slow_library"])
    [server] = server_pids()
    assert imported.read_text().split() == [str(server)]
    other = start(work_name="of others").pid
    assert imported.read_text().split() == [str(server), str(other)]


def test_what_only_later_children_have_imported_is_not_taken_for_used(servers) -> None:
    """They have what their server had: libraries would come and never go."""
    servers.learn("work", ["pandas"])
    servers.learn("work", ["pandas", "torch"])
    assert servers._used == {"work": ("pandas",)}


@pytest.mark.parametrize(
    "text",
    [
        "if {here}: os.abort()",
        "if {here}: raise ImportError('not here')",
        "import threading\nif {here}: threading.Thread(target=threading.Event().wait).start()",
    ],
    ids=["crashes", "fails", "starts a thread"],
)
def test_a_library_that_cannot_be_loaded_ahead_is_left_to_the_children(
    servers, library, start, text
) -> None:
    here = "'-' * 10 in os.environ['PARTWISE_CHILD']"
    imported = library(text.format(here=here))
    start()
    servers.learn("work", ["slow_library"])
    pids = [start().pid, start().pid]
    assert imported.read_text().split()[-2:] == [str(pid) for pid in pids]
    assert len(imported.read_text().split()) == 4, "it is tried ahead once"


def test_a_child_and_its_keeper_bear_its_mark_and_the_server_none(library, start) -> None:
    library()
    child = start(PARTWISE_TEST="à la carte")
    [server] = server_pids()
    keeper = child._process.keeper_pid
    mark = f"{ENVIRONMENT_MARK}={child.mark}".encode()
    assert mark in variables_of(child.pid)
    assert mark in variables_of(keeper)
    assert "PARTWISE_TEST=à la carte".encode() in variables_of(child.pid)
    assert f"{ENVIRONMENT_MARK}={'-' * MARK_BYTES}".encode() in variables_of(server)


def test_a_child_finds_what_a_process_of_its_own_would_find(servers, tmp_path) -> None:
    """But for the numbers that it draws, which are those of no neighbour."""
    chance = random.Random(7)
    letters = "aZ_0 =é\n\udcff"
    variables = {
        f"PARTWISE_{n}": "".join(chance.choices(letters, k=chance.randrange(30)))
        for n in range(100)
    }
    servers.learn("work", LIBRARIES)
    found = []
    for number in range(3):
        seen, work = tmp_path / f"seen-{number}", tmp_path / f"work-{number}.pkl"
        work.write_bytes(pickle.dumps(Look(str(seen))))
        if number == 0:
            subprocess.run(
                python_words("tests.engine.process_look", str(seen)),
                check=True,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                env=user_variables() | variables,
            )
        else:
            discard_child()
            plan = ChildPlan(
                owner="owner",
                directory=str(tmp_path),
                memory_bytes=2 << 30,
                environment=variables,
                work_name="work",
            )
            child = borrow_child(plan)
            assert child.open_work(str(work)) is None
        found.append(json.loads(seen.read_text()))
    drawn = [each.pop("drawn") for each in found]
    assert len({number for numbers in drawn for number in numbers}) == 6
    for name, value in found[0].items():
        assert found[1][name] == found[2][name] == value, name


def test_other_variables_or_packages_get_another_server(library, start, tmp_path) -> None:
    library()
    start()
    [first] = server_pids()
    child = start(OMP_NUM_THREADS="3")
    assert b"OMP_NUM_THREADS=3" in variables_of(child.pid)
    assert len(server_pids()) == 2
    start()
    start(OMP_NUM_THREADS="3")
    assert len(server_pids()) == 2, "both are kept"
    start(OMP_NUM_THREADS="4")
    start(OMP_NUM_THREADS="5")
    wait_for(lambda: first not in server_pids(), "the one unused for longest ends")


def test_packages_that_were_installed_since_are_found(
    library, start, tmp_path, monkeypatch
) -> None:
    library()
    packages = tmp_path / "site-packages"
    packages.mkdir()
    monkeypatch.syspath_prepend(str(packages))
    start()
    before = server_pids()
    (packages / "newer.dist-info").mkdir()
    os.utime(packages, ns=(1, 1))
    start()
    assert server_pids() != before


def test_a_child_outlives_the_wish_to_end_its_server(servers, library, start) -> None:
    library()
    child = start()
    [server] = server_pids()
    servers.close()
    assert is_server(server)
    assert not child.has_ended()
    discard_child()
    wait_for(lambda: not is_running(server), "it ends with its last child")


def test_a_killed_server_takes_its_children_along_and_is_replaced(library, start) -> None:
    library()
    child = start()
    [server] = server_pids()
    os.kill(server, signal.SIGKILL)
    wait_for(child.has_ended, "the child ends")
    wait_for(lambda: not is_running(child.pid), "nothing is left of it")
    assert child.was_killed()
    assert not start().has_ended()


def test_the_end_of_one_child_is_noticed_while_another_goes_on(library, start, tmp_path) -> None:
    """A descriptor of one that another had inherited would hide its end."""
    library()
    child = start()
    others: list[ChildProcess] = []
    done = threading.Event()

    def work() -> None:
        others.append(start("other"))
        done.wait()
        discard_child()

    thread = threading.Thread(target=work)
    thread.start()
    wait_for(lambda: others, "it starts")
    os.kill(child.pid, signal.SIGKILL)
    with pytest.raises(EOFError):
        child.connection.receive(10)
    wait_for(child.has_ended, "its keeper ends")
    assert child.was_killed()
    assert not others[0].has_ended()
    # Three of the child's own, stdin, stdout and stderr, and what a library may keep open.
    mine, theirs = (len(os.listdir(f"/proc/{pid}/fd")) for pid in (os.getpid(), others[0].pid))
    assert theirs < min(mine, 12)
    done.set()
    thread.join()


def test_how_a_keeper_ended_is_told_by_its_code(servers, library, start) -> None:
    library()
    child = start()
    os.kill(child.pid, signal.SIGSEGV)
    wait_for(child.has_ended, "it ends")
    assert child.describe_end() == "signal 11 (SIGSEGV)"
    child = start()
    child.connection.close()
    wait_for(child.has_ended, "it ends by itself")
    assert child.describe_end() == "exit status 0"


def test_a_server_that_cannot_begin_says_why(servers, library, start, tmp_path) -> None:
    library()
    broken = tmp_path / "libraries" / "msgpack.py"
    broken.write_text("raise ImportError('msgpack is broken here')")
    with pytest.raises(ClusterError, match=r"ended three times.*msgpack is broken here"):
        start()
    assert server_pids() == []


def test_an_interrupted_start_leaves_no_answer_for_the_next(servers, library, start, monkeypatch):
    """The next child would be watched by the number of a process that nobody knows."""
    library()
    start()
    real = warm_server._Server.start

    def interrupted(self, *arguments):
        real(self, *arguments)
        raise KeyboardInterrupt

    monkeypatch.setattr(warm_server._Server, "start", interrupted)
    with pytest.raises(KeyboardInterrupt):
        start("interrupted")
    monkeypatch.setattr(warm_server._Server, "start", real)
    child = start("next")
    assert Path(f"/proc/{child._process.keeper_pid}").exists()
    assert f"{ENVIRONMENT_MARK}={child.mark}".encode() in variables_of(child._process.keeper_pid)


def test_a_child_is_started_where_the_folder_is_gone(library, start, tmp_path, monkeypatch) -> None:
    library()
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert not start().has_ended()
