"""A proxy before a server of TCP that closes all connections, and may refuse others for a while."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from tests.ports import free_port


class TcpProxy:
    """Hands on what both sides say, until it is restarted.

    Args:
        upstream: The address of the server, as Dask has it: tcp://host:port.
    """

    def __init__(self, upstream: str) -> None:
        host, _, port = upstream.removeprefix("tcp://").rpartition(":")
        self._upstream = host, int(port)
        self._port = free_port()
        self.address = f"tcp://127.0.0.1:{self._port}"
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self.carried = 0
        """How many connections there were."""
        self.loses = False
        """Whether what both sides say is lost, until all connections are closed."""
        self.listen()

    def listen(self) -> None:
        """Take connections from now on."""
        self._listener = socket.create_server(("127.0.0.1", self._port))
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()

    def close(self) -> None:
        """Close all connections, and refuse others."""
        with self._lock:
            # Which wakes the thread that waits for a connection; to close it does not.
            _shut(self._listener, *self._open)
            self._listener.close()
            self.loses = False

    def restart(self, refused_s: float = 0.0) -> None:
        """Close all connections, and refuse others for so long."""
        self.close()
        time.sleep(refused_s)
        self.listen()

    def _accept(self, listener: socket.socket) -> None:
        with suppress(OSError):
            while True:
                pair = listener.accept()[0], socket.create_connection(self._upstream)
                with self._lock:
                    self.carried += 1
                    self._open.update(pair)
                    if listener is not self._listener or listener.fileno() < 0:
                        _shut(*pair)
                for source, target in (pair, pair[::-1]):
                    threading.Thread(target=self._copy, args=(source, target), daemon=True).start()

    def _copy(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while piece := source.recv(1 << 16):
                if not self.loses:
                    target.sendall(piece)
        with self._lock:
            _shut(source, target)
            # Closed by the thread that reads it: nobody else may then have its number.
            self._open.discard(source)
        source.close()


def _shut(*connections: socket.socket) -> None:
    for each in connections:
        with suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)


@contextmanager
def tcp_proxy(upstream: str) -> Iterator[TcpProxy]:
    """Run a proxy for as long as a block lasts."""
    proxy = TcpProxy(upstream)
    try:
        yield proxy
    finally:
        proxy.close()
