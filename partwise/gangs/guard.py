"""The process above a rank: a keeper, which ends all that the rank leaves behind.

It forks the rank before anything large is imported, so that it stays small.

Linux only.
"""

import json
import os
import sys
import traceback
from contextlib import suppress
from pathlib import Path

from partwise.gangs.rank_settings import RankSettings, read_settings
from partwise.processes.keeper import END_ALL, become_keeper, become_kept, keep
from partwise.processes.shared_files import own_folder_of, remove_own_files

_NOT_FOUND = 127
"""As a shell ends where there is no such command."""


def main(argument: str) -> None:
    """Run one rank.

    Args:
        argument: JSON: the descriptor of the settings, and the process that started this one.
    """
    settings_fd, parent_pid = json.loads(argument)
    there = become_keeper(parent_pid, END_ALL)
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

    def end_others() -> None:
        remove_own_files(settings.token, own_folder_of(settings.directory, settings.token))

    keep(rank_pid, there, end_others, END_ALL)


def _become_rank(settings: RankSettings, guard_pid: int) -> None:
    try:
        become_kept(guard_pid)
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
