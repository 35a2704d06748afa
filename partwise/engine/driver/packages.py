"""Environments beside partwise: the machines of a cluster are asked to build them."""

import asyncio
import time
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from partwise.engine.driver.cluster_watch import LOOK_S, ClusterWatch
from partwise.engine.limits import SILENCE_S
from partwise.engine.scaling import cluster_workers
from partwise.engine.worker.packages import build_and_try
from partwise.environments.resolved_environment import ResolvedEnvironment
from partwise.errors import ClusterError, PartwiseError

if TYPE_CHECKING:
    from distributed import Client


def build_on_workers(client: "Client", resolved: ResolvedEnvironment, watch: ClusterWatch) -> None:
    """Have each machine of a cluster build an environment, and try it, before work begins.

    A machine that joins later builds when it is given its first shard, as does one whose worker has
    died, or was taken away, meanwhile. Building may take as long as it likes; a worker of which
    nothing is heard is not waited for.
    """
    from distributed.comm.core import CommClosedError

    since = time.monotonic()
    # One worker of each machine builds, and the others of it find what it has built.
    by_host = {worker.host: worker.address for worker in cluster_workers(client)}
    loop: Any = client.loop
    asked: dict[Future[Any], str] = {
        asyncio.run_coroutine_threadsafe(
            _ask_to_build(client, resolved, address), loop.asyncio_loop
        ): address
        for address in by_host.values()
    }
    pending = set(asked)
    try:
        while pending:
            done, pending = wait(pending, LOOK_S, FIRST_COMPLETED)
            for each in done:
                answer = each.exception() or each.result()
                # Of the connection between the scheduler and a worker that is gone.
                if not isinstance(answer, CommClosedError):
                    _check_built(resolved, asked[each], answer)
            watch.look()
            silent = watch.workers()
            for each in list(pending):
                address = asked[each]
                if watch.has_lost(address, since):
                    each.cancel()
                    pending.remove(each)
                elif silent.get(address, 0.0) > SILENCE_S:
                    _check_built(resolved, address, ConnectionError("it does not answer"))
    finally:
        for each in pending:
            each.cancel()


async def _ask_to_build(client: "Client", resolved: ResolvedEnvironment, address: str) -> Any:
    ask: Any = partial(client.run, build_and_try, resolved, workers=[address], on_error="return")
    # It takes minutes, in which the connection may be closed: what was built meanwhile is found.
    with suppress(OSError):
        return (await ask())[address]
    while client.status == "connecting":
        await asyncio.sleep(LOOK_S)
    return (await ask())[address]


def _check_built(resolved: ResolvedEnvironment, address: str, answer: BaseException | None) -> None:
    if isinstance(answer, PartwiseError):
        raise answer
    if answer is not None:
        raise ClusterError(
            f"The environment of {resolved.name} was not built on the worker {address}: "
            f"{type(answer).__name__}: {answer}"
        ) from answer
