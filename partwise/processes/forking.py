"""A server of children, in its own process: it has loaded what they load, and forks their keepers.

Linux only.
"""

import ctypes
import json
import os
import selectors
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from typing import Any

from partwise.processes import keeper
from partwise.processes.family import adopt_orphans, children_of, end_all, is_running
from partwise.processes.garbage import never_collected

ENVIRONMENT_MARK = "PARTWISE_CHILD"
"""The variable that tells a child, and all that it starts, from other processes."""
MARK_BYTES = 200
MOST_BYTES = 1 << 16
"""Of a request, and of an answer."""
CANNOT = b"cannot: "
"""Begins an answer that has no number of a process."""
_MOST_DESCRIPTORS = 8
_ENDING_LOOK_S = 0.05


def place_of_mark() -> int:
    """Return where in memory the mark of this process begins, for a fork to write its own there.

    Python would change a copy of the variables; what others read of a process is the first ones.
    """
    libc = ctypes.CDLL(None)
    libc.getenv.restype = ctypes.c_void_p
    place: int = libc.getenv(ENVIRONMENT_MARK.encode())
    return place


def load(modules: Sequence[str]) -> None:
    """Import what forks of this process are to find, and make it ready to be forked."""
    with never_collected():
        for name in modules:
            import_module(name)
    if threading.active_count() > 1:
        # A fork would lack it. The worker begins another server, without these libraries.
        os._exit(1)


class Forking:
    """The server itself: it forks keepers until its worker closes the connection, or dies.

    `worker_fd` is readable once the worker is dead; -1: the kernel sends SIGTERM then.
    """

    def __init__(self, control: socket.socket, place_of_mark: int, worker_fd: int = -1) -> None:
        adopt_orphans()
        self._pid = os.getpid()
        self._control = control
        self._place_of_mark = place_of_mark
        self._worker_fd = worker_fd
        self._status_fds: dict[int, int] = {}
        """Where the end of each keeper is reported, by its number."""
        self._helpers = set(children_of(self._pid))
        """What importing has started, such as the process that keeps count of semaphores."""
        self._ends, wakeup = socket.socketpair()
        wakeup.setblocking(False)
        self._sockets = (control, self._ends, wakeup)
        self._lost_worker_at = 0.0
        # A handler, since a signal without one writes no byte; and the byte, since Python goes on
        # waiting in select() when a handler has returned.
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGTERM, self._note_loss)
        signal.set_wakeup_fd(wakeup.fileno(), warn_on_full_buffer=False)

    def serve(self) -> None:
        """Fork keepers until the worker closes the connection, and the last of them has ended."""
        with selectors.PollSelector() as selector:
            selector.register(self._control, selectors.EVENT_READ)
            selector.register(self._ends, selectors.EVENT_READ)
            if self._worker_fd >= 0:
                selector.register(self._worker_fd, selectors.EVENT_READ)
            is_asked = True
            while is_asked or self._status_fds:
                if self._lost_worker_at and not self._end_keepers():
                    return
                wait_s = _ENDING_LOOK_S if self._lost_worker_at else None
                ready = {key.fileobj for key, _ in selector.select(wait_s)}
                if self._ends in ready:
                    self._ends.recv(MOST_BYTES)
                    self._note_ends()
                if self._worker_fd in ready:
                    selector.unregister(self._worker_fd)
                    self._note_loss()
                if self._control in ready and not (is_asked := self._answer()):
                    selector.unregister(self._control)

    def _note_loss(self, *_: object) -> None:
        self._lost_worker_at = self._lost_worker_at or time.monotonic()

    def _end_keepers(self) -> bool:
        """Have all keepers end, as the worker has; False: they were given time enough.

        This process outlives its worker for that: it has got what a keeper left that was killed.
        """
        for pid in self._status_fds:
            # Again and again: one that has just been forked does not listen yet.
            for number in (signal.SIGTERM, signal.SIGCONT):
                with suppress(ProcessLookupError):
                    os.kill(pid, number)
        return time.monotonic() - self._lost_worker_at < keeper.KEEPER_S

    def _answer(self) -> bool:
        """Answer one request; False: there are no more."""
        text, descriptors, _, _ = socket.recv_fds(self._control, MOST_BYTES, _MOST_DESCRIPTORS)
        if not text:
            return False
        request = json.loads(text)
        status_fd, pid_fd, *given = descriptors
        numbers = dict(zip(request["names"], given, strict=False))
        held = given[len(numbers) :]
        try:
            pid = os.fork()
        except OSError as error:
            # No reason to end those that are at work.
            for descriptor in descriptors:
                os.close(descriptor)
            self._control.send(CANNOT + str(error).encode())
            return True
        if pid == 0:
            # By their end the worker learns that this server is gone: no keeper may hold them open.
            for descriptor in (status_fd, *self._status_fds.values()):
                os.close(descriptor)
            request["settings"] |= numbers
            self._become_keeper(request, pid_fd, held)
        # Of the child alone from now on: an end that stays open here would hide that it has died.
        for descriptor in (pid_fd, *given):
            os.close(descriptor)
        self._status_fds[pid] = status_fd
        self._control.send(str(pid).encode())
        return True

    def _become_keeper(self, request: dict[str, Any], pid_fd: int, held: list[int]) -> None:
        try:
            signal.set_wakeup_fd(-1)
            for number in (signal.SIGCHLD, signal.SIGTERM):
                signal.signal(number, signal.SIG_DFL)
            for each in self._sockets:
                each.close()
            if self._worker_fd >= 0:
                os.close(self._worker_fd)
            os.setsid()
            if (random := sys.modules.get("numpy.random")) is not None:
                # Of its own, as in a process of its own; Python's `random` sees to that itself.
                random.seed()
            mark, settings = request["mark"], request["settings"]
            os.environ.update(request["variables"])
            os.environ[ENVIRONMENT_MARK] = mark
            ctypes.memmove(self._place_of_mark, mark.encode().ljust(MARK_BYTES, b"\0"), MARK_BYTES)
            null = os.open(os.devnull, os.O_RDONLY)
            for source, target in ((null, 0), (settings["log_fd"], 1), (settings["log_fd"], 2)):
                os.dup2(source, target)
            os.close(null)
            for descriptor in held:
                os.set_inheritable(descriptor, True)
            keeper.main(request["module"], settings, pid_fd, self._pid)
        except BaseException:
            traceback.print_exc()
        finally:
            # Whatever happened, a fork is never to go on in the loop of its server.
            os._exit(1)

    def _note_ends(self) -> None:
        for pid, status_fd in list(self._status_fds.items()):
            end = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if end is None:
                continue
            code = end.si_status if end.si_code == os.CLD_EXITED else -end.si_status
            # Told before its number is free: until then the worker may send it a signal.
            with suppress(OSError):
                os.write(status_fd, code.to_bytes(4, sys.byteorder, signed=True))
            os.close(status_fd)
            os.waitpid(pid, 0)
            del self._status_fds[pid]
        # A keeper ends all below it, unless somebody killed it: then this process has got them.
        end_all(self._strays)

    def _strays(self) -> list[int]:
        def find() -> list[int]:
            known = self._helpers.union(self._status_fds)
            return [pid for pid in children_of(self._pid) if pid not in known]

        for pid in find():
            if not is_running(pid):
                with suppress(ChildProcessError):
                    os.waitpid(pid, os.WNOHANG)
        # Looked for once more: what one of them had started came here as it ended, perhaps after
        # the first look. One that has ended since counts, so that there is another look after it.
        return find()
