"""`partwise runs show RUN --follow`: how far a run is, until it ends."""

import re
import sys
import threading
import time

import pytest

from partwise.flows.cli import run_following
from partwise.flows.cli.main import main
from partwise.outcomes import CANCELLED


@pytest.fixture
def follow(make_run, capsys, monkeypatch):
    """Follow a run that ends, as `end` has it, as soon as it has been looked at a few times."""
    monkeypatch.setattr("partwise.store.lease.LOOK_S", 0.01)
    monkeypatch.setattr(run_following, "LINE_S", 0.0)

    def call(end, *words: str) -> tuple[int, str, str]:
        make_run.begin(keys=["a", "b"])

        def go_on() -> None:
            time.sleep(0.5)
            make_run.commit(("a", "DONE", 1.0))
            time.sleep(0.5)
            end()

        thread = threading.Thread(target=go_on)
        thread.start()
        code = main(["runs", "show", "run", "--follow", *words, "--store", make_run.store.url])
        thread.join()
        return code, *capsys.readouterr()

    return call


def test_lines_come_until_it_ends(follow, make_run) -> None:
    def end() -> None:
        make_run.commit(("b", "FAILED", 1.0))
        make_run.end(2)

    code, out, _ = follow(end)
    assert code == 3
    lines = [line for line in out.splitlines() if line.startswith("run: ")]
    assert lines[:2] == [
        "run: IN_PROGRESS: 0 of 2 (2 PENDING)",
        "run: IN_PROGRESS: 1 of 2 (1 PENDING, 1 DONE)",
    ]
    assert re.search(r"run  PARTIAL_FAILURE", out)


def test_one_that_is_cancelled(follow, make_run) -> None:
    def end() -> None:
        make_run.commit(("b", "CANCELLED", 1.0))
        make_run.end(2, CANCELLED)

    assert follow(end)[0] == 1


def test_one_whose_process_lets_go_of_it(follow, make_run) -> None:
    code, out, _ = follow(make_run.leave)
    assert code == 1
    assert re.search(r"partitions +2 so far: 1 DONE, 1 PENDING", out)


def test_on_a_terminal_one_line_is_renewed(follow, make_run, monkeypatch) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("TERM", "xterm")

    def end() -> None:
        make_run.commit(("b", "DONE", 1.0))
        make_run.end(2)

    code, out, _ = follow(end)
    assert code == 0
    assert "\x1b[2K" in out


def test_one_that_has_ended_is_shown_at_once(make_run, capsys) -> None:
    make_run.begin()
    make_run.commit(("a", "DONE", 1.0))
    make_run.end(1)
    assert main(["runs", "show", "run", "--follow", "--store", make_run.store.url]) == 0
    assert "run  SUCCESS" in capsys.readouterr().out


@pytest.mark.parametrize("more", ["--failures", "--json", "--open", "--key=a"])
def test_it_is_given_by_itself(make_run, capsys, more) -> None:
    code = main(["runs", "show", "run", "--follow", more, "--store", make_run.store.url])
    assert code == 2
    assert "give it by itself" in capsys.readouterr().err
