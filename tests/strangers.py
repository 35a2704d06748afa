"""Who connects to a port of others, or listens there: silent, slow, talking nonsense, or gone."""

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

DRIP_S = 0.05


def _silent(one: socket.socket, is_over: threading.Event) -> None:
    is_over.wait()


def _dripping(one: socket.socket, is_over: threading.Event) -> None:
    # A length of 256 bytes as multiprocessing sends it, and then a byte at a time.
    content = struct.pack("!i", 256) + bytes(256)
    for place in range(len(content)):
        one.sendall(content[place : place + 1])
        if is_over.wait(DRIP_S):
            return
    is_over.wait()


def _talking(one: socket.socket, is_over: threading.Event) -> None:
    one.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
    is_over.wait()


def _huge(one: socket.socket, is_over: threading.Event) -> None:
    one.sendall(struct.pack("!iQ", -1, 1 << 62))
    is_over.wait()


def _gone(one: socket.socket, is_over: threading.Event) -> None:
    # Reset rather than closed.
    one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


STRANGERS: dict[str, Callable[[socket.socket, threading.Event], None]] = {
    "silent": _silent,
    "dripping": _dripping,
    "talking": _talking,
    "huge": _huge,
    "gone": _gone,
}


@contextmanager
def strangers_at(address: tuple[str, int], kind: str, count: int = 1) -> Iterator[None]:
    """Have strangers connected to a port for the time of a block, each since before it began."""
    is_over = threading.Event()
    come = [socket.create_connection(address) for _ in range(count)]

    def behave(one: socket.socket) -> None:
        with one, suppress(OSError):
            STRANGERS[kind](one, is_over)

    threads = [threading.Thread(target=behave, args=(one,)) for one in come]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        is_over.set()
        for thread in threads:
            thread.join()


@contextmanager
def strange_server(kind: str) -> Iterator[tuple[str, int]]:
    """Have a stranger listen, who treats all who come alike, and give the address."""
    is_over = threading.Event()
    threads = []

    def behave(one: socket.socket) -> None:
        with one, suppress(OSError):
            STRANGERS[kind](one, is_over)

    def serve() -> None:
        with suppress(OSError):
            while True:
                threads.append(threading.Thread(target=behave, args=(listener.accept()[0],)))
                threads[-1].start()

    with socket.create_server(("127.0.0.1", 0), backlog=64) as listener:
        serving = threading.Thread(target=serve)
        serving.start()
        try:
            yield listener.getsockname()
        finally:
            is_over.set()
            listener.shutdown(socket.SHUT_RDWR)
            serving.join()
            for thread in threads:
                thread.join()
