"""A process under its keeper: what is the same for children of partitions and ranks of gangs."""

import json
import os
import signal
from pathlib import Path

import pytest

from partwise.processes.family import is_running
from partwise.processes.kept import KeptProcess
from partwise.processes.warm_server import WarmServers
from tests.own_cluster import wait_for


@pytest.fixture(scope="module")
def servers():
    made = WarmServers()
    yield made
    made.close()


@pytest.fixture
def start(servers, tmp_path):
    """Start a process that looks at itself, and then does something; its folder is `tmp_path`."""

    def call(then: str, own: str = "own") -> KeptProcess:
        log_fd = os.open(tmp_path / "log", os.O_RDWR | os.O_CREAT | os.O_APPEND)
        note_fd = os.memfd_create("note")
        try:
            return servers.start(
                "tests.processes.kept_look",
                {"directory": str(tmp_path), "token": f"token-{then}", "then": then},
                {"log_fd": log_fd, "note_fd": note_fd},
                "mark",
                {**os.environ, "PARTWISE_OF_ALL": "all", "PARTWISE_OF_ONE": "of all"},
                {"PARTWISE_OF_ONE": own},
            )
        finally:
            os.close(log_fd)
            os.close(note_fd)

    return call


def test_it_has_a_session_of_its_own_and_is_what_the_kernel_takes_first(start, tmp_path) -> None:
    process = start("waits")
    wait_for((tmp_path / "look").exists, "it does not look")
    look = json.loads((tmp_path / "look").read_text())
    before = Path("/proc/self/oom_score_adj").read_text().strip()
    assert look == {
        "pid": process.pid,
        "session": process.pid,
        "keeper": process.keeper_pid,
        "keeper's session": process.keeper_pid,
        "badness": "1000",
        "keeper's badness": before,
        "variables": ["all", "own"],
    }
    assert process.family() == [process.pid]
    process.wait_end()
    assert process.describe_end().startswith("signal 9 (SIGKILL")


def test_variables_of_its_own_need_no_other_server(start, servers, tmp_path) -> None:
    for own in ("one", "another"):
        process = start("returns", own)
        wait_for(lambda process=process: process.poll() is not None, "it goes on")
        assert json.loads((tmp_path / "look").read_text())["variables"] == ["all", own]
    assert len(servers._servers) == 1


@pytest.mark.parametrize(("then", "code"), [("returns", 0), ("raises", 1), ("exits", 1)])
def test_its_end_is_that_of_a_program(start, tmp_path, then, code) -> None:
    """Nothing of ours leaves by `sys.exit`: it is an exception like others."""
    process = start(then)
    wait_for(lambda: process.poll() is not None, "it goes on")
    assert process.describe_end() == f"exit status {code}"
    assert ("it raises" in (tmp_path / "log").read_text()) is (then == "raises")


@pytest.mark.parametrize("then", ["waits", "ignores"])
def test_it_is_asked_first_and_killed_by_its_keeper(start, tmp_path, then) -> None:
    process = start(then)
    wait_for((tmp_path / ("look" if then == "waits" else "ignores")).exists, "it does not begin")
    process.ask_to_end()
    if then == "waits":
        wait_for(lambda: process.poll() is not None, "it goes on")
        assert process.poll() == -signal.SIGTERM
    else:
        assert is_running(process.pid)
        process.wait_end()
        assert process.poll() == -signal.SIGKILL


@pytest.mark.parametrize("who", ["keeper", "both"])
def test_one_that_is_stopped_is_ended_without_a_wait(start, tmp_path, monkeypatch, who) -> None:
    monkeypatch.setattr("partwise.processes.kept.KEEPER_S", 600.0)
    process = start("waits")
    wait_for((tmp_path / "look").exists, "it does not look")
    for pid in (process.keeper_pid, process.pid)[: 1 if who == "keeper" else 2]:
        os.kill(pid, signal.SIGSTOP)
    wait_for(process.end, "it goes on")
    assert not is_running(process.pid)


def test_a_word_to_the_keeper_by_anybody_ends_all(start, tmp_path) -> None:
    process = start("waits")
    wait_for((tmp_path / "look").exists, "it does not look")
    os.kill(process.keeper_pid, signal.SIGTERM)
    wait_for(lambda: process.poll() is not None, "it goes on")
    assert not is_running(process.pid)
