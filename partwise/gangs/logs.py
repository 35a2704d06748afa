"""The log of a rank, as its node reads it: new lines while it runs, and what is kept in the end."""

import os

from partwise.engine.child.log import LOG_HEAD_BYTES, LOG_TAIL_BYTES, kept_log, read_log

LARGEST_FILE_BYTES = 64 << 20
"""A longer log is cut in the midst, so that a rank that prints for days does not fill a disk."""
LINE_BYTES = 2_000
LINES_AT_ONCE = 50
READ_BYTES = 64 << 10
_LOOKS = 100
"""For a moment in which the rank writes nothing, before its file is emptied."""


class RankLog:
    """A file to which a rank's output goes."""

    def __init__(self, path: str) -> None:
        self.descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        self._seen = 0
        self._unfinished = b""
        self._head = b""
        self._left_out = 0

    def new_lines(self, *, ended: bool = False) -> list[str]:
        """Return the lines that came since the last call: the last ones, where there are many.

        `ended`: nothing more will come, so that an unfinished line counts as well.
        """
        size = os.fstat(self.descriptor).st_size
        if size < self._seen:
            # Emptied by what the rank has started, as a shell does with `echo x > /dev/stderr`.
            self._seen, self._unfinished = 0, b""
        start = max(self._seen, size - READ_BYTES)
        skipped = start - self._seen
        content = os.pread(self.descriptor, size - start, start)
        self._seen = size
        # Where bytes were skipped, an unfinished line would be joined to the middle of another.
        *lines, self._unfinished = (self._unfinished * (not skipped) + content).split(b"\n")
        if ended or len(self._unfinished) > LINE_BYTES:
            lines.append(self._unfinished)
            self._unfinished = b""
        lines = [line for line in lines if line.strip()]
        left_out = len(lines) - LINES_AT_ONCE
        if skipped or left_out > 0:
            lines = [b"[... lines left out; the log has them ...]", *lines[-LINES_AT_ONCE:]]
        if size > LARGEST_FILE_BYTES:
            self._cut(size)
        return [line[:LINE_BYTES].decode(errors="replace").rstrip() for line in lines]

    def content(self) -> bytes:
        """Return what is kept: beginning and end."""
        size = os.fstat(self.descriptor).st_size
        if not self._head:
            return read_log(self.descriptor, size)
        tail = os.pread(self.descriptor, LOG_TAIL_BYTES, max(0, size - LOG_TAIL_BYTES))
        return kept_log(self._head, self._left_out + size - len(tail), tail)

    def close(self) -> None:
        """Close the file."""
        os.close(self.descriptor)

    def _cut(self, seen: int) -> None:
        """Leave out the midst of a file of which so many bytes have been seen."""
        if not self._head:
            self._head = os.pread(self.descriptor, LOG_HEAD_BYTES, 0)
            self._left_out = -len(self._head)
        size, tail = 0, b""
        for _ in range(_LOOKS):
            if size == (now := os.fstat(self.descriptor).st_size):
                break
            # What was written meanwhile would be lost, and it may be the last that the rank says.
            size = now
            tail = os.pread(self.descriptor, LOG_TAIL_BYTES, max(0, size - LOG_TAIL_BYTES))
        self._left_out += size - len(tail)
        os.ftruncate(self.descriptor, 0)
        # Appended, as everything is: the rank may write at the same time.
        os.write(self.descriptor, tail)
        self._seen = max(0, len(tail) - (size - seen))
