"""The driver's folder for the rows of a run, which goes even when the driver is killed."""

import fcntl
import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from partwise.store.entry_locks import lock_entry, lock_file, remove_abandoned

PREFIX = "partwise-rows-"


@contextmanager
def run_scratch() -> Iterator[Path]:
    """Give a temporary folder, and remove those that killed processes have left.

    A folder's lock is held for as long as its process lives: the kernel sees to that.
    """
    parent = Path(tempfile.gettempdir())
    folder = parent / f"{PREFIX}{secrets.token_hex(8)}"
    # Locked before it is there: a process that tidies up at this moment finds nothing of ours.
    lock = lock_entry(folder, fcntl.LOCK_EX)
    try:
        folder.mkdir(mode=0o700)
        remove_abandoned(parent, f"{PREFIX}*")
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        lock_file(folder).unlink(missing_ok=True)
        os.close(lock)
