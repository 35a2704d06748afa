"""Fetching small files of buckets before their turn: what takes long is the way, not the bytes."""

from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

from partwise.sources.fragments import FarFragment, Fragment

_FILES = 16
_BYTES = 64 * 2**20
"""Of files that are on their way, or wait for their turn."""


def fetched_ahead(fragments: Iterable[Fragment]) -> Iterator[Fragment]:
    """Hand out fragments in their order; meanwhile the next small files of a bucket are fetched.

    Raises:
        SourceError: One cannot be fetched, or is not as it was found; when it is its turn.
    """
    on_the_way: deque[tuple[Future[Fragment], int]] = deque()
    size = 0
    with ThreadPoolExecutor(_FILES, "partwise-fetch") as pool:
        try:
            for fragment in fragments:
                if isinstance(fragment, FarFragment) and fragment.fetch_bytes is not None:
                    on_the_way.append((pool.submit(fragment.fetched), fragment.fetch_bytes))
                    size += fragment.fetch_bytes
                    if len(on_the_way) > _FILES or size > _BYTES:
                        first, own = on_the_way.popleft()
                        size -= own
                        yield first.result()
                    continue
                while on_the_way:
                    yield on_the_way.popleft()[0].result()
                size = 0
                yield fragment
            while on_the_way:
                yield on_the_way.popleft()[0].result()
        finally:
            pool.shutdown(cancel_futures=True)
