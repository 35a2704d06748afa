"""Threads for requests that may take long, before which only so many wait."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, TypeVar

from starlette.types import Receive

from partwise.serving.errors import DeadlineError, OverloadedError
from partwise.serving.server_options import ServerOptions

_Result = TypeVar("_Result")


class ClientLeftError(Exception):
    """Whoever asked does not wait for the answer any more."""


class WorkQueue:
    """Threads, and the requests that wait for one.

    Args:
        options: How many of both there are, and the time of a request.
        tell: Is told how many requests there are, whenever that changes.
    """

    def __init__(self, options: ServerOptions, tell: Callable[[int], None]) -> None:
        self._pool = ThreadPoolExecutor(options.threads, "partwise-serving")
        self._most = options.threads + options.waiting
        self._timeout_s = options.timeout_s
        self._tell = tell
        self._there = 0

    async def run(self, work: Callable[[], _Result], receive: Receive) -> _Result:
        """Return what work comes to, in a thread.

        Args:
            work: Is not begun where its time is over before, or its client has left.
            receive: Of the request; what is left of its body is passed over.

        Raises:
            OverloadedError: Too many requests wait already.
            DeadlineError: The time of the request is over; work that was begun goes on.
            ClientLeftError: The client has left.
        """
        if self._there >= self._most:
            raise OverloadedError("Too many requests wait for an answer: try again later.")
        self._count(+1)
        loop = asyncio.get_running_loop()
        task = self._pool.submit(work)
        task.add_done_callback(lambda _: self._leave(loop))
        answer = asyncio.wrap_future(task)
        left = asyncio.ensure_future(_until_left(receive))
        try:
            both: set[asyncio.Future[Any]] = {answer, left}
            await asyncio.wait(both, timeout=self._timeout_s, return_when=asyncio.FIRST_COMPLETED)
            if answer.done():
                return answer.result()
            if left.done():
                raise ClientLeftError
            raise DeadlineError(f"There was no answer within {self._timeout_s:g} s: try again.")
        finally:
            left.cancel()
            # Of itself, and not by way of `answer`: that would be only when the loop comes to it.
            task.cancel()
            answer.cancel()

    def _leave(self, loop: asyncio.AbstractEventLoop) -> None:
        # A server that has stopped does not count any more.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(self._count, -1)

    def _count(self, change: int) -> None:
        self._there += change
        self._tell(self._there)

    def close(self) -> None:
        """Begin no more work; what was begun goes on."""
        self._pool.shutdown(wait=False, cancel_futures=True)


async def _until_left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
