"""The process between a worker and its child: it outlives either, and ends what they leave.

A child may be killed at any time, by the kernel when memory is short, and so may its worker. What
the functions had started would then belong to nobody: a process with a session and an environment
of its own, to which nothing leads. The keeper is forked from a warm server, runs nothing of the
user's, and becomes the parent of all that the child leaves. The ranks of gangs have one as well.
"""

import os
import resource
import signal
import struct
from collections.abc import Mapping
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

from partwise.processes.family import (
    adopt_orphans,
    clears_up,
    descendants_of,
    end_children,
    kill,
    stop,
)
from partwise.processes.forks import end_like
from partwise.processes.garbage import collecting_rarely
from partwise.processes.shared_files import (
    files_there,
    held_files,
    own_folder_of,
    remove_files,
    remove_own_files,
)
from partwise.processes.starting import become_child, end_with_parent

KEEPER_S = 10.0
"""For so long a keeper has time to end all that is below it, and to remove what that leaves."""
PID = struct.Struct("<q")
"""Where the process that is kept leaves its number; 0: it has not begun."""
_SIGNALS = frozenset({signal.SIGCHLD, signal.SIGTERM})


def main(module: str, settings: Mapping[str, Any], pid_fd: int, parent_pid: int) -> None:
    """Start a child, wait for its end, or for SIGTERM, and then end all that is below.

    This process ends as the child has, so that the worker learns of it.
    """
    become_child(parent_pid, signal.SIGTERM)
    adopt_orphans()
    # Held back, so that none is lost between two looks.
    signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    there = files_there()
    keeper = os.getpid()
    pid = os.fork()
    if pid == 0:
        _become_kept(keeper, pid_fd)
        with collecting_rarely():
            loaded = import_module(module)
        loaded.main(settings)
        os._exit(0)
    # The worker is to see the end of the connection when the child is gone.
    os.closerange(3, resource.getrlimit(resource.RLIMIT_NOFILE)[0])
    _keep(pid, there, str(settings["directory"]), str(settings["token"]))


def _become_kept(keeper: int, pid_fd: int) -> None:
    # Of a session of its own, so that a signal to its group does not end the keeper.
    os.setsid()
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
    end_with_parent(keeper)
    with suppress(OSError):
        # Should the machine run out of memory, the kernel takes this process, not the worker.
        Path("/proc/self/oom_score_adj").write_text("1000")
    os.pwrite(pid_fd, PID.pack(os.getpid()), 0)
    os.close(pid_fd)


def _keep(pid: int, there: frozenset[int], directory: str, token: str) -> None:
    status = 0
    while True:
        is_asked = signal.sigwait(_SIGNALS) == signal.SIGTERM
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended or is_asked:
            break
    # Held still first: what is open and mapped is known only as long as they are there. Those that
    # clear up go on, since they do that when all others have ended.
    family = set(descendants_of(os.getpid()))
    others = {one for one in family if one == pid or not clears_up(one)}
    stop(others)
    held = held_files(family)
    if not ended:
        kill(others)
        status = os.waitpid(pid, 0)[1]
    end_children()
    remove_own_files(token, own_folder_of(directory, token))
    remove_files(held - there, {pid, *family})
    end_like(status)
