"""The log of a child: what the partition at work prints, logs, and has its processes print."""

import contextlib
import faulthandler
import io
import logging
import os
import sys
from typing import TextIO

LOG_HEAD_BYTES = 256 << 10
LOG_TAIL_BYTES = 768 << 10


class ChildLog:
    """Has all output of this process go to one file, and takes it out for each partition.

    Args:
        descriptor: Of the file, open for appending.
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
    """Return a log of `size` bytes, with the middle left out where it is very long."""
    if size <= LOG_HEAD_BYTES + LOG_TAIL_BYTES:
        return os.pread(log_fd, size, 0)
    left_out = size - LOG_HEAD_BYTES - LOG_TAIL_BYTES
    head = os.pread(log_fd, LOG_HEAD_BYTES, 0)
    tail = os.pread(log_fd, LOG_TAIL_BYTES, size - LOG_TAIL_BYTES)
    return head + f"\n[... {left_out} bytes left out ...]\n".encode() + tail


def _unbuffered(descriptor: int) -> TextIO:
    """Return text output of which nothing is lost when the process dies, or cannot be encoded."""
    raw = os.fdopen(descriptor, "wb", 0, closefd=False)
    return io.TextIOWrapper(raw, "utf-8", "backslashreplace", write_through=True)
