"""The log of a child: what the partition at work prints, logs, and has its processes print."""

import contextlib
import ctypes
import faulthandler
import io
import logging
import os
import sys
from typing import TextIO

from partwise.redaction import without_known_secrets

LOG_HEAD_BYTES = 256 << 10
LOG_TAIL_BYTES = 768 << 10
LARGEST_LOG_BYTES = 16 << 20
"""Room on the disk that a log may take before its middle is given back, which is never kept."""
_KEEP_SIZE_AND_PUNCH_HOLE = 0x01 | 0x02


class ChildLog:
    """Has all output of this process go to one file, and takes it out for each partition.

    `descriptor` is of that file, open for appending.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self.redirect()
        self._stdout, self._stderr = _unbuffered(1), _unbuffered(2)
        faulthandler.enable(file=descriptor)
        self._handler = logging.StreamHandler(self._stderr)
        self._handler.setFormatter(
            logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s")
        )
        logging.captureWarnings(True)
        self.restore()

    def redirect(self) -> None:
        """Have the standard descriptors lead to the log again."""
        os.dup2(self._descriptor, 1)
        os.dup2(self._descriptor, 2)

    def restore(self) -> None:
        """Undo what a function may have done to output and logging."""
        with contextlib.suppress(Exception):
            self._stdout.flush()
            self._stderr.flush()
        self.redirect()
        if self._stdout.closed or self._stderr.closed:
            self._stdout, self._stderr = _unbuffered(1), _unbuffered(2)
            # Its setStream() would flush the closed one.
            self._handler.stream = self._stderr
        sys.stdout, sys.stderr = self._stdout, self._stderr
        root = logging.getLogger()
        if root.handlers != [self._handler]:
            root.handlers[:] = [self._handler]
        if root.level != logging.INFO:
            root.setLevel(logging.INFO)
        if root.manager.disable:
            logging.disable(logging.NOTSET)

    def write(self, text: str) -> None:
        """Add lines of our own."""
        # Not by sys.stderr, which the function may have closed or replaced.
        with contextlib.suppress(OSError):
            os.write(self._descriptor, (text + "\n").encode(errors="replace"))

    def take(self) -> bytes:
        """Return what stands in the log, and empty it."""
        size = os.fstat(self._descriptor).st_size
        if size == 0:
            return b""
        log = read_log(self._descriptor, size)
        os.ftruncate(self._descriptor, 0)
        return log


def read_log(log_fd: int, size: int) -> bytes:
    """Return a log of `size` bytes as it is kept: of a very long one, beginning and end."""
    if size <= LOG_HEAD_BYTES + LOG_TAIL_BYTES:
        return kept_log(os.pread(log_fd, size, 0))
    head = os.pread(log_fd, LOG_HEAD_BYTES, 0)
    tail = os.pread(log_fd, LOG_TAIL_BYTES, size - LOG_TAIL_BYTES)
    return kept_log(head, size - LOG_HEAD_BYTES - LOG_TAIL_BYTES, tail)


def kept_log(head: bytes, left_out: int = 0, tail: bytes = b"") -> bytes:
    """Return a log as it is kept: what it begins with, and what follows on the bytes left out.

    What a function prints is the user's; but values that are known to be secret are masked.
    """
    middle = f"\n[... {left_out} bytes left out ...]\n".encode() if left_out else b""
    # Bytes that are not text come back as they were.
    text = (head + middle + tail).decode("utf-8", "surrogateescape")
    return without_known_secrets(text).encode("utf-8", "surrogateescape")


def is_large(log_fd: int) -> bool:
    """Whether a log takes more room on the disk than it may."""
    return os.fstat(log_fd).st_blocks * 512 > LARGEST_LOG_BYTES


def give_back_middle(log_fd: int) -> None:
    """Give back the room of what `read_log` leaves out, while processes go on writing at the end.

    The file is as long as before, so nothing that writes to it or reads it need know. Nobody may
    empty it meanwhile.
    """
    length = os.fstat(log_fd).st_size - LOG_HEAD_BYTES - LOG_TAIL_BYTES
    if length <= 0:
        return
    # Python's own posix_fallocate() cannot do that.
    libc = ctypes.CDLL(None, use_errno=True)
    offsets = ctypes.c_int64(LOG_HEAD_BYTES), ctypes.c_int64(length)
    if libc.fallocate(log_fd, _KEEP_SIZE_AND_PUNCH_HOLE, *offsets) != 0:
        # A file system without holes: what was written so far is left out but for its beginning.
        os.ftruncate(log_fd, LOG_HEAD_BYTES)


def _unbuffered(descriptor: int) -> TextIO:
    """Return text output of which nothing is lost when the process dies, or cannot be encoded."""
    raw = os.fdopen(descriptor, "wb", 0, closefd=False)
    return io.TextIOWrapper(raw, "utf-8", "backslashreplace", write_through=True)
