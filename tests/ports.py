"""Ports for the servers that tests start, which nobody takes between their choice and their use."""

import atexit
import random
import socket

LOWEST = 5_000
END = 10_000
"""Where those of gangs begin."""
NO_BROWSER = {5060, 5061, 6000, 6566, *range(6665, 6670), 6679, 6697}
"""Those in between at which no browser opens a page (the bad ports of the Fetch standard)."""


def free_port() -> int:
    """A port of 127.0.0.1 at which nobody listens, kept for this process as long as it lives.

    It lies below those of gangs and those that the kernel gives to outgoing connections. Other
    processes of tests that look for one see that the same port of UDP, which no server uses, is
    taken.
    """
    # To draw an order of them all takes 4 ms, and a port a tenth of one.
    first = random.SystemRandom().randrange(LOWEST, END)
    for port in [*range(first, END), *range(LOWEST, first)]:
        if port in NO_BROWSER:
            continue
        claim = socket.socket(type=socket.SOCK_DGRAM)
        try:
            claim.bind(("127.0.0.1", port))
            with socket.socket() as listener:
                listener.bind(("127.0.0.1", port))
        except OSError:
            claim.close()
            continue
        # Which keeps it open until then.
        atexit.register(claim.close)
        return port
    raise OSError(f"None of the ports {LOWEST} to {END - 1} is free.")
