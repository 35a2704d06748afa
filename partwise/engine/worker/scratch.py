"""The folder of a worker for passing files: whose it is, and whether a failure is its fault.

A full disk makes all partitions of a machine fail, with any error that a library makes of it. So it
is looked at when something has failed, and then the run stops.

Workers of Dask make their folders in `dask-scratch-space`, among temporary files if nothing else is
said. They take one that another user has made there, if they may write to it. That user could put a
folder of theirs in the place of a worker's, and so code in the place of what children run.
"""

import contextlib
import os
import secrets
import socket
import stat

from partwise.errors import ScratchError
from partwise.formatting import shortened, size
from partwise.store.no_room import says_no_room

ROOM_BYTES = 1 << 30
"""With less room, the error of a full disk is taken to be of the disk that the folder is on."""
_PROBE_BYTES = 4096


def own_scratch(folder: str) -> str:
    """Return the folder of a worker, in which only this user can exchange what lies there.

    Raises:
        ScratchError: Another user made that one, or others can rename what is in it.
    """
    above = os.path.dirname(os.path.abspath(folder))
    try:
        about = os.stat(above)
    except OSError as error:
        raise _unusable(folder, error.strerror or str(error)) from error
    # With the sticky bit, as /tmp has it, others may add names, and not take ours away. The group
    # of a folder of ours is one that we have chosen, and often has no other member.
    is_open = about.st_mode & stat.S_IWOTH and not about.st_mode & stat.S_ISVTX
    if is_open or about.st_uid not in (os.getuid(), 0):
        raise _unusable(
            folder,
            f"other users can exchange what lies in {above} (owner {about.st_uid}, mode "
            f"{stat.S_IMODE(about.st_mode):o})",
        )
    return folder


def check_scratch(folder: str, message: str) -> None:
    """Refuse to blame others for a folder that cannot be used.

    `message` is what was said of the failure that is to be explained.

    Raises:
        ScratchError: The folder is full, broken or gone.
    """
    why = _write_probe(folder)
    if why is None and says_no_room(message):
        about = os.statvfs(folder)
        free = about.f_bavail * about.f_frsize
        if free < ROOM_BYTES:
            why = f"{shortened(message)}, and {size(free)} are free"
    if why is not None:
        raise _unusable(folder, why, "make room there, or ")


def _unusable(folder: str, why: str, remedy: str = "") -> ScratchError:
    return ScratchError(
        f"The run stopped, since the scratch folder {folder} of {socket.gethostname()} cannot be "
        f"used: {why}. What is done is kept; {remedy}give Dask another temporary-directory, and "
        "resume the run."
    )


def _write_probe(folder: str) -> str | None:
    """Return why no file can be written to a folder; None: one can."""
    path = os.path.join(folder, f"probe-{secrets.token_hex(6)}")
    try:
        with open(path, "xb") as file:
            # An empty file can be made on a full disk as well.
            file.write(bytes(_PROBE_BYTES))
    except OSError as error:
        return os.strerror(error.errno or 0)
    finally:
        with contextlib.suppress(OSError):
            os.unlink(path)
    return None
