"""Locks of folders on a disk that several processes share: a file beside the folder, and flock."""

import contextlib
import errno
import fcntl
import os
import secrets
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

_NO_LOCKS = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS)
"""The errors of a file system without locks."""
_SPARED_S = 86_400.0


def lock_file(entry: Path) -> Path:
    """Return the file whose lock is that of a folder."""
    return entry.with_suffix(".lock")


def lock_entry(entry: Path, how: int) -> int:
    """Lock a folder, which need not be there, until the returned descriptor is closed.

    `how` is LOCK_SH or LOCK_EX of `fcntl`, with LOCK_NB where nobody is to be waited for. The lock
    ends with the process, too.

    Raises:
        BlockingIOError: With LOCK_NB, somebody else has it.
        OSError: The file cannot be made.
    """
    path = lock_file(entry)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    while True:
        descriptor = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, how)
            if os.fstat(descriptor).st_ino == path.stat().st_ino:
                return descriptor
        except FileNotFoundError:
            pass
        except BaseException:
            os.close(descriptor)
            raise
        # Whoever removed the entry has removed this file too.
        os.close(descriptor)


def remove_entry(entry: Path) -> bool:
    """Remove a folder that this process has locked, and its lock; return whether all of it is gone.

    Else the lock stays as well, by which it is found again.
    """
    shutil.rmtree(entry, ignore_errors=True)
    if entry.exists():
        return False
    lock_file(entry).unlink(missing_ok=True)
    return True


def remove_unused(entry: Path) -> bool:
    """Remove a folder that nobody has locked, and its lock; return whether all of it is gone."""
    try:
        descriptor = lock_entry(entry, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    try:
        return remove_entry(entry)
    finally:
        os.close(descriptor)


def remove_abandoned(folder: Path, pattern: str = "*", spared_s: float = 0.0) -> None:
    """Remove the folders in a folder that nobody has locked, and their locks.

    Those that were made within `spared_s` seconds are left.
    """
    for lock in folder.glob(f"{pattern}.lock"):
        entry = lock.with_suffix("")
        # Somebody has just removed it, or it is another user's.
        with contextlib.suppress(OSError):
            if time.time() - lock.stat().st_mtime < spared_s:
                continue
            remove_unused(entry)


@contextlib.contextmanager
def passing_folder(parent: Path, prefix: str, *, is_shared: bool = False) -> Iterator[Path]:
    """Give a folder for a block, and remove those of the prefix that killed processes have left.

    A folder's lock is held for as long as its process lives: the kernel sees to that. `is_shared`:
    other machines may write there too, of whose locks a network file system need not know.

    Raises:
        OSError: It cannot be made.
    """
    folder = parent / f"{prefix}{secrets.token_hex(8)}"
    with contextlib.ExitStack() as stack:
        stack.callback(lock_file(folder).unlink, missing_ok=True)
        try:
            # Before it is there: a process that tidies up at this moment finds nothing of ours.
            stack.callback(os.close, lock_entry(folder, fcntl.LOCK_EX))
        except OSError as error:
            if not is_shared or error.errno not in _NO_LOCKS:
                raise
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        folder.mkdir(mode=0o700)
        remove_abandoned(parent, f"{prefix}*", _SPARED_S if is_shared else 0.0)
        yield folder
