"""XGBoost's own connections between the ranks of a gang, and strangers who connect to its ports."""

import json
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress

from partwise.connector.rank_context import RankContext

_SILENCE_S = 86_400
"""For so long a rank waits for another one; that one has ended, the gang finds out much earlier."""
STUCK_S = 30.0
"""When connections are being made and none has come for so long, the newest is closed."""
_LOOK_S = 0.5


@contextmanager
def connected(context: RankContext) -> Iterator[None]:
    """Connect the ranks of a gang by XGBoost's collective, for as long as the block runs.

    The tracker is in rank 0's process, which ends with the gang; in a Dask worker it would leave
    its memory behind.
    """
    if context.world_size == 1:
        yield
        return
    from xgboost import collective
    from xgboost.tracker import RabitTracker

    tracker = None
    told = b""
    before = _listening()
    if context.rank == 0:
        host = context.addresses[0][0]
        tracker = RabitTracker(n_workers=context.world_size, host_ip=host, sortby="task")
        tracker.start()
        told = json.dumps(tracker.worker_args()).encode()
    arguments = json.loads(context.all_gather(told)[0])
    # The numbers of ranks are found by sorting these as text.
    arguments |= {"dmlc_task_id": f"{context.rank:08d}", "dmlc_timeout": _SILENCE_S}
    with ExitStack() as stack:
        with _closing_strangers(before):
            # Left after an error too: rank 0 would abort if it freed a tracker that a rank has not
            # left.
            stack.enter_context(collective.CommunicatorContext(**arguments))
        yield
    if tracker is not None:
        tracker.wait_for()


@contextmanager
def _closing_strangers(before: set[int]) -> Iterator[None]:
    """Close connections that hold XGBoost up while a block connects ranks.

    It reads from one connection after the other, each for as long as it takes (3.4,
    src/collective/tracker.cc and comm.cc). So the one that says nothing is the newest which this
    process has accepted; those behind it wait in the kernel.

    Args:
        before: Ports at which this process listened already, not for XGBoost.
    """
    is_over = threading.Event()

    def watch() -> None:
        seen: dict[str, None] = {}
        waited_s = 0.0
        while not is_over.wait(_LOOK_S):
            accepted = _accepted(_listening() - before)
            waited_s += _LOOK_S
            if not accepted.keys() <= seen.keys():
                seen |= dict.fromkeys(accepted)
                waited_s = 0.0
            elif waited_s >= STUCK_S and accepted:
                newest = next(name for name in reversed(seen) if name in accepted)
                waited_s = 0.0
                with suppress(OSError), _duplicate(accepted[newest]) as stranger:
                    stranger.shutdown(socket.SHUT_RDWR)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def _listening() -> set[int]:
    """Return the TCP ports at which this process listens."""
    ports = set()
    for descriptor in _sockets().values():
        with suppress(OSError), _duplicate(descriptor) as one:
            if one.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                ports.add(int(one.getsockname()[1]))
    return ports


def _accepted(ports: set[int]) -> dict[str, int]:
    """Return the connections which this process has accepted at ports, as `_sockets` does."""
    accepted = {}
    for name, descriptor in _sockets().items():
        with suppress(OSError), _duplicate(descriptor) as one:
            if one.getsockname()[1] in ports and one.getpeername():
                accepted[name] = descriptor
    return accepted


def _sockets() -> dict[str, int]:
    """Return the descriptors of this process's sockets, by the kernel's name for each."""
    found = {}
    for entry in os.scandir("/proc/self/fd"):
        with suppress(OSError):
            name = os.readlink(entry.path)
            if name.startswith("socket:"):
                found[name] = int(entry.name)
    return found


def _duplicate(descriptor: int) -> socket.socket:
    """Return a socket on a descriptor of its own, as the library may close its own at any time."""
    one = socket.socket(fileno=os.dup(descriptor))
    if one.family not in (socket.AF_INET, socket.AF_INET6):
        one.close()
        raise OSError("not of the Internet")
    return one
