"""Two processes of tests never start their servers at one port."""

import socket
import subprocess
import sys
from contextlib import suppress

import pytest

from partwise.gangs.ports import LOWEST_PORT
from tests import ports
from tests.ports import END, free_port

PORTS = range(END - 100, END)
N_EACH = 300
DRAW = f"""
from tests.ports import free_port
print(*[free_port() for _ in range({N_EACH})], flush=True)
input()
"""


def test_processes_that_draw_at_once_get_other_ports() -> None:
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    processes = [subprocess.Popen([sys.executable, "-c", DRAW], **pipes) for _ in range(3)]
    drawn = [int(port) for process in processes for port in process.stdout.readline().split()]
    for process in processes:
        process.communicate("\n")
    assert len(drawn) == len(set(drawn)) == 3 * N_EACH


def test_a_port_that_somebody_has_is_not_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "LOWEST", PORTS[0])
    # Servers have half of them, and processes that draw as well the other half; one is left.
    taken = [socket.socket(type=(socket.SOCK_STREAM, socket.SOCK_DGRAM)[n % 2]) for n in PORTS]
    try:
        for port, one in zip(PORTS, taken, strict=True):
            with suppress(OSError):
                one.bind(("127.0.0.1", port))
        last = next(one for one in taken[40:] if one.getsockname()[1])
        [_, left] = last.getsockname()
        last.close()
        assert free_port() == left
        with pytest.raises(OSError, match="None of the ports"):
            free_port()
    finally:
        for one in taken:
            one.close()


def test_gangs_take_none_of_them() -> None:
    assert LOWEST_PORT >= END
