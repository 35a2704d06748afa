"""Fetching small files of buckets, and parts of large ones, before their turn."""

from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from partwise.sources.fragments import FarFragment, Fragment

_FRAGMENTS = 16
_BYTES = 64 * 2**20
"""Of what is on its way, or waits for its turn."""


def fetched_ahead(fragments: Iterable[Fragment]) -> Iterator[Fragment]:
    """Hand out fragments in their order; meanwhile what the next ones read of buckets is fetched.

    A small file is fetched once for all fragments of it that are among the next.

    Raises:
        SourceError: One cannot be fetched, or is not as it was found; when it is its turn.
    """
    waiting: deque[tuple[FarFragment, Any]] = deque()
    files: dict[Any, Future[Any]] = {}

    def held() -> int:
        return sum(file.size_bytes for file in files)

    def first() -> Fragment:
        fragment, file = waiting.popleft()
        fetched = files[file].result()
        if all(other != file for _, other in waiting):
            del files[file]
        return fragment.with_file(fetched)

    with ThreadPoolExecutor(_FRAGMENTS, "partwise-fetch") as pool:
        try:
            for fragment in fragments:
                file = fragment.far_file if isinstance(fragment, FarFragment) else None
                if file is None or not isinstance(fragment, FarFragment):
                    while waiting:
                        yield first()
                    yield fragment
                    continue
                # The largest are in memory one at a time.
                while waiting and file not in files and file.size_bytes > _BYTES:
                    yield first()
                if file not in files:
                    files[file] = pool.submit(fragment.fetch_file)
                waiting.append((fragment, file))
                while len(waiting) > _FRAGMENTS or (len(waiting) > 1 and held() > _BYTES):
                    yield first()
            while waiting:
                yield first()
        finally:
            pool.shutdown(cancel_futures=True)
