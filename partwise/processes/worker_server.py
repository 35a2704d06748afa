"""The process that Dask workers of this machine are forked from, begun before it is needed.

Importing what a worker works with takes a second of a core. A server that is begun early does it
once for all workers, while this process has its own imports to do.
"""

import os
import signal
import sys
from multiprocessing import forkserver, resource_tracker
from typing import Any

from partwise.processes.starting import LastingThread
from partwise.processes.variables import variables_set

_IMPORTS = "partwise.engine.worker.preload"
# What `distributed.nanny.pre-spawn-environ` is for: read when an interpreter or libc starts.
_TRIM, _TRIM_OF_DASK = "MALLOC_TRIM_THRESHOLD_", "65536"
_UNLESS_SET = {
    _TRIM: _TRIM_OF_DASK,
    "PYTHONHASHSEED": "6640",
    # Arrow's allocator would take huge pages. The kernel clears each as a whole, and a batch of a
    # wide table needs a part of it: dividing 500 columns took up to 1.4 times as long.
    "MIMALLOC_ALLOW_THP": "0",
}
_SET = {
    # A process that has several threads is not forked safely, and numpy starts some for each core.
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    # A file of the working directory must not take the place of a library.
    "PYTHONSAFEPATH": "1",
}
# What Dask sets for its workers, and processes of users' code keep of it.
_OF_WORKERS = {
    **dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1"),
    "PYTHONHASHSEED": _UNLESS_SET["PYTHONHASHSEED"],
}

# The kernel kills the server, stopped or not, when the thread that started it ends. A caller's may
# end at any time; this one ends with the process.
_thread = LastingThread("worker-server")


def begin_worker_server() -> None:
    """Begin the server, where it does not run already, and do not wait for its imports.

    It ends with this process, or after it, once the workers are gone that it has forked.
    """
    _thread.call(_begin)


def worker_variables() -> dict[str, str]:
    """Return what `user_variables` are going to be in a worker that is started here now."""
    return _OF_WORKERS | user_variables()


def user_variables() -> dict[str, str]:
    """Return the variables of this process, a worker, for processes of users' code.

    They are spared what Dask sets to have a worker give memory back: with a threshold of its own
    the C library makes each allocation from 128 KiB on a mapping, which a small model of LightGBM
    takes 16 % longer for (`mallopt(3)`, M_MMAP_THRESHOLD). Another threshold is the user's, and
    stays.
    """
    variables = dict(os.environ)
    if variables.get(_TRIM) == _TRIM_OF_DASK:
        del variables[_TRIM]
    return variables


def _begin() -> None:
    # It unblocks what is blocked below.
    resource_tracker.ensure_running()
    # For good, in the server and in its workers: only the driver is to answer Ctrl-C.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    forkserver.set_forkserver_preload([_IMPORTS])
    # The server is told it as code, in which only text can stand. Python passes over the rest.
    places: list[Any] = sys.path
    for place in [each for each in places if not isinstance(each, str)]:
        places.remove(place)
    unset = {name: value for name, value in _UNLESS_SET.items() if name not in os.environ}
    # Workers are given the variables of their driver, and not these.
    with variables_set(unset | _SET):
        forkserver.ensure_running()
