"""Child processes that end with their parent."""

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from partwise.processes.starting import (
    LOST_PARENT,
    Starter,
    describe_exit,
    python_words,
    reap,
)
from partwise.processes.surroundings import digest_of, own_settings

MODULE = """
import os, sys, time
from partwise.processes.starting import become_child
def main(argument):
    become_child(int(argument))
    print(os.getpid(), flush=True)
    time.sleep(60)
"""


@pytest.fixture
def module(tmp_path, monkeypatch) -> str:
    (tmp_path / "child_of_test.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    return "child_of_test"


def test_a_child_outlives_the_thread_that_asked_for_it(module) -> None:
    starter = Starter("test")
    started: list[subprocess.Popen[bytes]] = []

    def ask() -> None:
        started.append(starter.start(module, str(os.getpid()), stdout=subprocess.PIPE))

    thread = threading.Thread(target=ask)
    thread.start()
    thread.join()
    with started[0] as process:
        assert int(process.stdout.readline()) == process.pid
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.2)
        # It is the starter's thread that it lives by.
        starter.close()
        assert process.wait(10) == -signal.SIGKILL


def test_a_child_whose_parent_is_another_ends_at_once(module) -> None:
    starter = Starter("test")
    with starter.start(module, "1", stdout=subprocess.PIPE) as process:
        assert process.wait(10) == LOST_PARENT
        assert process.stdout.read() == b""
    starter.close()


INTERRUPTED = """
import threading
from partwise.processes.starting import LastingThread

def start_and_interrupt(self):
    start(self)
    raise KeyboardInterrupt

start, threading.Thread.start = threading.Thread.start, start_and_interrupt
thread = LastingThread("test")
try:
    thread.call(print, "not reached")
except KeyboardInterrupt:
    print("interrupted")
threading.Thread.start = start
"""
AGAIN = "print(thread.call(threading.current_thread).name)"


@pytest.mark.parametrize(("more", "said"), [("", []), (AGAIN, ["partwise-test_0"])])
def test_a_process_ends_that_was_interrupted_as_a_lasting_thread_began(more, said) -> None:
    """It hung for ever: Python tells only threads to end whose start it has noted."""
    command = [sys.executable, "-c", INTERRUPTED + more]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.split() == ["interrupted", *said]


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (0, "exit status 0"),
        (3, "exit status 3"),
        (-signal.SIGSEGV, "signal 11 (SIGSEGV)"),
        (-signal.SIGKILL, "signal 9 (SIGKILL; the machine may have run out of memory)"),
        (-40, "signal 40"),
    ],
)
def test_an_end_in_words(code, words) -> None:
    assert describe_exit(code) == words


def test_what_is_no_text_in_the_import_path_is_passed_over_as_python_does(monkeypatch) -> None:
    """As of a script that says `sys.path.append(Path(...))`, which has no effect."""
    words, digest, path = python_words("m", "x"), digest_of("m", {}, ()), own_settings()["path"]
    monkeypatch.setattr(sys, "path", [Path("/nowhere"), *sys.path])
    assert (python_words("m", "x"), digest_of("m", {}, ())) == (words, digest)
    assert json.loads(json.dumps(own_settings()))["path"] == path


def test_it_loads_next_to_nothing() -> None:
    code = "import sys, partwise.processes.starting; print({'numpy', 'pyarrow'} & {*sys.modules})"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.split() == ["set()"]


def test_a_process_is_given_up_where_python_ends_and_starts_no_thread(monkeypatch) -> None:
    """What Python 3.12 does from the moment at which it calls what `atexit` has."""

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't create new thread at interpreter shutdown")

    with subprocess.Popen(["sleep", "60"]) as process, monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        process.terminate()
        reap(process)
    assert process.returncode == -signal.SIGTERM
