"""What is said where a disk has no room left, or the quota of a user is used up."""

import errno
import os

NO_ROOM = (errno.ENOSPC, errno.EDQUOT)


def says_no_room(text: str) -> bool:
    """Whether a text has the words of such an error: libraries and programs pass these on."""
    return any(os.strerror(number) in text for number in NO_ROOM)
