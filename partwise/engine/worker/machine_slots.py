"""Slots of a machine, each held by one shard at a time, whichever worker of the machine it is on.

Dask starts a task wherever a worker has a thread. Where a partition is to have more than one CPU,
or GPUs of its own, fewer of them may work at once than there are threads. Dask's resources would
say so, but they belong to one worker, are gone when it is started again, and tasks that wait for
them are not looked at again when a worker gets them later. So a shard takes a thread first, and
then waits here for a slot.
"""

import contextlib
import errno
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from partwise.engine.limits import LEFT_TO_THE_REST

POLL_S = 0.05
_THREADS = (
    # Arrow, torch, XGBoost, LightGBM and scikit-learn take the first.
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "BLIS_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "NUMBA_NUM_THREADS",
    "POLARS_MAX_THREADS",
    "RAYON_NUM_THREADS",
    "TF_NUM_INTRAOP_THREADS",
    "LOKY_MAX_CPU_COUNT",
)
_GPU_CAPS = ("PYTORCH_ALLOC_CONF", "CUPY_GPU_MEMORY_LIMIT", "XLA_PYTHON_CLIENT_MEM_FRACTION")
"""Those of torch, CuPy and JAX; XGBoost knows none. JAX takes three quarters of a GPU otherwise."""
_local = threading.local()


@contextmanager
def hold_slot(
    token: str, devices: Sequence[tuple[str, ...]], is_stopped: Callable[[], bool]
) -> Iterator[tuple[str, ...]]:
    """Wait for one of this machine's slots, and hold it.

    A slot is a name in the abstract namespace of Unix sockets, to which one socket can be bound. So
    the kernel gives it back however its process ends, it leaves no file, and it is known where the
    machine's network address is: containers with an address of their own have their own slots.
    `devices` are the GPUs of each slot, which are given; nobody need wait any more when
    `is_stopped`.

    Yields:
        The GPUs of the slot.
    """
    # The slot that this thread had last comes first: a child process for its GPUs is there already.
    last = getattr(_local, "number", 0) % len(devices)
    order = [*range(last, len(devices)), *range(last)]
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as holder:
        while not is_stopped():
            number = next((n for n in order if _bind(holder, f"\0partwise/{token}/{n}")), None)
            if number is not None:
                _local.number = last = number
                break
            time.sleep(POLL_S)
        yield devices[last]


class SharedMachine:
    """The presence of a shard on this machine, beside those of the same execution, or alone.

    Names in the abstract namespace of Unix sockets say who is there, as with slots: the kernel
    takes them back however a process ends.
    """

    def __init__(self, token: str, is_stopped: Callable[[], bool]) -> None:
        self._here = f"\0partwise/{token}/here/"
        self._alone = f"\0partwise/{token}/alone"
        self._is_stopped = is_stopped
        self._own: socket.socket | None = None

    def __enter__(self) -> "SharedMachine":
        # First the own name, then the look: who wants to be alone does it the other way round, so
        # that one of both sees the other.
        while not self._is_stopped():
            self._own = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            self._own.bind(self._here + secrets.token_hex(8))
            if not _names_beginning(self._alone):
                break
            self._leave()
            time.sleep(POLL_S)
        return self

    def __exit__(self, *exception: object) -> None:
        self._leave()

    def _leave(self) -> None:
        if self._own is not None:
            self._own.close()
            self._own = None

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Leave, wait until all others have ended their shards, and keep new ones waiting.

        When the run is being stopped, nobody waits for others any more.
        """
        # First: two that want to be alone would else wait for each other for ever.
        self._leave()
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as gate:
            while not self._is_stopped() and not _bind(gate, self._alone):
                time.sleep(POLL_S)
            while not self._is_stopped() and _names_beginning(self._here):
                time.sleep(POLL_S)
            yield


def _names_beginning(name: str) -> bool:
    """Whether a socket has a name that begins so."""
    with contextlib.suppress(OSError), open("/proc/net/unix", encoding="utf-8") as file:
        # The kernel shows the null byte that an abstract name begins with as @.
        shown = " " + name.replace("\0", "@")
        return any(shown in line for line in file)
    return False


def _bind(holder: socket.socket, name: str) -> bool:
    try:
        holder.bind(name)
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise
        return False
    return True


def thread_variables(threads: int, environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the variables that tell libraries how many threads a process is to use.

    With one thread, which is what nobody asked for, those that are set already are left alone.
    """
    return {name: str(threads) for name in _THREADS if threads > 1 or name not in environ}


def gpu_variables(
    gpus: Sequence[str], part: float = 1, environ: Mapping[str, str] = os.environ
) -> dict[str, str]:
    """Return the variables that show a process these GPUs only; none of them hides all.

    Of a GPU that it shares, libraries are given that part of most of its memory, where nobody has
    said how much they may take.
    """
    variables = {"CUDA_VISIBLE_DEVICES": ",".join(gpus)}
    if not 0 < part < 1:
        return variables
    most = (1 - LEFT_TO_THE_REST) * part
    caps = {"PYTORCH_ALLOC_CONF": f"per_process_memory_fraction:{most:.4f}"}
    caps |= {"CUPY_GPU_MEMORY_LIMIT": f"{100 * most:.2f}%"}
    caps |= {"XLA_PYTHON_CLIENT_MEM_FRACTION": f"{most:.4f}"}
    if "PYTORCH_CUDA_ALLOC_CONF" in environ:
        del caps["PYTORCH_ALLOC_CONF"]
    return variables | {name: cap for name, cap in caps.items() if name not in environ}


def without_gpu_caps(variables: Mapping[str, str]) -> dict[str, str]:
    """Return variables without those of `gpu_variables` that limit memory."""
    return {name: value for name, value in variables.items() if name not in _GPU_CAPS}
