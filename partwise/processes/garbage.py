"""How often Python looks for garbage.

After 700 new objects it goes through them, and time and again through all that there are. A process
that imports much spends a fifth of that time so, and finds next to nothing.
"""

import atexit
import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager

_RARELY = (200_000, 10, 10)
"""Python's own are 700, 10 and 10."""


def collect_rarely() -> None:
    """Look for garbage rarely in this process, which is ours: users' functions run in others.

    And not at all as it ends, which takes as long again as its imports unless it knows of none.
    """
    gc.set_threshold(*_RARELY)
    atexit.register(_leave_garbage)


def _leave_garbage() -> None:
    """Have the end of the process not look for garbage, unless a library tells of what is left."""
    # DuckDB writes 60 lines to stderr, "nanobind: leaked 27 instances!".
    if "duckdb" not in sys.modules:
        gc.freeze()


@contextmanager
def never_collected() -> Iterator[None]:
    """Look for no garbage while a block imports, nor later among what is there at its end.

    For processes that others are forked from: a collection in a fork writes to every object, and so
    copies the memory of all. One in the block would take 0.05 s and find next to nothing.
    """
    gc.disable()
    try:
        yield
        # Before it is on again: Python would look at once.
        gc.freeze()
    finally:
        gc.enable()


@contextmanager
def collecting_rarely() -> Iterator[None]:
    """Look for garbage rarely for the time of a block that imports, or captures a graph."""
    before = gc.get_threshold()
    gc.set_threshold(*_RARELY)
    try:
        yield
    finally:
        # A user's module may have set its own.
        if gc.get_threshold() == _RARELY:
            gc.set_threshold(*before)
