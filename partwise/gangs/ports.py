"""Ports that are kept for a rank until a library binds them by itself."""

import random
import socket
from contextlib import suppress
from pathlib import Path

LOWEST_PORT = 10_000
_TRIES = 200
_chance = random.SystemRandom()


def reserve_port(family: socket.AddressFamily = socket.AF_INET) -> socket.socket:
    """Return a socket that is bound on all interfaces and does not listen.

    The port lies below those that the kernel gives to outgoing connections
    (net.ipv4.ip_local_port_range): else one of these could take it in the moment between the
    release here and the bind there.

    Raises:
        OSError: No port is free.
    """
    end = _first_ephemeral_port()
    for _ in range(_TRIES if end > LOWEST_PORT else 0):
        reserved = socket.socket(family)
        with suppress(OSError):
            reserved.bind(("", _chance.randrange(LOWEST_PORT, end)))
            return reserved
        reserved.close()
    reserved = socket.socket(family)
    try:
        reserved.bind(("", 0))
    except OSError:
        reserved.close()
        raise
    return reserved


def _first_ephemeral_port() -> int:
    try:
        return int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    except (OSError, ValueError):
        return 0
