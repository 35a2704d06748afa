"""What a rank reads where Open MPI's processes tell it something."""

import socket
import time

import pytest

from partwise.scripts.mpi import _read_line
from tests.strangers import STRANGERS, strangers_at


@pytest.mark.parametrize("kind", STRANGERS)
def test_who_tells_nothing_that_is_a_message_is_not_waited_for(kind):
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        strangers_at(listener.getsockname(), kind),
        listener.accept()[0] as taken,
    ):
        assert _read_line(taken, time.monotonic() + 0.3) is None


def test_a_message_is_read():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(b'{"host": "a"}\n')
        assert _read_line(ours, time.monotonic() + 60) == {"host": "a"}
        theirs.sendall(b"ok")
        assert ours.recv(2) == b"ok"
