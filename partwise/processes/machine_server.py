"""A process of the driver that has loaded what children of its machine's workers load.

Each worker has a server of its own, which its children are forked from and which ends them when the
worker dies (`warm_server.py`). A driver that starts workers here begins this process first: it
imports for all of them while the cluster starts and rows are divided, and a worker's server is a
fork of it, on its own from then on. It has a name in the abstract namespace of Unix sockets, made
of a token of the driver and of all that a child would find. So a worker whose children would find
anything else reaches nobody, and begins a Python of its own.

Linux only.
"""

import atexit
import json
import os
import secrets
import select
import signal
import socket
import subprocess
import sys
import threading
import traceback
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress

from partwise.processes.forking import (
    ENVIRONMENT_MARK,
    MARK_BYTES,
    MOST_BYTES,
    Forking,
    load,
    place_of_mark,
)
from partwise.processes.starting import Starter, await_ends, become_child, reap
from partwise.processes.surroundings import address_of, digest_of, peer_of, take_over

MOST_SERVERS = 2
"""Of one driver; of more, the one begun first ends. What was forked from it goes on."""
CLOSING_S = 2.0

_starter = Starter("machine")


class MachineServers:
    """Those of this process, for the workers that it starts on its machine."""

    def __init__(self) -> None:
        self._token = secrets.token_hex(8)
        self._lock = threading.Lock()
        self._servers: dict[str, tuple[socket.socket, subprocess.Popen[bytes]]] = {}

    def begin(self, module: str, variables: Mapping[str, str], libraries: Sequence[str]) -> str:
        """Begin to load for children of these variables, where that has not begun.

        It does not wait. One that has ended, as a library cannot be loaded ahead, stays so.

        Returns:
            A token by which workers find it; empty: no process can be started.
        """
        name = digest_of(module, variables, libraries)
        with self._lock, suppress(OSError):
            if name not in self._servers:
                while len(self._servers) >= MOST_SERVERS:
                    self._end(next(iter(self._servers)))
                self._servers[name] = self._start(name, module, variables, libraries)
            return self._token
        return ""

    def _start(
        self, name: str, module: str, variables: Mapping[str, str], libraries: Sequence[str]
    ) -> tuple[socket.socket, subprocess.Popen[bytes]]:
        with ExitStack() as stack:
            ours, theirs = (stack.enter_context(each) for each in socket.socketpair())
            listener = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
            # Here, so that whoever asks from now on waits, and is not refused.
            listener.bind(address_of(self._token, name))
            listener.listen()
            descriptors = [theirs.fileno(), listener.fileno()]
            process = _starter.start(
                __name__,
                json.dumps([os.getpid(), *descriptors, (module, *libraries)]),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=descriptors,
                # Of a session of its own: a Ctrl-C at the terminal is for the driver to handle.
                start_new_session=True,
                env={**variables, ENVIRONMENT_MARK: "-" * MARK_BYTES},
            )
            # Only this process has that end: when it is closed, the other process ends.
            return ours.dup(), process

    def _end(self, name: str) -> subprocess.Popen[bytes]:
        control, process = self._servers.pop(name)
        control.close()
        # It may be importing something that never ends.
        process.terminate()
        reap(process)
        return process

    def close(self) -> None:
        """End all, which takes no child along."""
        with self._lock:
            ending = [self._end(name) for name in list(self._servers)]
        await_ends(ending, CLOSING_S)


MACHINE_SERVERS = MachineServers()
"""Those of this process."""
atexit.register(MACHINE_SERVERS.close)


def main(argument: str) -> None:
    """Load, and then fork a server for each worker that asks.

    Args:
        argument: JSON: the number of the driver, the descriptors of the connection to it and of
            the listener, and the modules to load.
    """
    driver_pid, control_fd, listener_fd, modules = json.loads(argument)
    become_child(driver_pid, signal.SIGTERM)
    place = place_of_mark()
    load(modules)
    # What it forks ends by itself, and is looked after by its worker.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    control = socket.socket(fileno=control_fd)
    listener = socket.socket(fileno=listener_fd)
    while control not in select.select([control, listener], (), ())[0]:
        connection, _ = listener.accept()
        with connection, suppress(OSError):
            # Another user may know the name, and is not to have our processes run anything.
            worker_pid, user = peer_of(connection)
            if user == os.getuid() and os.fork() == 0:
                control.close()
                listener.close()
                _become_server(connection, worker_pid, place)
    os._exit(0)


def _become_server(connection: socket.socket, worker_pid: int, place: int) -> None:
    try:
        # Of a number that the kernel has named; were it another process's by now, the connection
        # would be closed at the other end, and this process end without having forked any.
        worker_fd = os.pidfd_open(worker_pid)
        os.setsid()
        text, descriptors, _, _ = socket.recv_fds(connection, MOST_BYTES, 1)
        os.dup2(descriptors[0], sys.stderr.fileno())
        os.close(descriptors[0])
        take_over(json.loads(text))
        Forking(connection, place, worker_fd).serve()
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)
