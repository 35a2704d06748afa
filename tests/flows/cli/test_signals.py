"""Signals that arrive within a finalizer, where Python forgets what a handler raises."""

import signal
import subprocess
import sys

import pytest

SCRIPT = """
import time
from partwise.flows.cli.signals import end_by_signals


class Busy:
    def __del__(self):
        print("in a finalizer", flush=True)
        time.sleep(20)


end_by_signals()
try:
    Busy()
    Busy()
    time.sleep(20)
except BaseException as error:
    print(type(error).__name__, error)
"""


@pytest.mark.parametrize(
    ("number", "raised"),
    [(signal.SIGINT, "KeyboardInterrupt"), (signal.SIGTERM, "SystemExit 143")],
)
def test_a_signal_within_a_finalizer_is_heard_of_after_it(number, raised):
    with subprocess.Popen(
        [sys.executable, "-c", SCRIPT],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "in a finalizer\n"
        process.send_signal(number)
        said, _ = process.communicate(timeout=15)
    assert said.split("\n")[-2].strip() == raised
    assert "Exception ignored" not in said


def test_what_a_finalizer_raises_by_itself_ends_nothing():
    script = """
import sys, time
from partwise.flows.cli.signals import end_by_signals


class Leaves:
    def __del__(self):
        sys.exit(3)


end_by_signals()
Leaves()
time.sleep(0.2)
print("goes on")
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout == "goes on\n"
    assert "SystemExit: 3" in done.stderr
