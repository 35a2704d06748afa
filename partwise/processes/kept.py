"""A process under its keeper, as their worker sees both: how it ends, and how it is ended."""

import contextlib
import os
import selectors
import signal
import sys
import time
from mmap import mmap

from partwise.processes.family import descendants_of, is_running, kill
from partwise.processes.keeper import KEEPER_S, PID
from partwise.processes.starting import describe_exit


class KeptProcess:
    """A keeper, which a warm server has forked, and the process that it keeps.

    Args:
        keeper_pid: The keeper's number.
        status_fd: Where the server writes how it ended, before the number is free for another.
        pid_fd: Where the process that is kept leaves its number.
    """

    def __init__(self, keeper_pid: int, status_fd: int, pid_fd: int) -> None:
        self.keeper_pid = keeper_pid
        self._status_fd = status_fd
        self._pid_memory = mmap(pid_fd, PID.size)
        self._code: int | None = None
        self._ending_since: float | None = None

    @property
    def pid(self) -> int:
        """The number of the process itself; of its keeper until it has begun."""
        return self._own_pid() or self.keeper_pid

    def has_begun(self) -> bool:
        """Whether the process itself is, or was, there; its keeper listens since before that."""
        return self._own_pid() != 0

    def _own_pid(self) -> int:
        return int(PID.unpack_from(self._pid_memory)[0])

    def family(self) -> list[int]:
        """Return the process and all that it started, without the keeper."""
        # What it has left, the keeper has got.
        return list(descendants_of(self.keeper_pid))

    def poll(self) -> int | None:
        """Return how it ended, as `returncode`, when all below the keeper has; None: not yet."""
        if self._code is not None:
            return self._code
        # Not select(), which takes no descriptor above 1,023: a worker may have as many.
        with selectors.PollSelector() as selector:
            selector.register(self._status_fd, selectors.EVENT_READ)
            if not selector.select(0):
                return None
        if code := os.read(self._status_fd, 4):
            self._code = int.from_bytes(code, sys.byteorder, signed=True)
        elif is_running(self.keeper_pid):
            # The server is gone. The keeper knows it from the kernel, and is still at it.
            return None
        else:
            self._code = -signal.SIGKILL
        os.close(self._status_fd)
        return self._code

    def describe_end(self) -> str:
        """Return how it ended, in words."""
        code = self.poll()
        return "it still runs" if code is None else describe_exit(code)

    def ask_to_end(self) -> None:
        """Send SIGTERM to the process and its group, which may take it as they like."""
        if not self.has_begun():
            self.end()
            return
        for number in (signal.SIGTERM, signal.SIGCONT):
            # One that was stopped could not answer.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, number)

    def end(self) -> bool:
        """Have the keeper kill all that is below it; True: all has ended.

        Called until it has, and does not wait, so that several end at the same time.
        """
        if self.poll() is not None:
            return True
        now = time.monotonic()
        if self._ending_since is None:
            self._ending_since = now
            # Where nothing of the user's has run, the keeper may not listen yet.
            self._send(signal.SIGTERM if self.has_begun() else signal.SIGKILL)
            self._send(signal.SIGCONT)
        elif now - self._ending_since > KEEPER_S:
            kill([self.keeper_pid, self.pid, *self.family()])
        return self.poll() is not None

    def wait_end(self) -> None:
        """Have it end, and wait for that."""
        while not self.end():
            time.sleep(0.001)

    def _send(self, number: signal.Signals) -> None:
        # What was not reported as ended still has its number.
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.keeper_pid, number)
