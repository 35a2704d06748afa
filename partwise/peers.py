"""Ranks of a gang reach each other: sockets on which both sides have shown that they know a key.

Anybody can connect to a port. So who says nothing, or says it slowly, must keep nobody waiting:
each connection is greeted on a thread of its own, and the oldest are closed where too many say
nothing.
"""

import os
import socket
import threading
import time
from collections.abc import Set
from contextlib import suppress
from multiprocessing import AuthenticationError
from multiprocessing.connection import Connection, answer_challenge, deliver_challenge
from queue import Empty, SimpleQueue

from partwise.errors import PeerLostError

CONNECT_S = 60.0
"""For so long ranks try to reach each other."""
_STRANGERS = 128
"""So many connections may be silent at a time."""
_AGAIN_S = 0.2
_RANK_BYTES = 16
_ALIVE = {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3}
"""A rank is out of reach when its kernel says nothing for 60 s; on Linux."""


def accept_peers(
    listener: socket.socket, ranks: Set[int], key: bytes, within_s: float = CONNECT_S
) -> dict[int, socket.socket]:
    """Return a connection of each of these ranks, and close the listener.

    `key` has at least 16 secret bytes, and is not sent; all of them have `within_s` seconds
    together.

    Raises:
        PeerLostError: Some did not come.
    """
    peers: dict[int, socket.socket] = {}
    greeted: SimpleQueue[tuple[int, socket.socket]] = SimpleQueue()
    door = _Door(listener, key, greeted)
    deadline = time.monotonic() + within_s
    try:
        while missing := ranks - peers.keys():
            try:
                rank, peer = greeted.get(timeout=max(0.0, deadline - time.monotonic()))
            except Empty:
                raise PeerLostError(
                    f"Rank {min(missing)} did not reach this rank within {within_s:.0f} s."
                ) from None
            if rank in missing:
                _look_after(peer)
                peers[rank] = peer
            else:
                peer.close()
    except BaseException:
        for peer in peers.values():
            peer.close()
        raise
    finally:
        door.close()
    return peers


def reach_peer(
    address: tuple[str, int], rank: int, key: bytes, within_s: float = CONNECT_S
) -> socket.socket:
    """Return a connection to the rank that listens at an address.

    Raises:
        PeerLostError: It is not there, does not answer, or knows another key.
    """
    deadline = time.monotonic() + within_s
    while True:
        left_s = max(0.01, deadline - time.monotonic())
        try:
            return _reach_once(address, rank, key, left_s)
        except (OSError, EOFError, AuthenticationError) as error:
            # Where strangers crowd the other side, it may have closed this connection as well.
            is_final = isinstance(error, ConnectionRefusedError | AuthenticationError)
            if is_final or time.monotonic() + _AGAIN_S >= deadline:
                raise PeerLostError(
                    f"Rank {rank} did not reach the rank at {address[0]}:{address[1]} within "
                    f"{within_s:.0f} s: {str(error) or type(error).__name__}"
                ) from error
        time.sleep(_AGAIN_S)


def _reach_once(address: tuple[str, int], rank: int, key: bytes, within_s: float) -> socket.socket:
    made = socket.create_connection(address, within_s)
    made.settimeout(None)
    # A limit of the socket would be one for each byte.
    limit = threading.Timer(within_s, hang_up, (made,))
    limit.daemon = True
    limit.start()
    try:
        with Connection(os.dup(made.fileno())) as connection:
            answer_challenge(connection, key)
            deliver_challenge(connection, key)
            connection.send_bytes(b"%d" % rank)
            # Only now it is known that the other side has taken this rank, and not turned it away.
            connection.recv_bytes(0)
    except BaseException:
        made.close()
        raise
    finally:
        limit.cancel()
    _look_after(made)
    return made


def _look_after(one: socket.socket) -> None:
    """Have a read end where the other host is out of reach: it would wait two hours."""
    one.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _ALIVE.items():
        if hasattr(socket, name):
            one.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


class _Door:
    """Accepts connections on a thread, and greets each on another one, until it is closed."""

    def __init__(
        self, listener: socket.socket, key: bytes, greeted: SimpleQueue[tuple[int, socket.socket]]
    ) -> None:
        self._listener = listener
        self._key = key
        self._greeted = greeted
        self._lock = threading.Lock()
        self._is_closed = False
        self._strangers: dict[socket.socket, None] = {}
        """In the order in which they came."""
        listener.settimeout(None)
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Accept nobody any more, and close what has not been greeted."""
        with self._lock:
            self._is_closed = True
            strangers = list(self._strangers)
        for one in strangers:
            hang_up(one)
        # Closing alone would not wake the thread that accepts.
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                one, _ = self._listener.accept()
            except OSError:
                if self._is_closed or self._listener.fileno() < 0:
                    return
                # Out of descriptors, or the connection is gone again.
                time.sleep(_AGAIN_S)
                continue
            with self._lock:
                if self._is_closed:
                    one.close()
                    return
                self._strangers[one] = None
                if len(self._strangers) > _STRANGERS:
                    hang_up(next(iter(self._strangers)))
            threading.Thread(target=self._greet, args=(one,), daemon=True).start()

    def _greet(self, one: socket.socket) -> None:
        try:
            with Connection(os.dup(one.fileno())) as connection:
                deliver_challenge(connection, self._key)
                answer_challenge(connection, self._key)
                rank = int(connection.recv_bytes(_RANK_BYTES))
                connection.send_bytes(b"")
        except Exception:
            one.close()
        else:
            self._greeted.put((rank, one))
        finally:
            with self._lock:
                self._strangers.pop(one, None)


def hang_up(one: socket.socket) -> None:
    """End a connection, so that whoever reads from it stops."""
    with suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)


def family_of(host: str) -> socket.AddressFamily:
    """Return the family of sockets for a host: IPv6 where it is such an address."""
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def interface_of(host: str) -> str | None:
    """Return the network interface that has the address of a host; None where none is known."""
    import psutil

    try:
        addresses = {str(found[4][0]) for found in socket.getaddrinfo(host, None)}
    except OSError:
        return None
    for name, entries in psutil.net_if_addrs().items():
        if any(entry.address.partition("%")[0] in addresses for entry in entries):
            return str(name)
    return None
