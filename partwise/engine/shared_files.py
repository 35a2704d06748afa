"""Files in shared memory, /dev/shm, that killed processes leave: found, and removed.

What is removed was made since the child was started, and was held by its processes when they were
killed, or has the number of one of them in its name; and no other process holds it. So a file that
was there before, or that somebody else uses, stays.
"""

import contextlib
import os
import re
import shutil
from collections.abc import Iterable

import psutil

FOLDER = "/dev/shm"  # noqa: S108 (the folder that POSIX shared memory has)
_NAMED_BY = re.compile(r"(?:torch_|sem\.loky-|joblib_memmapping_folder_|pymp-)(\d+)[_-]")
"""Names that libraries give, with the number of the process that has made them."""


def files_there() -> frozenset[int]:
    """Return the files and folders in shared memory, by inode."""
    with contextlib.suppress(OSError), os.scandir(FOLDER) as entries:
        return frozenset(entry.inode() for entry in entries)
    return frozenset()


def held_files(pids: Iterable[int]) -> frozenset[int]:
    """Return the files in shared memory that processes have open or mapped, by inode."""
    with contextlib.suppress(OSError):
        device = os.stat(FOLDER).st_dev
        return frozenset(inode for pid in pids for inode in _held_by(pid, device))
    return frozenset()


def _held_by(pid: int, device: int) -> set[int]:
    held = set()
    numbers = f"{os.major(device):02x}:{os.minor(device):02x}"
    # By inode: a semaphore is made under a passing name, which the map goes on to show.
    with contextlib.suppress(OSError), open(f"/proc/{pid}/maps", "rb") as file:
        for line in file:
            fields = line.split(None, 5)
            if fields[3].decode() == numbers:
                held.add(int(fields[4]))
    with contextlib.suppress(OSError), os.scandir(f"/proc/{pid}/fd") as entries:
        for entry in entries:
            with contextlib.suppress(OSError):
                status = entry.stat()
                if status.st_dev == device:
                    held.add(status.st_ino)
    return held


def remove_files(held: frozenset[int], pids: set[int]) -> None:
    """Remove files that ended processes have left, where no other process holds them.

    Args:
        held: Those that they held when they were killed, by inode.
        pids: Those processes.
    """
    found = {}
    with contextlib.suppress(OSError), os.scandir(FOLDER) as entries:
        for entry in entries:
            name = _NAMED_BY.match(entry.name)
            if entry.inode() in held or (name is not None and int(name[1]) in pids):
                found[entry.inode()] = entry
    if not found:
        return
    used = held_files(psutil.pids())
    for inode, entry in found.items():
        with contextlib.suppress(OSError):
            if inode in used or entry.stat(follow_symlinks=False).st_uid != os.geteuid():
                continue
            if entry.is_dir(follow_symlinks=False):
                shutil.rmtree(entry.path, ignore_errors=True)
            else:
                os.unlink(entry.path)
