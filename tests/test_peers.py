"""Ranks reach each other in spite of strangers, and in a bounded time or not at all."""

import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest

from partwise.errors import PeerLostError
from partwise.peers import accept_peers, reach_peer
from tests.strangers import STRANGERS, strangers_at

KEY = b"0123456789abcdef"


@pytest.mark.parametrize("kind", STRANGERS)
@pytest.mark.parametrize("count", [1, 150])
def test_strangers_keep_no_rank_out(kind, count):
    with (
        socket.create_server(("127.0.0.1", 0), backlog=256) as listener,
        strangers_at(listener.getsockname(), kind, count),
        ThreadPoolExecutor(4) as threads,
    ):
        address = listener.getsockname()
        accepted = threads.submit(accept_peers, listener, {1, 2, 3}, KEY)
        reached = [threads.submit(reach_peer, address, rank, KEY) for rank in (1, 2, 3)]
        peers = accepted.result()
        for rank, future in enumerate(reached, start=1):
            with future.result() as mine, peers[rank] as theirs:
                mine.sendall(b"%d" % rank)
                assert theirs.recv(16) == b"%d" % rank


def test_a_rank_that_is_not_expected_or_comes_twice_is_turned_away():
    with socket.create_server(("127.0.0.1", 0)) as listener, ThreadPoolExecutor(1) as threads:
        address = listener.getsockname()
        accepted = threads.submit(accept_peers, listener, {1, 2}, KEY)
        with (
            reach_peer(address, 1, KEY),
            reach_peer(address, 7, KEY) as seventh,
            reach_peer(address, 1, KEY) as again,
            reach_peer(address, 2, KEY),
        ):
            peers = accepted.result()
            assert seventh.recv(1) == again.recv(1) == b""
        assert sorted(peers) == [1, 2]
        for peer in peers.values():
            peer.close()


def test_who_does_not_come_is_named_in_time():
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        strangers_at(listener.getsockname(), "silent"),
        pytest.raises(PeerLostError, match=r"Rank 1 did not reach this rank within 0 s"),
    ):
        accept_peers(listener, {1, 2}, KEY, within_s=0.3)


@pytest.mark.parametrize("kind", ["silent", "talking"])
def test_a_rank_0_that_does_not_answer_is_given_up(kind):
    answers = {"silent": b"", "talking": b"HTTP/1.1 400 Bad Request\r\n\r\n"}
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            taken, _ = listener.accept()
            with taken, suppress(ConnectionResetError):
                taken.sendall(answers[kind])
                while taken.recv(1 << 10):
                    pass

        threading.Thread(target=answer, daemon=True).start()
        with pytest.raises(PeerLostError, match=r"Rank 3 did not reach the rank at 127\.0\.0\.1"):
            reach_peer(listener.getsockname(), 3, KEY, within_s=0.5)


def test_nobody_listens():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = listener.getsockname()
    with pytest.raises(PeerLostError, match="Connection refused"):
        reach_peer(address, 1, KEY)
