"""Strangers at every port that a block opens, in this process and in all that it starts.

A thread looks which TCP ports are new, and of whom. At each that is of this process or of one below
it, and that can be reached by the loopback address, strangers of all kinds connect at once, and
stay until the block has ended. Linux only.
"""

import os
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from tests.strangers import STRANGERS, strangers_at

LOOK_S = 0.005
_LOOKS = 100
"""So often the owner of a new port is looked for; the port of somebody else has none here."""
_LISTENS = "0A"
_LOOPBACK = {
    "00000000": "127.0.0.1",
    "0100007F": "127.0.0.1",
    "0" * 32: "127.0.0.1",
    "0" * 24 + "01000000": "::1",
    "0000000000000000FFFF00000100007F": "127.0.0.1",
}
"""Where a port is reached that listens at an address, as the kernel writes it."""


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
            tries: dict[str, int] = {}
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


def _listening() -> Iterator[tuple[str, str, int]]:
    """Yield the inode, the address and the port of each socket of this machine that listens."""
    for table in ("tcp", "tcp6"):
        with suppress(FileNotFoundError):
            for line in Path("/proc/net", table).read_text().splitlines()[1:]:
                words = line.split()
                if words[3] == _LISTENS:
                    address, _, port = words[1].partition(":")
                    yield words[9], address, int(port, 16)


def _owners(inodes: set[str]) -> dict[str, str]:
    """Return which of these sockets this process or one below it has, by the words of that."""
    found = {}
    here = psutil.Process()
    for process in [here, *here.children(recursive=True)]:
        with suppress(OSError, psutil.Error):
            for entry in os.scandir(f"/proc/{process.pid}/fd"):
                with suppress(OSError):
                    inode = os.readlink(entry.path).removeprefix("socket:[").removesuffix("]")
                    if inode in inodes:
                        found[inode] = f"{process.pid} {' '.join(process.cmdline())}"
    return found
