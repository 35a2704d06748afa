"""The process above a rank: it ends all that the rank leaves behind, whatever ends the worker.

It forks the rank before anything large is imported, so that it stays small. What the rank starts
comes to it when its own parent ends, also out of other sessions. When the worker is gone, it kills
all of these; when the rank has ended, it does so too, and then ends in the same way.

Linux only.
"""

import ctypes
import json
import os
import resource
import signal
import sys
import traceback
from contextlib import suppress
from pathlib import Path
from types import FrameType

from partwise.engine.process_family import (
    adopt_orphans,
    descendants_of,
    end_all,
    end_children,
    end_with_parent,
    is_running,
)
from partwise.gangs.rank_settings import RankSettings, read_settings
from partwise.processes import LOST_PARENT

_PR_SET_PDEATHSIG = 1
_NOT_FOUND = 127
"""As a shell ends where there is no such command."""


def main(argument: str) -> None:
    """Run one rank.

    Args:
        argument: JSON: the descriptor of the settings, and the process that started this one.
    """
    settings_fd, parent_pid = json.loads(argument)
    _watch_parent(parent_pid)
    adopt_orphans()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with suppress(OSError):
        # Should the machine run out of memory, the kernel takes a rank, not the worker.
        Path("/proc/self/oom_score_adj").write_text("1000")
    settings = read_settings(settings_fd)
    guard_pid = os.getpid()
    rank_pid = os.fork()
    if rank_pid == 0:
        _become_rank(settings, guard_pid)
    for descriptor in settings.descriptors():
        os.close(descriptor)
    status = os.waitpid(rank_pid, 0)[1]
    end_children()
    _end_like(status)


def _watch_parent(parent_pid: int) -> None:
    def on_signal(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
        # A SIGTERM from the worker is for the rank, which has got it too.
        if os.getppid() != parent_pid:
            _end_orphaned()

    signal.signal(signal.SIGTERM, on_signal)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    # The parent may have ended before that call: then nobody would tell this process.
    if os.getppid() != parent_pid:
        os._exit(LOST_PARENT)


def _end_orphaned() -> None:
    own = os.getpid()
    end_all(lambda: [pid for pid in descendants_of(own) if is_running(pid)])
    os._exit(LOST_PARENT)


def _become_rank(settings: RankSettings, guard_pid: int) -> None:
    try:
        end_with_parent(guard_pid)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.chdir(settings.working_directory)
        if settings.words:
            # A command binds its port by itself: it is released just now.
            for descriptor in settings.descriptors():
                os.close(descriptor)
            os.execvp(settings.words[0], list(settings.words))  # noqa: S606 (the caller's command)
        from partwise.gangs.rank import run

        run(settings)
    except OSError as error:
        sys.stderr.write(f"{settings.words[:1] or 'the rank'}: {error}\n")
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(_NOT_FOUND)


def _end_like(status: int) -> None:
    """End as the rank has ended, so that the worker learns of it."""
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        if number != signal.SIGKILL:
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    os._exit(os.waitstatus_to_exitcode(status) & 0xFF)
