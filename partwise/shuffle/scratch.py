"""The driver's folder for the rows of a run, which goes even when the driver is killed."""

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PREFIX = "partwise-rows-"
LOCK = "lock"


@contextmanager
def run_scratch() -> Iterator[Path]:
    """Give a temporary folder, and remove those that killed processes have left.

    A folder's lock is held for as long as its process lives: the kernel sees to that.
    """
    with tempfile.TemporaryDirectory(prefix=PREFIX) as name:
        lock = os.open(Path(name, LOCK), os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            _remove_abandoned(Path(name).parent)
            yield Path(name)
        finally:
            os.close(lock)


def _remove_abandoned(parent: Path) -> None:
    for lock in parent.glob(f"{PREFIX}*/{LOCK}"):
        # Another user's, or gone already.
        with contextlib.suppress(OSError), lock.open("r+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(lock.parent, ignore_errors=True)
