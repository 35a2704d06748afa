"""XGBoost's own connections between the ranks of a gang, and strangers who connect to its ports."""

import json
import math
import os
import socket
import struct
import threading
import time
from collections.abc import Iterator, Set
from contextlib import contextmanager, suppress

import numpy as np

from partwise.errors import PeerLostError
from partwise.ranks.context import RankContext

_SILENCE_S = 86_400
"""For so long a rank waits for another one; that one has ended, the gang finds out much earlier."""
CONNECT_S = 120.0
"""For so long ranks try to connect by XGBoost's collective."""
STUCK_S = 10.0
"""Who connects, and has not sent a byte so long after XGBoost took the connection, is shown out."""
_LOOK_S = 0.5
_RECEIVED_AT = 128
"""Where in the kernel's `struct tcp_info` the number of bytes stands that have come."""
_kept: list[object] = []
"""Trackers that ranks have not left: this process would abort if it freed one."""


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
    from xgboost.core import XGBoostError
    from xgboost.tracker import RabitTracker

    tracker = None
    told = b""
    # Before XGBoost listens anywhere: what comes later is its own.
    before = _listening()
    if context.rank == 0:
        host = context.addresses[0][0]
        tracker = RabitTracker(n_workers=context.world_size, host_ip=host, sortby="task")
        tracker.start()
        told = json.dumps(tracker.worker_args()).encode()
    arguments = json.loads(context.all_gather(told)[0])
    # The numbers of ranks are found by sorting these as text.
    arguments |= {"dmlc_task_id": f"{context.rank:08d}", "dmlc_timeout": _SILENCE_S}
    communicator = collective.CommunicatorContext(**arguments)
    with _closing_strangers(before, context) as strangers:
        try:
            with strangers.limited(STUCK_S):
                with strangers.joining():
                    communicator.__enter__()
                # Who took the place of a rank cannot answer for it: found here, and not in the
                # middle of the training.
                ranks = collective.allreduce(np.ones(1, np.float32), collective.Op.SUM)
                if ranks != context.world_size:
                    raise XGBoostError(f"{ranks} ranks have answered")
        except XGBoostError as error:
            # What is kept keeps them open, and the other ranks would wait for this one.
            strangers.shut()
            _kept.extend([tracker, communicator])
            late = f" within {CONNECT_S:.0f} s" if strangers.were_too_many else ""
            raise PeerLostError(_why_not(context, late)) from error
        has_ended = False
        try:
            yield
            has_ended = True
        finally:
            # Left after an error too: rank 0 would abort if it freed a tracker that a rank has not
            # left. All is done then; so no stranger may make a failure of the farewell.
            try:
                with strangers.limited():
                    communicator.__exit__(None, None, None)
                    if tracker is not None and has_ended:
                        tracker.wait_for()
            except XGBoostError:
                _kept.append(tracker)


class _Strangers:
    """Shows out who connects to XGBoost's ports and says nothing, on a thread, until the end.

    XGBoost reads from one connection after the other, each for as long as it takes (3.2,
    src/collective/tracker.cc and comm.cc). Its own ranks have said something before anybody waits
    for them. When ranks do not find each other in time nobody may come any more, and XGBoost's
    connections are ended. `before` are ports at which this process listened already.
    """

    def __init__(self, before: set[int], context: RankContext) -> None:
        self.were_too_many = False
        self._before = before
        self._context = context
        self._deadline = self._end_at = math.inf
        self._others: Set[str] = frozenset()
        """Sockets from before the ranks were joined."""
        self._joined: Set[str] | None = None
        """What joins the ranks, and perhaps what another thread has opened meanwhile; None: they
        are not joined."""
        self._taken: dict[str, float] = {}
        """When each connection was first seen."""

    @contextmanager
    def limited(self, then_end_s: float = math.inf) -> Iterator[None]:
        """Have XGBoost fail when a block takes too long, and this rank end where it does not.

        `then_end_s` are the seconds in between.
        """
        self._deadline = time.monotonic() + CONNECT_S
        self._end_at = self._deadline + then_end_s
        try:
            yield
        finally:
            self._deadline = self._end_at = math.inf

    @contextmanager
    def joining(self) -> Iterator[None]:
        """Note what connections a block makes: XGBoost listens at its ports no longer after it."""
        self._others = _sockets().keys()
        yield
        self._joined = _sockets().keys() - self._others

    def look(self) -> None:
        """Show out who has said nothing for too long, and all when it is too late."""
        now = time.monotonic()
        accepted = _accepted(_listening() - self._before)
        self._taken = {name: self._taken.get(name, now) for name in accepted}
        for name, descriptor in accepted.items():
            is_late = now - self._taken[name] >= STUCK_S
            with suppress(OSError), _duplicate(descriptor) as one:
                if is_late and not _received_bytes(one):
                    one.shutdown(socket.SHUT_RDWR)
        if now >= self._deadline:
            self.were_too_many = True
            self.shut()
        # A failure that comes before XGBoost waits for it ends its thread for connections, and the
        # wait goes on (3.2, src/collective/loop.cc, Loop::Block): nothing here can reach it.
        if now >= self._end_at:
            _end_process(_why_not(self._context, f" within {CONNECT_S:.0f} s"))

    def shut(self) -> None:
        """End all that XGBoost waits for, and let in nobody any more."""
        ports = _listening() - self._before
        opened = _sockets().keys() - self._others if self._joined is None else self._joined
        _shut(ports, opened | _accepted(ports).keys())


@contextmanager
def _closing_strangers(before: set[int], context: RankContext) -> Iterator[_Strangers]:
    """Show strangers out while a block runs; see `_Strangers`."""
    is_over = threading.Event()
    strangers = _Strangers(before, context)

    def watch() -> None:
        while not is_over.wait(_LOOK_S):
            strangers.look()

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield strangers
    finally:
        is_over.set()
        thread.join()


def _why_not(context: RankContext, late: str) -> str:
    return (
        f"Rank {context.rank} was not connected with the others by XGBoost{late}. Another rank has "
        "ended, or somebody else has connected to the ports that XGBoost opened at "
        f"{context.addresses[context.rank][0]}, which let in everybody: keep others away from the "
        "gang's network. With max_retries= the gang begins again by itself."
    )


def _end_process(why: str) -> None:
    """End this rank, whose gang shows what its log ends with."""
    os.write(2, f"{why}\n".encode())
    os._exit(1)


def _received_bytes(one: socket.socket) -> int:
    about = one.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _RECEIVED_AT + 8)
    return int(struct.unpack_from("Q", about, _RECEIVED_AT)[0])


def _shut(ports: set[int], names: Set[str]) -> None:
    """End connections, and who listens at ports; XGBoost takes it for an error then."""
    for name, descriptor in _sockets().items():
        with suppress(OSError), _duplicate(descriptor) as one:
            listens = one.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
            if name in names or (listens and one.getsockname()[1] in ports):
                one.shutdown(socket.SHUT_RDWR)


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
            # To ask a socket that listens for its peer raises.
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
