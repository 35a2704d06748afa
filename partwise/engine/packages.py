"""Environments beside partwise, on the machines of a cluster: built there, and tried."""

import asyncio
import os
import re
import socket
import subprocess
import time
from concurrent.futures import FIRST_COMPLETED, Future, wait
from typing import TYPE_CHECKING, Any

from partwise.engine.cluster_watch import LOOK_S, ClusterWatch
from partwise.engine.limits import SILENCE_S
from partwise.engine.scaling import cluster_workers
from partwise.environments.building import BuiltEnvironment, open_environment
from partwise.environments.resolved_environment import ResolvedEnvironment, python_version
from partwise.errors import ClusterError, EnvironmentBuildError, PartwiseError
from partwise.processes import python_words

if TYPE_CHECKING:
    from distributed import Client

TRIAL_TIMEOUT_S = 120.0
_TAIL_CHARS = 1_500


def build_on_workers(client: "Client", resolved: ResolvedEnvironment, watch: ClusterWatch) -> None:
    """Have each machine of a cluster build an environment, and try it, before work begins.

    A machine that joins later builds when it is given its first shard. Building may take as long as
    it likes; a worker of which nothing is heard is not waited for.

    Raises:
        EnvironmentBuildError: It cannot be built on one of them, or partwise does not run with it.
        ClusterError: A worker, or the cluster, went away meanwhile, or does not answer.
    """
    since = time.monotonic()
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
                _check_built(resolved, asked[each], each.exception() or each.result())
            watch.look()
            silent = watch.workers()
            for each in pending:
                address = asked[each]
                if watch.has_lost(address, since) or silent.get(address, 0.0) > SILENCE_S:
                    _check_built(resolved, address, ConnectionError("it does not answer"))
    finally:
        for each in pending:
            each.cancel()


async def _ask_to_build(client: "Client", resolved: ResolvedEnvironment, address: str) -> Any:
    answers: Any = client.run(_build_and_try, resolved, workers=[address], on_error="return")
    return (await answers)[address]


def _check_built(resolved: ResolvedEnvironment, address: str, answer: BaseException | None) -> None:
    if isinstance(answer, PartwiseError):
        raise answer
    if answer is not None:
        raise ClusterError(
            f"The environment of {resolved.name} was not built on the worker {address}: "
            f"{type(answer).__name__}: {answer}"
        ) from answer


async def _build_and_try(resolved: ResolvedEnvironment) -> None:
    # Not on the worker's loop: it may take minutes, and the scheduler wants to hear of the worker.
    await asyncio.to_thread(_build_here, resolved)


def _build_here(resolved: ResolvedEnvironment) -> None:
    with open_environment(resolved) as built:
        try_environment(resolved, built)


def try_environment(resolved: ResolvedEnvironment, built: BuiltEnvironment) -> None:
    """See that partwise can be imported with these packages before its own.

    Raises:
        EnvironmentBuildError: It cannot; has what Python said.
    """
    found = re.search(r"python(\d+\.\d+)", os.path.basename(os.path.dirname(built.site_packages)))
    if found is not None and found[1] != python_version():
        raise EnvironmentBuildError(
            f"The environment of {resolved.name} has Python {found[1]}, and functions for "
            f"partitions run in the workers' Python {python_version()}: name that one."
        )
    words = python_words("partwise.engine.child_trial", "", built.site_packages)
    ended = subprocess.run(  # noqa: S603
        words,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=TRIAL_TIMEOUT_S,
        check=False,
    )
    if ended.returncode:
        raise EnvironmentBuildError(
            f"partwise does not run on {socket.gethostname()} with the environment of "
            f"{resolved.name} before its own packages; Python says: "
            f"{' '.join(ended.stderr.split())[-_TAIL_CHARS:] or 'nothing'}"
        )


def packages_variables(built: BuiltEnvironment) -> dict[str, str]:
    """Return the variables by which a process finds the programs of an environment."""
    return {"PATH": os.pathsep.join(filter(None, (built.scripts, os.environ.get("PATH", ""))))}
