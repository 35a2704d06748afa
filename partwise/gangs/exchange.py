"""Small messages between the ranks of a gang: a star around rank 0, over authenticated sockets."""

import socket
import time
from contextlib import suppress
from multiprocessing.connection import Connection, answer_challenge, deliver_challenge

from partwise.errors import PeerLostError

CONNECT_S = 60.0
"""For so long a rank tries to reach rank 0, and rank 0 waits for the others."""


class RankExchange:
    """Lets ranks gather bytes; see `partwise.connector.rank_context.Exchange`.

    Rank 0 holds a connection to each other rank, on which both have shown that they know the key.
    The socket was bound and listens before any rank starts, so nobody can come too early.

    Args:
        rank: This rank.
        world_size: How many there are.
        listener: Of rank 0: the socket that listens; of the others None.
        address: Where rank 0 listens.
        key: A secret of this attempt of the gang.
    """

    def __init__(
        self,
        rank: int,
        world_size: int,
        listener: socket.socket | None,
        address: tuple[str, int],
        key: bytes,
    ) -> None:
        self._rank = rank
        self._connections: list[Connection] = []
        if world_size == 1:
            return
        try:
            if listener is not None:
                self._connections = _accept(listener, world_size, key)
            else:
                self._connections = [_connect(address, rank, key)]
        except OSError as error:
            raise PeerLostError(
                f"Rank {rank} did not find the other ranks within {CONNECT_S:.0f} s: {error}"
            ) from error

    def all_gather(self, content: bytes) -> list[bytes]:
        """Return what every rank has given, in the order of ranks.

        Raises:
            PeerLostError: Another rank has ended.
        """
        try:
            if self._rank > 0:
                hub = self._connections[0]
                hub.send_bytes(content)
                return [hub.recv_bytes() for _ in range(int(hub.recv_bytes()))]
            gathered = [content, *(peer.recv_bytes() for peer in self._connections)]
            for peer in self._connections:
                peer.send_bytes(b"%d" % len(gathered))
                for part in gathered:
                    peer.send_bytes(part)
        except (EOFError, OSError) as error:
            raise PeerLostError(
                f"Rank {self._rank} lost another rank of the gang while they exchanged data."
            ) from error
        return gathered

    def close(self) -> None:
        """Close the connections; the other ranks see it."""
        for connection in self._connections:
            connection.close()


def _accept(listener: socket.socket, world_size: int, key: bytes) -> list[Connection]:
    """Return connections to ranks 1, 2, ...; whoever does not know the key is turned away."""
    peers: dict[int, Connection] = {}
    deadline = time.monotonic() + CONNECT_S
    while len(peers) < world_size - 1:
        listener.settimeout(max(0.01, deadline - time.monotonic()))
        accepted, _ = listener.accept()
        accepted.settimeout(None)
        connection = Connection(accepted.detach())
        with suppress(Exception):
            deliver_challenge(connection, key)
            answer_challenge(connection, key)
            peers[int(connection.recv_bytes(16))] = connection
    listener.close()
    return [peers[rank] for rank in range(1, world_size)]


def _connect(address: tuple[str, int], rank: int, key: bytes) -> Connection:
    made = socket.create_connection(address, CONNECT_S)
    made.settimeout(None)
    connection = Connection(made.detach())
    answer_challenge(connection, key)
    deliver_challenge(connection, key)
    connection.send_bytes(b"%d" % rank)
    return connection
