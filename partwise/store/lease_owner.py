"""The process that works on a run, as its claim names it, and whether it still lives."""

import os
import secrets
import socket
from datetime import UTC, datetime
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict

held_here: set[str] = set()
"""Writer IDs of the leases that this process holds, or is about to."""


class LeaseOwner(BaseModel):
    """The document of a claim: which process made it, and when."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    format_version: Literal[1, 2] = 2
    gives_way: bool = False
    """Whether it releases the run soon after it is asked to, as a garbage collection does. Not in
    version 1."""
    host: str
    pid: int
    process_start: str
    """In clock ticks since the machine booted: tells a process from a later one of the same ID."""
    boot_id: str
    pid_namespace: str
    """Containers on one machine may share its host name and boot ID, but not its process IDs."""
    writer_id: str
    claimed_at: datetime

    @classmethod
    def of_this_process(cls, *, gives_way: bool = False) -> Self:
        """Describe this process, with a writer ID that nobody else has."""
        return cls(
            gives_way=gives_way,
            host=socket.gethostname(),
            pid=os.getpid(),
            process_start=_process_start(os.getpid()) or "",
            boot_id=_boot_id(),
            pid_namespace=_pid_namespace(),
            writer_id=secrets.token_hex(16),
            claimed_at=datetime.now(UTC),
        )

    def state(self) -> Literal["alive", "gone", "out of sight"]:
        """Tell whether the process still runs, as far as this machine can know."""
        here = (_boot_id(), _pid_namespace())
        if not all(here) or here != (self.boot_id, self.pid_namespace):
            return "out of sight"
        start = _process_start(self.pid)
        if start is not None:
            # Our own claim that a store failed to release, or to say that it was made, is nobody's.
            is_held = self.pid != os.getpid() or self.writer_id in held_here
            return "alive" if start == self.process_start and is_held else "gone"
        try:
            os.kill(self.pid, 0)
        except (ProcessLookupError, OverflowError):  # no machine has so many processes
            return "gone"
        except PermissionError:
            return "out of sight"  # a /proc that hides the processes of others
        return "gone"  # killed, and not yet collected by its parent

    def __str__(self) -> str:
        since = self.claimed_at.isoformat(sep=" ", timespec="seconds")
        return f"process {self.pid} on {self.host}, since {since}"


def _process_start(pid: int) -> str | None:
    """Return when a running process began; None if there is none, or it cannot be seen."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            # The name, in parentheses, may itself have spaces and parentheses.
            fields = file.read().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZXx" else fields[19]


def _boot_id() -> str:
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""


def _pid_namespace() -> str:
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""
