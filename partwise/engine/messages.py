"""Messages between a worker and its child process: msgpack over a socket pair.

msgpack holds plain values only, so whatever a user's function does, reading its messages runs no
code. A message is a list whose first element names it:

    worker -> child   ["work", path]  ["shard", {...}]  ["run", [index, ...], attempt]
                      ["file", path]  ["missing", message]
    child -> worker   ["ready"]  ["unusable", error]  ["artifact", index, filename, content]
                      ["download", index, filename, run_id]  ["outcome", index, {...}]  ["idle"]

Content is bytes, or the path of a file when it is large.
"""

import select
import socket
from typing import Any

import msgpack

READ_BYTES = 1 << 18
LARGEST_MESSAGE_BYTES = (1 << 31) - 1


class Connection:
    """One end of the socket pair."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        # A message may quote what a user's function made of bytes that are no text.
        self._packer: Any = msgpack.Packer(  # type: ignore[attr-defined, no-untyped-call]
            unicode_errors="replace"
        )
        self._unpacker: Any = msgpack.Unpacker(  # type: ignore[attr-defined, no-untyped-call]
            max_buffer_size=LARGEST_MESSAGE_BYTES, strict_map_key=False
        )
        self._poll = select.poll()
        self._poll.register(sock, select.POLLIN | select.POLLHUP)

    def send(self, message: list[Any]) -> None:
        """Send a message.

        Raises:
            OSError: The other side is gone.
        """
        self._socket.sendall(self._packer.pack(message))

    def receive(self, timeout_s: float | None = None) -> list[Any] | None:
        """Return the next message, or None when none came within `timeout_s`.

        Raises:
            EOFError: The other side is gone, and all it sent has been received.
        """
        while True:
            message: list[Any] | None = next(self._unpacker, None)
            if message is not None:
                return message
            if not self._poll.poll(None if timeout_s is None else timeout_s * 1000):
                return None
            try:
                data = self._socket.recv(READ_BYTES)
            except ConnectionError:
                data = b""
            if not data:
                raise EOFError("the other side of the connection is gone")
            self._unpacker.feed(data)

    def close(self) -> None:
        """Close this end."""
        self._socket.close()
