"""How often processes look for garbage."""

import gc
import subprocess
import sys

import pytest

from partwise.processes.garbage import collecting_rarely


def test_garbage_is_looked_for_rarely_as_modules_are_imported() -> None:
    ours = gc.get_threshold()
    before = (700, 10, 10)
    gc.set_threshold(*before)
    with collecting_rarely():
        assert gc.get_threshold()[0] > 100 * before[0]
    assert gc.get_threshold() == before
    try:
        with collecting_rarely():
            gc.set_threshold(11, 12, 13)
        assert gc.get_threshold() == (11, 12, 13), "a module's own choice stands"
    finally:
        gc.set_threshold(*ours)


def test_a_process_of_ours_looks_rarely_and_not_at_all_as_it_ends() -> None:
    code = """
import gc
from partwise.processes.garbage import collect_rarely
class Left:
    def __init__(self): self.itself = self
    def __del__(self): print("found")
collect_rarely()
Left()
print(gc.get_threshold()[0] > 70_000)
gc.collect()
Left()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "found"], "the second one is nobody's to look for"


def test_what_duckdb_leaves_is_looked_for_as_a_process_ends() -> None:
    """It writes to stderr how much was left: of the process of a command, of all that it has."""
    pytest.importorskip("duckdb")
    code = """
from partwise.processes.garbage import collect_rarely
collect_rarely()
import duckdb
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr == ""
