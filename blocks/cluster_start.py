"""Starting Dask clusters on this machine, and ending them in any case.

distributed alone is not enough for that: it serves on a well-known port unasked, runs the caller's
script in every worker, fills the screen on Ctrl-C, and may wait for ever as it closes.
"""

import asyncio
import logging
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from multiprocessing import resource_tracker, spawn
from multiprocessing.process import BaseProcess
from typing import Any

import dask
import distributed
from dask.utils import parse_timedelta
from distributed.comm.core import connect
from distributed.deploy.cluster import Cluster
from distributed.security import Security

from partwise.blocks.temporary_certificate import temporary_security
from partwise.cluster_calls import await_reconnection, in_time

# Workers that have nothing to do end at once. One that is busy, or stopped (SIGSTOP), is waited for
# by its nanny for 4 s, and so is killed before that.
WORKERS_END_S = 1.0
# Closing never ends after a worker died during its own start: its nanny (distributed 2026.7.1) then
# waits for an event that nobody will set.
CLOSE_TIMEOUT_S = 5.0
CLIENT_CLOSES_S = 2.0

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
    # Else each scheduler, nanny and worker wakes up 50 times a second to see how late it is, and
    # twice to read its figures from /proc: two idle workers take 4.6 % of a core, and so 1 %.
    "distributed.admin.tick.interval": "500ms",
    "distributed.admin.system-monitor.interval": "5s",
    # Memory-mapped shards count as process memory, though the kernel may drop them at any time.
    "distributed.worker.memory.target": False,
    "distributed.worker.memory.spill": False,
    "distributed.worker.memory.pause": False,
}

# Pages about workers and their tasks, which Dask serves without a dashboard too, to anyone.
_NO_PAGES: dict[str, Any] = {
    "distributed.scheduler.http.routes": [],
    "distributed.worker.http.routes": [],
}

# Ctrl-C in a terminal reaches every process of its group, and so does the SIGTERM by which Prefect
# cancels a flow run: but only the driver should answer, and have the workers commit what they have.
_LEAVE_THE_GROUP = (
    "import os, signal; signal.signal(signal.SIGINT, signal.SIG_IGN); os.setpgid(0, 0)"
)
_COLLECT_RARELY = "from partwise.processes.garbage import collect_rarely; collect_rarely()"

_prepare = spawn.get_preparation_data


class _WhileClusters:
    """Enters a context with the first cluster that wants it, and leaves it with the last one."""

    def __init__(self, context: Callable[[], AbstractContextManager[object]]) -> None:
        self._context = context
        self._counting = threading.Lock()
        self._clusters = 0
        self._entered: AbstractContextManager[object]

    def __enter__(self) -> None:
        with self._counting:
            if not self._clusters:
                self._entered = self._context()
                self._entered.__enter__()
            self._clusters += 1

    def __exit__(self, *_: object) -> None:
        with self._counting:
            self._clusters -= 1
            if not self._clusters:
                self._entered.__exit__(None, None, None)


def _start_options(dashboard_address: str) -> dict[str, Any]:
    """Return options for a cluster: one thread a worker, loopback and TLS only, quiet."""
    return {
        "threads_per_worker": 1,
        "host": "127.0.0.1",
        # Loopback is not a boundary between the users of a machine: who reaches a scheduler or a
        # worker can run code as its owner. So each connection has to show the certificate of this
        # cluster, which is in the memory of this process and of those that it starts.
        "protocol": "tls://",
        "security": temporary_security(),
        # Dask has a port for HTTP in any case; without an address it takes the well-known port
        # 8787, and warns when another cluster has it.
        "dashboard_address": dashboard_address or "127.0.0.1:0",
        "scheduler_kwargs": {"dashboard": bool(dashboard_address)},
        "preload": [_LEAVE_THE_GROUP, _COLLECT_RARELY],
        "silence_logs": False if _wants_logs() else logging.CRITICAL,
    }


@contextmanager
def started(
    start: Callable[[dict[str, Any]], distributed.LocalCluster], dashboard_address: str
) -> Iterator[distributed.Client]:
    """Start a cluster, connect to it, and end both with the context.

    `start` is given the options that all clusters have; an empty `dashboard_address`: no dashboard.
    """
    settings = DASK_SETTINGS if dashboard_address else DASK_SETTINGS | _NO_PAGES
    older = set(multiprocessing.active_children())
    with quiet(), _without_the_callers_script:
        with dask.config.set(settings), _interrupts_later() as interrupts:
            cluster = start(_start_options(dashboard_address))
        try:
            if interrupts:
                raise KeyboardInterrupt
            with connected(new_client(cluster)) as client:
                yield client
        finally:
            _close(cluster, older)


@contextmanager
def connected(client: distributed.Client) -> Iterator[distributed.Client]:
    """Give a client, and close it, whether or not its scheduler still answers."""
    try:
        yield client
    finally:
        # One that is closed while it connects leaves a socket behind.
        await_reconnection(client, CLIENT_CLOSES_S)
        with suppress(TimeoutError):
            client.close(timeout=CLIENT_CLOSES_S)


def new_client(
    scheduler: str | Cluster, timeout_s: float | None = None, security: Security | None = None
) -> distributed.Client:
    """Connect to a scheduler in time, or leave nothing behind.

    Dask makes a client the default one of this process before it is connected, and leaves it there
    where that is interrupted, or meets something else than a scheduler: whatever the caller
    computes by Dask later would wait for ever.

    `timeout_s` and `security` None: what Dask is configured for.

    Raises:
        OSError: The scheduler does not answer in time, or not as one.
    """
    if timeout_s is None:
        timeout_s = parse_timedelta(dask.config.get("distributed.comm.timeouts.connect"))
    if isinstance(scheduler, str):
        _greet(scheduler, timeout_s, security)
    before = _default_client()
    try:
        return distributed.Client(scheduler, timeout=timeout_s, security=security)
    except BaseException as error:
        made = _default_client()
        # One that is connected was made by another thread meanwhile, for a call of its own.
        if made is not None and made is not before and made.status != "running":
            with suppress(TimeoutError):
                made.close(timeout=CLIENT_CLOSES_S)
        if isinstance(error, Exception) and not isinstance(error, (OSError, ImportError)):
            raise OSError(f"it is no scheduler: {type(error).__name__}: {error}") from error
        raise


def _greet(address: str, timeout_s: float, security: Security | None) -> None:
    """See that something answers Dask's greeting, for which its own client waits without a limit.

    On a thread of its own, as this one may have an event loop that runs: a notebook's has.

    Raises:
        OSError: Nothing answers in time, or not so.
    """
    arguments = (security or Security()).get_connection_args("client")

    async def greet() -> None:
        greeting: Any = connect(address, timeout=timeout_s, **arguments)
        (await asyncio.wait_for(greeting, timeout=timeout_s)).abort()

    try:
        # The name of a host may take longer, which nothing can end.
        in_time(timeout_s + 5.0, lambda: asyncio.run(greet()))
    except OSError:
        raise
    except Exception as error:
        raise OSError(f"it is no scheduler: {error!r}") from error


def _default_client() -> distributed.Client | None:
    with suppress(ValueError):
        client: distributed.Client = distributed.default_client()
        return client
    return None


@contextmanager
def quiet() -> Iterator[None]:
    """Silence Dask in this process, whose own option for it misses handlers of the root logger."""
    known = list(logging.root.manager.loggerDict)
    loggers = [logging.getLogger(name) for name in known if name.split(".")[0] == "distributed"]
    levels = {logger: logger.level for logger in loggers if 0 < logger.level < logging.CRITICAL}
    # Its option silences handlers, also those that the caller's other loggers write to.
    shared = [
        (logger, handler)
        for logger in map(logging.getLogger, ("distributed", "bokeh"))
        for handler in logger.handlers
        if handler in logging.root.handlers
    ]
    if _wants_logs():
        levels, shared = {}, []
    for logger in levels:
        logger.setLevel(logging.CRITICAL)
    for logger, handler in shared:
        logger.removeHandler(handler)
    try:
        yield
    finally:
        for logger, handler in shared:
            logger.addHandler(handler)
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
def _prepared_otherwise() -> Iterator[None]:
    spawn.get_preparation_data = _prepare_worker
    try:
        yield
    finally:
        spawn.get_preparation_data = _prepare


# Worker processes start without the caller's script, which they would import as a module. They do
# not need it, and a script that has no `if __name__ == "__main__":` would call its flow again in
# each of them, which never ends. Workers are started again when they die, so this holds as long as
# a cluster does.
_without_the_callers_script = _WhileClusters(_prepared_otherwise)


def _forking() -> AbstractContextManager[object]:
    # Dask would import all that it can name in this process first, pandas among it.
    distributed.utils._forkserver_preload_set = True
    return dask.config.set({"distributed.worker.multiprocessing-method": "forkserver"})


forked_workers = _WhileClusters(_forking)
"""Workers are forked from a process that has done their imports, which each would do for itself."""


def forked_environment() -> tuple[dict[str, str], str]:
    """Return what gives a forked worker the environment that a spawned one would have.

    The process that it is forked from may have been started long before. Returned are the variables
    of this process; and what the worker runs first, to forget all others.
    """
    known = {"PYTHONHASHSEED", *os.environ}
    for key in ("pre-spawn-environ", "environ"):
        known.update(dask.config.get(f"distributed.nanny.{key}"))
    forget = f"import os; [os.environ.pop(name) for name in set(os.environ) - {known!r}]"
    return dict(os.environ), forget


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
    pids = {nanny.pid for nanny in list(cluster.workers.values())}
    late = threading.Timer(WORKERS_END_S, _kill, [lambda process: process.pid in pids])
    late.daemon = True
    late.start()
    try:
        cluster.close(timeout=CLOSE_TIMEOUT_S)
    except TimeoutError:
        if cluster.scheduler is not None:
            with suppress(TimeoutError):
                cluster.sync(cluster.scheduler.close, callback_timeout=CLIENT_CLOSES_S)
    finally:
        late.cancel()
        if cluster.status is not distributed.Status.closed:
            # It took too long, or was interrupted. Dask would wait for the same events again, for
            # ten seconds, when the interpreter exits; and nannies would start workers again.
            for nanny in list(cluster.workers.values()):
                nanny.close_gracefully()
            _kill(lambda process: process not in older)
            cluster.status = distributed.Status.closed


def _kill(is_meant: Callable[[BaseProcess], bool]) -> None:
    for process in multiprocessing.active_children():
        if process.name.startswith("Dask Worker") and is_meant(process):
            process.kill()
