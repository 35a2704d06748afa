"""The process that Dask workers of this machine are forked from, begun before it is needed.

Importing what a worker works with takes a second of a core. A server that is begun early does it
once for all workers, while this process has its own imports to do.
"""

import os
import signal
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from multiprocessing import forkserver, resource_tracker

_IMPORTS = "partwise.engine.worker_imports"
# What `distributed.nanny.pre-spawn-environ` is for: read when an interpreter or libc starts.
_UNLESS_SET = {"MALLOC_TRIM_THRESHOLD_": "65536", "PYTHONHASHSEED": "6640"}
_SET = {
    # A process that has several threads is not forked safely, and numpy starts some for each core.
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    # A file of the working directory must not take the place of a library.
    "PYTHONSAFEPATH": "1",
}


def begin_worker_server() -> None:
    """Begin the server, where it does not run already, and do not wait for its imports.

    Python ends it when this process is gone, and the workers that it has forked.
    """
    # It unblocks what is blocked below.
    resource_tracker.ensure_running()
    forkserver.set_forkserver_preload([_IMPORTS])
    unset = {name: value for name, value in _UNLESS_SET.items() if name not in os.environ}
    with _variables(unset | _SET), _without_interrupts():
        forkserver.ensure_running()


@contextmanager
def _variables(wanted: Mapping[str, str]) -> Iterator[None]:
    """Give variables to what is started in a block; workers are given those of their driver."""
    before = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@contextmanager
def _without_interrupts() -> Iterator[None]:
    """Block Ctrl-C for good in what is started in a block: only the driver is to answer it."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
