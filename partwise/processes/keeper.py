"""The process between a worker and its child: it outlives either, and ends what they leave.

A child may be killed at any time, by the kernel when memory is short, and so may its worker. What
the functions had started would then belong to nobody: a process with a session and an environment
of its own, to which nothing leads. The keeper is forked from the process of `warm_server`, runs
nothing of the user's, and becomes the parent of whatever the child leaves. The ranks of gangs have
one as well, which `partwise.gangs.guard` starts.
"""

import json
import os
import resource
import signal
from collections.abc import Callable
from importlib import import_module

from partwise.processes.family import (
    adopt_orphans,
    clears_up,
    descendants_of,
    end_children,
    kill,
    stop,
)
from partwise.processes.forks import end_like
from partwise.processes.shared_files import (
    files_there,
    held_files,
    own_folder_of,
    remove_files,
    remove_own_files,
)
from partwise.processes.starting import become_child, end_with_parent, importing

KEEPER_S = 10.0
"""For so long a keeper has time to end all that is below it, and to remove what that leaves."""
END_ALL = signal.SIGUSR1
"""The word for the guards of ranks; SIGTERM goes to their group, and is for the rank."""
WORDS = (signal.SIGTERM, END_ALL)
"""Each keeper ends all for one of them, and holds both back."""
_SIGNALS = frozenset({signal.SIGCHLD, *WORDS})


def main(module: str, settings: str, parent_pid: int) -> None:
    """Start a child, and end with it.

    Args:
        module: Its `main` is what the child does.
        settings: Of the child, as JSON, for that `main`.
        parent_pid: The process that this one was forked from.
    """
    there = become_keeper(parent_pid)
    parsed = json.loads(settings)
    keeper = os.getpid()
    pid = os.fork()
    if pid == 0:
        _become_child(module, settings, keeper)
    # The worker is to see the end of the connection when the child is gone.
    os.closerange(3, resource.getrlimit(resource.RLIMIT_NOFILE)[0])

    def end_others() -> None:
        token = parsed["token"]
        remove_own_files(token, own_folder_of(parsed["directory"], token))

    keep(pid, there, end_others)


def become_keeper(parent_pid: int, word: signal.Signals = signal.SIGTERM) -> frozenset[int]:
    """Make this process one that keeps what it is about to fork.

    Args:
        parent_pid: The process that started this one. When it ends, all ends.
        word: The worker's word to end all, one of `WORDS`, as `keep` is given it.

    Returns:
        The files of shared memory that are there before.
    """
    become_child(parent_pid, word)
    adopt_orphans()
    # Held back, so that none is lost between two looks.
    signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    return files_there()


def become_kept(keeper: int) -> None:
    """Make this process, which a keeper has just forked, one that ends with it."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
    end_with_parent(keeper)


def _become_child(module: str, settings: str, keeper: int) -> None:
    # Of a session of its own, so that a signal to its group does not end the keeper.
    os.setsid()
    become_kept(keeper)
    with importing():
        loaded = import_module(module)
    loaded.main(settings)


def keep(
    pid: int,
    there: frozenset[int],
    end_others: Callable[[], None] = lambda: None,
    word: signal.Signals = signal.SIGTERM,
) -> None:
    """Wait for the end of the child, or of the worker, or for its word; then end all.

    This process ends as the child has, so that the worker learns of it.

    Args:
        pid: The child.
        there: The files of shared memory that were there before it.
        end_others: Ends what can be found in another way than by its parents.
        word: The signal that has this process end all; others are not meant for it.
    """
    status = 0
    while True:
        is_asked = signal.sigwait(_SIGNALS) == word
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
    end_others()
    remove_files(held - there, {pid, *family})
    end_like(status)
