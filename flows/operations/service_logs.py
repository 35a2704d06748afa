"""The logs of what `partwise up` started, which may go on for years: cut when they are long."""

import os
import shutil
from contextlib import suppress
from pathlib import Path

from partwise.flows.operations.services import owner_only

MOST_BYTES = 50 * 2**20
"""A log that is longer begins anew; what it had stays beside it until the next time."""


def cut_long_logs(folder: Path) -> None:
    """Move what the long logs of a folder have into NAME.log.1, in place of what is there.

    Whoever writes has the file open, so that it stays, and is emptied. Such writers append: one
    that did not would go on at its old place, behind a hole. A line that is written between copy
    and cut is lost.
    """
    for log in folder.glob("*.log"):
        # A full disk: the log stays as it is, and the next look tries again.
        with suppress(OSError):
            if log.stat().st_size > MOST_BYTES and not log.is_symlink():
                before = log.with_suffix(".log.1")
                before.unlink(missing_ok=True)
                with open(log, "rb") as long, open(before, "wb", opener=owner_only) as kept:
                    shutil.copyfileobj(long, kept)
                os.truncate(log, 0)
