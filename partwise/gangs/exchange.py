"""Small messages between the ranks of a gang: a star around rank 0, over authenticated sockets."""

import socket
from multiprocessing.connection import Connection

from partwise.errors import PeerLostError
from partwise.peers import accept_peers, reach_peer


class RankExchange:
    """Lets ranks gather bytes; see `partwise.ranks.context.Exchange`.

    Rank 0 holds a connection to each other rank, on which both have shown that they know the key.
    The socket was bound and listens before any rank starts, so nobody can come too early.

    `listener` is the socket of rank 0 that listens; of the others None. `address` is where rank 0
    listens, and `key` a secret of this attempt of the gang.

    Raises:
        PeerLostError: Another rank did not come, or rank 0 is not there.
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
        if listener is not None:
            peers = accept_peers(listener, set(range(1, world_size)), key)
            self._connections = [Connection(peers[place].detach()) for place in sorted(peers)]
        else:
            self._connections = [Connection(reach_peer(address, rank, key).detach())]

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
