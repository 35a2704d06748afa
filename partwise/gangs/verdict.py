"""Who is to blame when a gang fails: the first rank that did not merely die of another one."""

import re
from collections.abc import Sequence

from partwise.errors import PeerLostError
from partwise.gangs.spec import RankEnd
from partwise.outcomes import PartitionStatus

_PEER_LOST = f"{PeerLostError.__module__}.{PeerLostError.__qualname__}"
# What libraries say when a connection to another rank ends: Python, XGBoost's collective,
# LightGBM's network, gloo, NCCL, torch's stores, MPI.
_CONSEQUENCES = re.compile(
    r"""
      Ring\ (Allreduce|Allgather)\ failed
    | Socket\ (recv|send|connect)\w*\ (error|failed)
    | error\ code[:\s]+(104|32|103|110|111)\b
    | Connection\ (was\ )?(reset|closed|aborted|refused)(\ by\ (remote\ )?peer)?
    | (Broken\ pipe|ECONNRESET|EPIPE)
    | Read\ error\ \[|Write\ error\ \[
    | Failed\ to\ recv,\ got\ 0\ bytes
    | ncclRemoteError|remote\ process\ exited|NCCL\ communicator\ was\ aborted
    | DistNetworkError|DistStoreError|recvValue\ failed|sendBytes\ failed
    | [Tt]he\ client\ socket\ has\ (timed\ out|failed\ to\ connect)
    | Timed\ out\ waiting\ .*\ clients
    | Please\ check\ (the\ )?network\ connect
    """,
    re.VERBOSE,
)


def is_consequence(error: str) -> bool:
    """Whether a rank failed as ranks do when another one has ended.

    `error` is the summary of its failure.
    """
    if error.startswith(_PEER_LOST):
        return True
    # Its own death, though the end of its log, in the message, may speak of a lost rank. SIGABRT
    # is not among them: libraries abort when another rank is gone.
    if re.search(r"SIG(KILL|SEGV|BUS|ILL|FPE)", error.partition("\n")[0]):
        return False
    return _CONSEQUENCES.search(error) is not None


def choose_guilty(ends: Sequence[RankEnd], order: Sequence[int] = ()) -> RankEnd | None:
    """Return the rank whose failure is the reason that the gang failed; None: none failed.

    `order` has the ranks in the order in which their ends became known.
    """
    failed = [end for end in ends if end.failure is not None]
    places = {rank: place for place, rank in reversed(list(enumerate(order)))}

    def rate(end: RankEnd) -> tuple[bool, bool, int, int]:
        was_ended = end.status == PartitionStatus.CANCELLED
        is_victim = end.failure is not None and is_consequence(end.failure.summary)
        return was_ended, is_victim, places.get(end.rank, len(ends)), end.rank

    return min(failed, key=rate, default=None)
