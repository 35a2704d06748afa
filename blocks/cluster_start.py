"""Starting Dask clusters on this machine, and ending them whatever happens.

distributed alone is not enough for that: it serves on a well-known port unasked, runs the caller's
script in every worker, fills the screen on Ctrl-C, and may wait for ever as it closes.
"""

import logging
import multiprocessing
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing import resource_tracker, spawn
from multiprocessing.process import BaseProcess
from typing import Any

import dask
import distributed

# Closing takes 4 s while a worker is busy. It never ends after a worker died during its own start:
# its nanny (distributed 2026.7.1) then waits for an event that nobody will set.
CLOSE_TIMEOUT_S = 15.0

# For what we start ourselves. The user's function runs in a child process of the worker, so what
# Dask measures of a worker says little about it.
DASK_SETTINGS: dict[str, Any] = {
    # Every task queued on a dying worker counts as a suspect: one poison shard must not fail them.
    "distributed.scheduler.allowed-failures": 10,
    # A busy worker may miss its heartbeats; the driver watches the shards themselves.
    "distributed.scheduler.worker-ttl": None,
    # Without it, a run whose last worker is gone waits for ever.
    "distributed.scheduler.no-workers-timeout": "60s",
    # It looks at the worker's own threads, which wait for child processes, 100 times a second: half
    # of what a worker takes from the ranks of a gang that fill all cores.
    "distributed.worker.profile.enabled": False,
    # Memory-mapped shards count as process memory, though the kernel may drop them at any time.
    "distributed.worker.memory.target": False,
    "distributed.worker.memory.spill": False,
    "distributed.worker.memory.pause": False,
}

# Ctrl-C in a terminal reaches every process of its group, and so does the SIGTERM by which Prefect
# cancels a flow run: but only the driver should answer, and have the workers commit what they have.
_LEAVE_THE_GROUP = (
    "import os, signal; signal.signal(signal.SIGINT, signal.SIG_IGN); os.setpgid(0, 0)"
)

_prepare = spawn.get_preparation_data
_counting = threading.Lock()
_clusters = 0


def start_options(dashboard_address: str) -> dict[str, Any]:
    """Return options for a cluster to start: one thread a worker, loopback only, quiet.

    Args:
        dashboard_address: Where the dashboard listens; empty: there is none.
    """
    return {
        "threads_per_worker": 1,
        "host": "127.0.0.1",
        # Dask serves metrics over HTTP in any case; without an address it takes the well-known
        # port 8787, and warns when another cluster has it.
        "dashboard_address": dashboard_address or "127.0.0.1:0",
        "scheduler_kwargs": {"dashboard": bool(dashboard_address)},
        "preload": [_LEAVE_THE_GROUP],
        "silence_logs": False if _wants_logs() else logging.CRITICAL,
    }


@contextmanager
def started(start: Callable[[], distributed.LocalCluster]) -> Iterator[distributed.Client]:
    """Start a cluster, connect to it, and end both with the context.

    Args:
        start: Makes the cluster with `start_options`.
    """
    older = set(multiprocessing.active_children())
    with quiet(), _without_the_callers_script():
        with dask.config.set(DASK_SETTINGS), _interrupts_later() as interrupts:
            cluster = start()
        try:
            if interrupts:
                raise KeyboardInterrupt
            with distributed.Client(cluster) as client:
                yield client
        finally:
            _close(cluster, older)


@contextmanager
def quiet() -> Iterator[None]:
    """Silence Dask in this process, whose own option for it misses handlers of the root logger."""
    known = list(logging.root.manager.loggerDict)
    loggers = [logging.getLogger(name) for name in known if name.split(".")[0] == "distributed"]
    levels = {logger: logger.level for logger in loggers if 0 < logger.level < logging.CRITICAL}
    if _wants_logs():
        levels = {}
    for logger in levels:
        logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        for logger, level in levels.items():
            logger.setLevel(level)


def _wants_logs() -> bool:
    return dask.config.get("logging.distributed", None) is not None


def _prepare_worker(name: str) -> dict[str, Any]:
    data = _prepare(name)
    if name.startswith("Dask Worker"):
        data.pop("init_main_from_path", None)
        data.pop("init_main_from_name", None)
    return data


@contextmanager
def _without_the_callers_script() -> Iterator[None]:
    """Start worker processes without the caller's script, which they would import as a module.

    They do not need it, and a script that has no `if __name__ == "__main__":` would call its flow
    again in each of them, which never ends. Workers are started again when they die, so this holds
    as long as the cluster does.
    """
    global _clusters
    with _counting:
        _clusters += 1
        spawn.get_preparation_data = _prepare_worker
    try:
        yield
    finally:
        with _counting:
            _clusters -= 1
            if not _clusters:
                spawn.get_preparation_data = _prepare


@contextmanager
def _interrupts_later() -> Iterator[list[int]]:
    """Have the first Ctrl-C wait, and none reach the processes that are started meanwhile.

    Cut off in the midst, they and their nannies would fill the screen with tracebacks.
    """
    seen: list[int] = []

    def note(number: int, _: object) -> None:
        if seen:
            raise KeyboardInterrupt
        seen.append(number)

    if threading.current_thread() is not threading.main_thread():
        yield seen
        return
    # It is started with the first process, and would unblock what is blocked.
    resource_tracker.ensure_running()
    handler = signal.signal(signal.SIGINT, note)
    # What is blocked here is so in the threads and processes that are started from here, for good.
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield seen
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        signal.signal(signal.SIGINT, handler)


def _close(cluster: distributed.LocalCluster, older: set[BaseProcess]) -> None:
    try:
        cluster.close(timeout=CLOSE_TIMEOUT_S)
    except TimeoutError:
        if cluster.scheduler is not None:
            with suppress(TimeoutError):
                cluster.sync(cluster.scheduler.close, callback_timeout=CLOSE_TIMEOUT_S)
        for process in set(multiprocessing.active_children()) - older:
            if process.name.startswith("Dask Worker"):
                process.kill()
        # Else Dask waits for the same event again when the interpreter exits.
        cluster.status = distributed.Status.closed
