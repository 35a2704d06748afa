"""Strangers at every port that a block opens, in this process and in all that it starts.

A thread looks which TCP ports are new, and of whom. At each that is of this process or of one below
it, and that can be reached by the loopback address, strangers of all kinds connect at once, and
stay until the block has ended. Linux only.
"""

import os
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field

import psutil

from tests.strangers import STRANGERS, strangers_at

LOOK_S = 0.005
_LOOKS = 100
"""So often the owner of a new port is looked for; the port of somebody else has none here."""
_LOOPBACK = {
    "0.0.0.0": "127.0.0.1",
    "127.0.0.1": "127.0.0.1",
    "::": "127.0.0.1",
    "::1": "::1",
    "::ffff:127.0.0.1": "127.0.0.1",
}
"""Where a port is reached that listens at an address."""
_HEADER = struct.Struct("=IHHII")
_LISTENS = 10
_BY_FAMILY, _REQUEST_ALL, _DONE, _ERROR = 20, 0x301, 3, 2


@dataclass
class Visited:
    """What strangers found."""

    ports: list[str] = field(default_factory=list)
    """Of each port to which they came the words of the process that opened it."""
    missed: list[str] = field(default_factory=list)
    """Of ports that were closed before they came, or that no loopback address reaches."""


@contextmanager
def strangers_everywhere(kinds: tuple[str, ...] = tuple(STRANGERS)) -> Iterator[Visited]:
    """Have strangers of these kinds at each port that is opened within the block."""
    visited, is_over = Visited(), threading.Event()
    known = {inode: 0 for inode, *_ in _listening()}
    with ExitStack() as strangers:

        def watch() -> None:
            tries: dict[int, int] = {}
            while not is_over.wait(LOOK_S):
                new = [each for each in _listening() if each[0] not in known]
                owners = _owners({inode for inode, *_ in new}) if new else {}
                for inode, address, port in new:
                    tries[inode] = tries.get(inode, 0) + 1
                    if inode in owners or tries[inode] > _LOOKS:
                        known[inode] = 0
                    if inode not in owners:
                        continue
                    found = f"{owners[inode]} at {address}:{port}"
                    try:
                        for kind in kinds if address in _LOOPBACK else ():
                            place = (_LOOPBACK[address], port)
                            strangers.enter_context(strangers_at(place, kind))
                    except OSError as error:
                        visited.missed.append(f"{found}: {error}")
                    else:
                        of_whom = visited.ports if address in _LOOPBACK else visited.missed
                        of_whom.append(found)

        thread = threading.Thread(target=watch)
        thread.start()
        try:
            yield visited
        finally:
            is_over.set()
            thread.join()


def _listening() -> Iterator[tuple[int, str, int]]:
    """Yield the inode, the address and the port of each socket of this machine that listens.

    The kernel is asked for these alone, by its own protocol (sock_diag(7)): for /proc/net/tcp it
    goes through all connections, 10 ms each time.
    """
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 4) as kernel:
        for family, size in ((socket.AF_INET, 4), (socket.AF_INET6, 16)):
            asked = struct.pack("=BBxxI48x", family, socket.IPPROTO_TCP, 1 << _LISTENS)
            kernel.send(
                _HEADER.pack(_HEADER.size + len(asked), _BY_FAMILY, _REQUEST_ALL, 0, 0) + asked
            )
            for found in _answers(kernel):
                (port,) = struct.unpack_from(">H", found, 4)
                (inode,) = struct.unpack_from("=I", found, 68)
                yield inode, socket.inet_ntop(family, found[8 : 8 + size]), port


def _answers(kernel: socket.socket) -> Iterator[bytes]:
    while True:
        content, place = kernel.recv(1 << 16), 0
        while place < len(content):
            length, kind, *_ = _HEADER.unpack_from(content, place)
            if kind == _DONE:
                return
            if kind == _ERROR:
                raise OSError("the kernel does not say who listens")
            yield content[place + _HEADER.size : place + length]
            place += -(-length // 4) * 4


def _owners(inodes: set[int]) -> dict[int, str]:
    """Return which of these sockets this process or one below it has, by the words of that."""
    found = {}
    here = psutil.Process()
    for process in [here, *here.children(recursive=True)]:
        with suppress(OSError, psutil.Error):
            for entry in os.scandir(f"/proc/{process.pid}/fd"):
                with suppress(OSError):
                    name = os.readlink(entry.path)
                    inode = int(name[8:-1]) if name.startswith("socket:[") else 0
                    if inode in inodes:
                        found[inode] = f"{process.pid} {' '.join(process.cmdline())}"
    return found
