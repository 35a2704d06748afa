"""Calls to a Dask cluster that end in time, also where its processes hang or are gone.

Dask waits for ever for the answer of a process that is stopped, hangs, or is cut off. What only
puts a message in line (`submit`, `compute`, `cancel`, topics) needs no limit.

Dask takes a quarter of a second to import, in which the process that workers are forked from can be
on its way. So nothing that the flow of a run imports may import it before a cluster is asked for.
"""

import asyncio
import re
import threading
import time
from collections.abc import Callable, Iterable
from concurrent import futures
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from partwise.errors import ClusterError

if TYPE_CHECKING:
    from distributed import Client, Future, Worker

ANSWER_S = 10.0
"""For so long an answer of the scheduler, or of a worker, is waited for."""
RECONNECT_S = 15.0
"""For so long a connection to the scheduler that was closed is waited for.

Dask tries again ever less often: of schedulers that refuse connections for 3 s, it finds four in
ten only after 5 s, and two in a thousand only after 15 s.
"""
RESTART_S = 45.0
"""For so long a scheduler is waited for that has refused its connections since it answered."""
CUT_OFF = "scheduler-connection-lost"
"""Dask's reason why tasks were cancelled since their client had lost its scheduler."""
FORGET_S = 2.0
"""For so long a scheduler is waited for that is to forget a topic."""
UNHEARD_S = 600.0
"""A topic of a run whose last event is older, and which no client follows, is a dead driver's."""
_TOPIC = re.compile(r"(gang-)?g[0-9]{4,}[0-9a-f]{8}(-[0-9]+)?")
"""The topics of runs: `execution_token`, and those of the attempts of gangs."""

T = TypeVar("T")


def this_worker() -> "Worker":
    """Return the worker whose task the caller is.

    Raises:
        ValueError: It is no task of a worker.
    """
    from distributed import get_worker

    return get_worker()


def watch_own_task() -> Callable[[], bool]:
    """Return what tells, to any thread, whether the task that the caller is has been abandoned.

    Its driver has died, or has cancelled it: Dask leaves the thread as it is.

    Raises:
        ValueError: It is no task of a worker.
    """
    from distributed.core import Status

    worker = this_worker()
    key = worker.get_current_task()

    def is_abandoned() -> bool:
        task = worker.state.tasks.get(key)
        is_wanted = task is not None and task.state in ("executing", "long-running")
        return not is_wanted or worker.status in (Status.closing, Status.closed, Status.failed)

    return is_abandoned


def await_one(future: "Future[Any]", limit_s: float) -> None:
    """Wait for some time until it is done.

    Raises:
        Exception: It was cancelled. What it has failed with, its result raises.
    """
    from distributed import wait

    with suppress(TimeoutError):
        wait([future], timeout=limit_s)


def cancel(client: "Client", futures: "Iterable[Future[Any]]") -> None:
    """Cancel tasks; a client that has given up its scheduler has none, and would refuse."""
    if client.status != "closed":
        client.cancel(list(futures))


def result_of(future: "Future[T]") -> T:
    """Return what a task that is done has returned; what it has raised is raised again.

    Raises:
        CancelledError: It was cancelled, or the connection to the scheduler was closed under it.
        TimeoutError: Its worker does not answer.
    """
    try:
        return future.result(timeout=ANSWER_S)
    except OSError as error:
        is_late = isinstance(error, TimeoutError) and not future.cancelled()
        # What is followed by a thread of this process, as a trial by gangs, has no status.
        if is_late or getattr(future, "status", "error") == "error":
            raise
        from distributed.client import FutureCancelledError

        # Its result was on the way, and is lost with the task.
        raise FutureCancelledError(future.key, CUT_OFF) from error


def is_cut_off(error: BaseException) -> bool:
    """Whether a task was cancelled since its client had lost the scheduler, by no fault of its."""
    # Of one task, or of several that were waited for.
    each = [error, *getattr(error, "error_groups", ())]
    return any(getattr(one, "reason", "") == CUT_OFF for one in each)


def await_reconnection(client: "Client", limit_s: float = RECONNECT_S) -> None:
    """Wait some seconds for a client that has lost the scheduler to find it again."""
    deadline = time.monotonic() + limit_s
    while client.status == "connecting" and time.monotonic() < deadline:
        time.sleep(0.05)


def rejoin(
    client: "Client", look: Callable[[], object], is_over: Callable[[], object] = lambda: False
) -> None:
    """Wait for a client that has lost the scheduler to find it again, until `look` raises.

    Of what is submitted before, the client forgets some with the tasks that it has lost, and a
    scheduler that was started again lacks what `look` gives it. `is_over`: nothing will be
    submitted any more.
    """
    while client.status == "connecting" and not is_over():
        look()
        time.sleep(0.05)
    look()


class Ends(Generic[T]):
    """Hands out futures in the order in which they come to their end, each once.

    Dask's `wait` makes a task for each future at each call, and leaves those of the others: to wait
    for one after the other of 1,000 made half a million of them.
    """

    def __init__(self) -> None:
        self._queue: SimpleQueue[Future[T]] = SimpleQueue()

    def follow(self, future: "Future[T]") -> None:
        """Have a future handed out when it is done, has failed, or was cancelled."""
        future.add_done_callback(self._queue.put)

    def next(self, limit_s: float) -> "list[Future[T]]":
        """Wait for the next, and return all that there are; none where none is in time."""
        ended: list[Future[T]] = []
        with suppress(Empty):
            ended.append(self._queue.get(timeout=limit_s))
            while True:
                ended.append(self._queue.get_nowait())
        return ended


def answer_of(client: "Client", ask: Callable[[], T]) -> T:
    """Return what a question is answered with; where the connection is closed, it is asked again.

    Raises:
        TimeoutError: As `ask` raises it.
        ClusterError: The connection was closed twice.
    """
    try:
        return ask()
    except TimeoutError:
        raise
    except OSError:
        await_reconnection(client)
    try:
        return ask()
    except TimeoutError:
        raise
    except OSError as error:
        raise ClusterError(
            f"The connection to the Dask scheduler was closed twice ({error}): begin again when "
            "the cluster is back."
        ) from error


def known_workers(client: "Client", limit_s: float = ANSWER_S) -> dict[str, dict[str, Any]]:
    """Return what the scheduler says of each worker, by address."""
    workers: dict[str, dict[str, Any]] = scheduler_identity(client, limit_s)["workers"]
    return workers


def scheduler_identity(client: "Client", limit_s: float = ANSWER_S) -> dict[str, Any]:
    """Return what the scheduler says of itself, and of all workers.

    Raises:
        ClusterError: It does not answer in time.
    """
    # `client.scheduler_info()` shares a cache whose refresh leaves out the workers.
    scheduler: Any = client.scheduler
    try:
        return answer_of(
            client,
            lambda: dict(client.sync(scheduler.identity, n_workers=-1, callback_timeout=limit_s)),
        )
    except TimeoutError as error:
        raise no_answer(limit_s) from error


def ask_workers(
    client: "Client",
    function: Callable[..., Any],
    *arguments: Any,
    workers: list[str] | None = None,
    limit_s: float = ANSWER_S,
) -> dict[str, Any]:
    """Have workers call a function, beside their tasks.

    `workers` None: all. For `limit_s` seconds their answers are waited for; twice where one is
    missing.

    Returns:
        What each has answered in time, by address. What one has raised is its answer.

    Raises:
        ClusterError: The scheduler does not answer in time.
    """
    with suppress(TimeoutError):
        answers: dict[str, Any] = answer_of(
            client,
            lambda: client.run(
                function, *arguments, workers=workers, on_error="return", callback_timeout=limit_s
            ),
        )
        return answers
    # One that does not answer keeps the answers of all others back: so each is asked by itself.
    addresses = list(known_workers(client, limit_s)) if workers is None else workers
    asked = client.sync(_ask_each, client, function, arguments, addresses, limit_s)
    return dict(asked)


async def _ask_each(
    client: "Client",
    function: Callable[..., Any],
    arguments: Iterable[Any],
    addresses: Iterable[str],
    limit_s: float,
) -> dict[str, Any]:
    async def ask(address: str) -> dict[str, Any]:
        answer: Any = client.run(function, *arguments, workers=[address], on_error="return")
        return dict(await answer)

    asked = [asyncio.ensure_future(ask(address)) for address in addresses]
    if not asked:
        return {}
    done, late = await asyncio.wait(asked, timeout=limit_s)
    for each in late:
        each.cancel()
    return {
        address: answer
        for each in done
        if each.exception() is None
        for address, answer in each.result().items()
    }


def in_time(limit_s: float, call: Callable[..., T], *arguments: Any) -> T:
    """Return what a call returns that has no time limit of its own.

    Raises:
        TimeoutError: It has not ended; it is left to itself, on a thread that keeps no process.
    """
    begun = on_thread("partwise-call", call, *arguments)
    if not futures.wait([begun], limit_s).done:
        raise TimeoutError(f"no answer within {limit_s:g} s")
    return begun.result()


def on_thread(name: str, call: Callable[..., T], *arguments: Any) -> futures.Future[T]:
    """Begin a call beside this thread; one that hangs keeps no process, as an executor's would."""
    future: futures.Future[T] = futures.Future()

    def work() -> None:
        try:
            future.set_result(call(*arguments))
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=work, daemon=True, name=name).start()
    return future


def forget_topic(client: "Client", topic: str) -> None:
    """Have the scheduler forget the events of a topic that nobody follows any more.

    It would keep a thousand of them for each run, for as long as it lives; and does so where it has
    no partwise, or does not answer within `FORGET_S`: a run ends no later for that.
    """
    with suppress(Exception):
        in_time(FORGET_S, client.run_on_scheduler, _forget, topic)


def _forget(topic: str, dask_scheduler: Any = None) -> None:
    # There is no public way; without this one nothing is lost but memory.
    topics = dask_scheduler._broker._topics
    topics.pop(topic, None)
    # Drivers that were killed have not done it; one that has lost its connection comes back soon.
    for name, other in list(topics.items()):
        heard_at = other.events[-1][0] if other.events else time.time()
        is_followed = not other.subscribers.isdisjoint(dask_scheduler.clients)
        if _TOPIC.fullmatch(name) and not is_followed and time.time() - heard_at > UNHEARD_S:
            topics.pop(name, None)


def no_answer(seconds: float) -> ClusterError:
    """Return the error of a scheduler that has not answered for so long."""
    return ClusterError(
        f"The Dask scheduler has not answered for {seconds:.0f} s: it hangs, is stopped, or is out "
        "of reach. What is committed is kept; resume the run when the cluster is back."
    )
