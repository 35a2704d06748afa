"""A file of a bucket as a file to read from, of which parts were fetched, or are as it is read."""

import bisect
import io
from abc import abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

REQUESTED_BYTES = 8 * 2**20
"""Of one request of several at a time: a bucket gives each so many MB/s, whatever others ask."""
_AHEAD = 4
"""The blocks that are on their way behind one that is read, or wait for their turn."""
_KEPT = 8
"""The blocks in memory: columns of a stripe of ORC are read one after the other, back and forth."""

Fetch = Callable[[int, int], bytes]
"""Returns the bytes of a file from one place to another."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileParts:
    """Some of the bytes of a file."""

    size_bytes: int
    """Of the whole file."""
    parts: Mapping[int, bytes]
    """By the place of their first byte."""


class _Reader(io.RawIOBase):
    def __init__(self, size_bytes: int) -> None:
        self._size, self._at = size_bytes, 0

    @abstractmethod
    def _piece(self, at: int, end: int) -> memoryview:
        """Return the next bytes, at least one and no more than up to `end`."""

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

    def read(self, size: int = -1) -> bytes | memoryview:
        """Return the next bytes, fewer only at the end; a view of them where they lie together."""
        end = self._size if size < 0 else min(self._at + size, self._size)
        found: list[memoryview] = []
        while self._at < end:
            piece = self._piece(self._at, end)
            if not piece:
                raise OSError(f"its bytes {self._at:,} to {end:,} were not there to be read")
            found.append(piece)
            self._at += len(piece)
        return found[0] if len(found) == 1 else b"".join(found)


class PartsReader(_Reader):
    """Reads the parts that are there: what lies between them is an OSError."""

    def __init__(self, parts: FileParts) -> None:
        super().__init__(parts.size_bytes)
        self._parts, self._starts = parts.parts, sorted(parts.parts)

    def _piece(self, at: int, end: int) -> memoryview:
        place = bisect.bisect_right(self._starts, at) - 1
        if place < 0:
            return memoryview(b"")
        start = self._starts[place]
        return memoryview(self._parts[start])[at - start : end - start]


class RangesReader(_Reader):
    """Fetches what is asked for, for a reader that has buffers of its own."""

    def __init__(self, size_bytes: int, fetch: Fetch) -> None:
        super().__init__(size_bytes)
        self._fetch = fetch

    def _piece(self, at: int, end: int) -> memoryview:
        return memoryview(self._fetch(at, end))


class BlocksReader(_Reader):
    """Fetches blocks, and where one is read after the other, the next ones before their turn.

    `start` are the first bytes, where they were fetched for a look at them: what lies behind is
    fetched when it is its turn.
    """

    def __init__(self, size_bytes: int, fetch: Fetch, start: bytes = b"") -> None:
        super().__init__(size_bytes)
        self._fetch, self._start = fetch, memoryview(start)
        self._pool: ThreadPoolExecutor | None = None
        self._blocks: OrderedDict[int, Future[bytes]] = OrderedDict()
        self._last = -1

    def _piece(self, at: int, end: int) -> memoryview:
        if at < len(self._start):
            return self._start[at:end]
        number, within = divmod(at, REQUESTED_BYTES)
        if number != self._last:
            # Who looks at the beginning alone, or jumps, fetches nothing in vain.
            follows = number - 1 in self._blocks and not self._start
            for each in range(number, number + 1 + (_AHEAD if follows else 0)):
                self._ask(each)
            self._last = number
            self._blocks.move_to_end(number)
            while len(self._blocks) > _KEPT:
                self._blocks.popitem(last=False)
        return memoryview(self._blocks[number].result())[within : end - at + within]

    def _ask(self, number: int) -> None:
        begin = number * REQUESTED_BYTES
        if number in self._blocks or begin >= self._size:
            return
        if self._pool is None:
            self._pool = ThreadPoolExecutor(1 + _AHEAD, "partwise-fetch")
        end = min(begin + REQUESTED_BYTES, self._size)
        self._blocks[number] = self._pool.submit(self._fetch, begin, end)

    def close(self) -> None:
        """Ask for nothing more."""
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
        super().close()
