"""The folder of a worker for passing files: whether a failure is its fault, not a partition's.

A full disk makes all partitions of a machine fail, whatever they do, and with any error that a
library makes of it. So it is looked at when something has failed, and then the run stops.
"""

import contextlib
import errno
import os
import secrets
import socket

from partwise.errors import ScratchError
from partwise.formatting import shortened, size

ROOM_BYTES = 1 << 30
"""With less room, the error of a full disk is taken to be of the disk that the folder is on."""
_FULL = tuple(os.strerror(number) for number in (errno.ENOSPC, errno.EDQUOT))
_PROBE_BYTES = 4096


def check_scratch(folder: str, message: str) -> None:
    """Refuse to blame others for a folder that cannot be used.

    Args:
        folder: The worker's.
        message: What was said of the failure that is to be explained.

    Raises:
        ScratchError: The folder is full, broken or gone.
    """
    why = _write_probe(folder)
    if why is None and any(text in message for text in _FULL):
        about = os.statvfs(folder)
        free = about.f_bavail * about.f_frsize
        if free < ROOM_BYTES:
            why = f"{shortened(message)}, and {size(free)} are free"
    if why is not None:
        raise ScratchError(
            f"The run stopped, since the scratch folder {folder} of {socket.gethostname()} cannot "
            f"be used: {why}. What is done is kept; make room there, or give Dask another "
            "temporary-directory, and resume the run."
        )


def _write_probe(folder: str) -> str | None:
    """Return why no file can be written to a folder; None: one can."""
    path = os.path.join(folder, f"probe-{secrets.token_hex(6)}")
    try:
        with open(path, "xb") as file:
            file.write(bytes(_PROBE_BYTES))
    except OSError as error:
        return os.strerror(error.errno or 0)
    finally:
        with contextlib.suppress(OSError):
            os.unlink(path)
    return None
