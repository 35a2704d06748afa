"""The port of a rank, which other processes hold for a moment longer than the rank."""

import socket
import threading
import time

from partwise import RankContext
from partwise.ranks.context import RELEASE_S


def test_a_port_is_given_up_when_nobody_holds_it():
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        address = reserved.getsockname()
        # As the worker, the warm process and the keeper have it.
        held = reserved.dup()
        context = RankContext(rank=0, world_size=1, addresses=(address,), reserved=reserved)
        threading.Timer(0.05, held.close).start()
        with socket.create_server(context.release_port()):
            began = time.monotonic()
            assert context.release_port() == address
            assert time.monotonic() - began < RELEASE_S
