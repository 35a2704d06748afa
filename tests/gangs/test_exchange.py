"""The exchange between ranks: everybody gets what everybody gave, and strangers get nothing."""

import socket
import threading

import pytest

from partwise.errors import PeerLostError
from partwise.gangs.exchange import RankExchange
from partwise.ranks.context import RankContext
from partwise.ranks.current_context import get_context
from tests.gangs.local_ranks import run_ranks


def gather_twice(context: RankContext) -> list[list[bytes]]:
    assert get_context() is context
    size = 3_000_000 * context.rank
    return [
        context.all_gather(bytes([context.rank]) * size),
        context.all_gather(b"%d" % context.rank),
    ]


@pytest.mark.parametrize("world_size", [1, 3])
def test_every_rank_gets_what_every_rank_gave(world_size):
    expected = [
        [bytes([rank]) * (3_000_000 * rank) for rank in range(world_size)],
        [b"%d" % rank for rank in range(world_size)],
    ]
    assert run_ranks(world_size, gather_twice) == [expected] * world_size


def leave_or_gather(context: RankContext) -> str:
    if context.rank == 1:
        return "left"
    try:
        context.all_gather(b"")
    except PeerLostError as error:
        return str(error)
    return "gathered"


def test_a_rank_that_ends_is_missed_by_the_others():
    first, second, third = run_ranks(3, leave_or_gather)
    assert second == "left"
    assert first.startswith("Rank 0 lost another rank")
    assert third.startswith("Rank 2 lost another rank")


def test_who_does_not_know_the_key_is_turned_away():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = listener.getsockname()
        made = []
        hub = threading.Thread(
            target=lambda: made.append(RankExchange(0, 2, listener.dup(), address, b"secret"))
        )
        hub.start()
        with pytest.raises(PeerLostError, match=r"Rank 1 did not reach .*digest"):
            RankExchange(1, 2, None, address, b"guessed")
        mine = RankExchange(1, 2, None, address, b"secret")
        hub.join()
        answer = threading.Thread(target=lambda: made.append(made[0].all_gather(b"hub")))
        answer.start()
        assert mine.all_gather(b"mine") == [b"hub", b"mine"]
        answer.join()
        assert made[1] == [b"hub", b"mine"]
        made[0].close()
        mine.close()
