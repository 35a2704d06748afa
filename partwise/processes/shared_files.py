"""Files in shared memory, /dev/shm, that killed processes leave: found, and removed.

What is removed was made since the child was started, and was held by its processes when they were
killed, or has the number of one of them, or the child's own token, in its name; and no other
process holds it. So a file that was there before, or that somebody else uses, stays.

multiprocessing removes its own by a process that it starts for that. A function may kill that one
with its own, or the kernel may; then nothing tells whose a file with a name drawn at random was. So
in a child multiprocessing draws names that begin with the child's token.
"""

import contextlib
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterable
from multiprocessing import process, shared_memory
from typing import Any

import psutil

FOLDER = "/dev/shm"  # noqa: S108 (the folder that POSIX shared memory has)
_NAMED_BY = re.compile(r"(?:torch_|sem\.loky-|joblib_memmapping_folder_|pymp-)(\d+)[_-]")
"""Names that libraries give, with the number of the process that has made them."""

LONGEST_ADDRESS = 107
"""Bytes of a Unix socket's path."""
_LISTENER = "/listener-12345678"
"""How multiprocessing calls a socket in its folder."""


def own_folder_of(directory: str, token: str) -> str:
    """Return the folder that multiprocessing has in a child, in the place of one in /tmp.

    It stands beside the child's `directory`, as sockets in it may not have a longer path.
    """
    beside = f"{directory}.mp"
    if len(os.fsencode(beside + _LISTENER)) <= LONGEST_ADDRESS:
        return beside
    return os.path.join(tempfile.gettempdir(), f"pymp-{token}")


def name_own_files(token: str, folder: str) -> None:
    """Have multiprocessing, in this process, give its files names by which they are found.

    Semaphores have them in the processes that multiprocessing starts as well, and so has its
    folder; shared memory has them here and in forks. The token is of this child and no other;
    somebody else removes the folder.
    """
    # What this needs of Python is not in its public interface; a test looks at it.
    config: dict[str, Any] = process.current_process()._config  # type: ignore[attr-defined]
    config["semprefix"] = f"/mp-{token}"
    os.mkdir(folder, 0o700)
    config["tempdir"] = folder
    memory: Any = shared_memory
    prefix = f"/psm_{token}_"
    memory._SHM_SAFE_NAME_LENGTH += len(prefix) - len(memory._SHM_NAME_PREFIX)
    memory._SHM_NAME_PREFIX = prefix


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

    `held` are those that `pids`, when they were killed, held, by inode.
    """

    def is_theirs(entry: os.DirEntry[str]) -> bool:
        name = _NAMED_BY.match(entry.name)
        return entry.inode() in held or (name is not None and int(name[1]) in pids)

    _remove(is_theirs)


def remove_own_files(token: str, folder: str) -> None:
    """Remove what multiprocessing has made in a child that has ended, and for it."""
    names = (f"sem.mp-{token}-", f"psm_{token}_")
    _remove(lambda entry: entry.name.startswith(names))
    shutil.rmtree(folder, ignore_errors=True)


def _remove(is_meant: Callable[[os.DirEntry[str]], bool]) -> None:
    """Remove files in shared memory that no process holds."""
    found = {}
    with contextlib.suppress(OSError), os.scandir(FOLDER) as entries:
        for entry in entries:
            if is_meant(entry):
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
