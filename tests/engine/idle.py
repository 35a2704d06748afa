"""A helper process that does nothing, as long as its parent lives."""

import functools
import os
import time

from partwise.processes.starting import Starter, become_child


@functools.cache
def helper() -> int:
    """Start one for this process, and return its process ID."""
    return Starter("test").start("tests.engine.idle", str(os.getpid())).pid


def main(parent_pid: str) -> None:
    become_child(int(parent_pid))
    time.sleep(300)
