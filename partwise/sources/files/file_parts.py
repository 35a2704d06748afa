"""Parts of a file that were fetched, as a file of its own size."""

import bisect
import io
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class FileParts:
    """Some of the bytes of a file."""

    size_bytes: int
    """Of the whole file."""
    parts: Mapping[int, bytes]
    """By the place of their first byte."""


class PartsReader(io.RawIOBase):
    """Reads a file of which only parts are there: what lies between them is an OSError."""

    def __init__(self, parts: FileParts) -> None:
        self._size, self._parts = parts.size_bytes, parts.parts
        self._starts = sorted(parts.parts)
        self._at = 0

    def readable(self) -> bool:
        """True."""
        return True

    def seekable(self) -> bool:
        """True."""
        return True

    def tell(self) -> int:
        """Return the place of the next byte."""
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Go to a place in the file."""
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        self._at = base + offset
        return self._at

    def read(self, size: int = -1) -> bytes | memoryview:  # type: ignore[override]
        """Return the next bytes: a view of the part where they lie in one."""
        end = self._size if size < 0 else min(self._at + size, self._size)
        found: list[memoryview] = []
        while self._at < end:
            place = bisect.bisect_right(self._starts, self._at) - 1
            start = self._starts[place] if place >= 0 else 0
            piece = memoryview(self._parts.get(start, b""))[self._at - start : end - start]
            if not piece:
                raise OSError(f"its bytes {self._at:,} to {end:,} were not fetched")
            found.append(piece)
            self._at += len(piece)
        return found[0] if len(found) == 1 else b"".join(found)
