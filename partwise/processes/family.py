"""Processes that a child and its functions started: found through /proc, and ended.

Linux only. A child takes in the processes whose parents have ended (PR_SET_CHILD_SUBREAPER), so all
that a function starts stays below it, also in a session of its own.

Some of these processes only clear up: when those that they serve have ended, they remove their
semaphores and shared memory, and end as well. To kill them would leave these for ever.
"""

import contextlib
import ctypes
import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import psutil

CLEARING_S = 2.0
"""For so long a process that clears up is waited for."""
BEGINNING_S = 1.0
"""For so long a process is waited for that is about to begin with its program."""
_CLEARS_UP = (b"resource_tracker import main", b"torch_shm_manager")
_PR_SET_CHILD_SUBREAPER = 36
_ENVIRONMENT_END = 51 - 3
"""Of /proc/PID/stat, whose fields count from 1, behind the name, which is the second."""


def adopt_orphans() -> None:
    """Become the parent of descendants whose own parent ends."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)


def children_of(pid: int) -> Iterator[int]:
    """Yield the children of a process."""
    with contextlib.suppress(OSError):
        # By thread, as the kernel keeps them: each has the children that it has started.
        for task in os.listdir(f"/proc/{pid}/task"):
            yield from map(int, Path(f"/proc/{pid}/task/{task}/children").read_text().split())


def descendants_of(pid: int) -> Iterator[int]:
    """Yield all processes below a process."""
    for child in children_of(pid):
        yield child
        yield from descendants_of(child)


def is_running(pid: int) -> bool:
    """Whether a process is there, and not merely waiting to be asked how it ended."""
    return state_of(pid) not in ("", "Z", "X")


def state_of(pid: int) -> str:
    """Return the letter of a process's state, as in /proc; empty when it is gone."""
    try:
        # Behind the last parenthesis: the name of the program may have some of its own.
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""


def clears_up(pid: int) -> bool:
    """Whether a process is one that clears up when those that it serves have ended."""
    line = command_of(pid).encode()
    return any(part in line for part in _CLEARS_UP)


def command_of(pid: int) -> str:
    """Return the command line of a process."""
    try:
        line = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return ""
    return line.replace(b"\0", b" ").decode(errors="replace").strip()


def kill(pids: Iterable[int]) -> None:
    """Kill processes."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)


def stop(pids: Iterable[int]) -> None:
    """Hold processes still, and wait until they are."""
    stopped = []
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGSTOP)
            stopped.append(pid)
    for pid in stopped:
        for _ in range(100):
            if state_of(pid) in ("", *"TtZX"):
                break
            time.sleep(0.001)


def end_all(find: Callable[[], Iterable[int]]) -> None:
    """End processes until none is found that can be ended; those that clear up, last.

    `find` is asked again, as they may start others meanwhile.
    """
    deadline = time.monotonic() + CLEARING_S
    while found := set(find()):
        clearing = {pid for pid in found if clears_up(pid)}
        now = time.monotonic()
        kill(found if now > deadline else found - clearing)
        # Those that start others go on being ended for a while; some cannot be, as of a dead disk.
        if now > deadline + (CLEARING_S if found - clearing else 0):
            return
        time.sleep(0.002)


def end_children(spared: frozenset[int] = frozenset()) -> None:
    """End all processes below this one, and ask how they ended, so that nothing is left of them."""

    def find() -> list[int]:
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        # Also one that has ended since: it is asked the next time.
        return [pid for pid in children_of(os.getpid()) if pid not in spared]

    end_all(find)


def find_marked(needle: bytes, group: int | None = None) -> list[int]:
    """Return the running processes whose environment holds a text, or that are of a group."""
    found = []
    for pid in psutil.pids():
        with contextlib.suppress(OSError):
            is_found = needle in environment_of(pid)
            if (is_found or (group is not None and os.getpgid(pid) == group)) and is_running(pid):
                found.append(pid)
    return found


def environment_of(pid: int) -> bytes:
    """Return the environment that a process was started with, each variable ended by a zero byte.

    Raises:
        OSError: It is gone, a part of the kernel, or somebody else's.
    """
    shown = Path(f"/proc/{pid}/environ")
    content = shown.read_bytes()
    deadline = time.monotonic() + BEGINNING_S
    while not content and time.monotonic() < deadline:
        # First this: it may begin between the two.
        has_begun = _has_begun(pid)
        content = shown.read_bytes()
        if has_begun:
            break
        time.sleep(0.001)
    return content


def _has_begun(pid: int) -> bool:
    """Whether the kernel has laid out the environment of a process' program.

    It closes descriptors, for which Popen waits, before that: of those just started, a look at once
    missed a hundredth on an idle machine, and a quarter on a busy one.
    """
    # OSError for a part of the kernel: it has no program.
    os.readlink(f"/proc/{pid}/exe")
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return fields[_ENVIRONMENT_END] != "0"
