"""What is silenced belongs to the whole process, and is given back by however many threads."""

import logging
import subprocess
import sys
import threading

import pytest

from partwise.exports.quiet import quietly
from partwise.transformers.quiet import quiet


def shared() -> tuple[object, int, int]:
    return sys.stdout, logging.root.manager.disable, logging.getLogger("transformers").level


@pytest.mark.parametrize("silence", [quietly, quiet])
def test_of_two_threads_each_gives_back_what_was_there(silence):
    with silence():
        pass  # imports transformers, which sets a level
    before = shared()
    is_inside, may_leave = threading.Event(), threading.Event()

    def other() -> None:
        with silence():
            is_inside.set()
            may_leave.wait(5)

    thread = threading.Thread(target=other)
    with silence():
        thread.start()
        is_inside.wait(0.2)  # only if both are silent at a time
    may_leave.set()
    thread.join(5)
    assert shared() == before
    assert is_inside.is_set()


FORK = """
import os, threading
from partwise.exports.quiet import quietly
holds = threading.Event()

def other():
    with quietly():
        holds.set()
        threading.Event().wait()

threading.Thread(target=other, daemon=True).start()
holds.wait()
child = os.fork()
if not child:
    with quietly():
        os._exit(7)
os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_a_process_that_is_forked_meanwhile_waits_for_nobody():
    command = [sys.executable, "-W", "ignore", "-c", FORK]
    assert subprocess.run(command, timeout=20, check=False).returncode == 7
