"""A process that has loaded what children load, from which their keepers are forked.

A Python of its own comes as far as a child in a quarter of a second, and needs a second more for a
library such as LightGBM. Forked, it begins in 0.04 s, and shares the memory of what is loaded. The
server has the variables, the packages and the import path that its children are to have, and has
loaded the libraries that a child of the same work has named; for others there is another one.
A child's memory would else depend on what ran before it. It loads nothing of the user's, and starts
no threads, of which a fork would lack all but one.

Linux only.
"""

import atexit
import json
import os
import signal
import socket
import subprocess
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from partwise.errors import ClusterError
from partwise.processes import keeper
from partwise.processes.forking import (
    CANNOT,
    ENVIRONMENT_MARK,
    MARK_BYTES,
    MOST_BYTES,
    Forking,
    load,
    place_of_mark,
)
from partwise.processes.kept import KeptProcess
from partwise.processes.starting import Starter, await_ends, become_child, import_path, reap
from partwise.processes.surroundings import (
    address_of,
    digest_of,
    folder_number,
    last_changes,
    own_settings,
    peer_of,
)

ANSWER_S = 120.0
"""For so long the fork of a child, and the imports before it, are waited for."""
CLOSING_S = 2.0
MOST_SERVERS = 3
"""Of one process; of more, the one unused for longest ends when its last child has."""
MOST_FAILURES = 3
"""Servers that may end in a row before a child is given up."""
_TAIL_BYTES = 2_000

# One for the whole process, as the kernel ends what a thread has started when that thread ends.
_starter = Starter("start")


@dataclass(frozen=True, slots=True, kw_only=True)
class Preloaded:
    """What the server of a work's children has loaded before there are any."""

    modules: tuple[str, ...] = ()
    token: str = ""
    """By which a worker finds the process of its machine that has them loaded; empty: none has."""


NOTHING_LOADED = Preloaded()


@dataclass(slots=True)
class _Server:
    """A server as its worker sees it."""

    module: str
    """Has the `main` of the children."""
    control: socket.socket
    log_fd: int
    """What it writes, as it may say why it cannot begin."""
    process: subprocess.Popen[bytes] | None
    """None: it is a fork of the server of its machine."""

    def start(
        self,
        settings: Mapping[str, Any],
        mark: str,
        variables: Mapping[str, str],
        descriptors: Mapping[str, int],
        held: int,
    ) -> KeptProcess:
        """Have a keeper forked.

        Raises:
            OSError: The server is gone, or did not answer in time.
            ClusterError: It cannot fork.
        """
        status_fd, theirs = os.pipe()
        pid_fd = os.memfd_create("partwise-pid")
        os.ftruncate(pid_fd, keeper.PID.size)
        request = {
            "module": self.module,
            "settings": settings,
            "mark": mark,
            "variables": dict(variables),
            "names": list(descriptors),
        }
        sent = [theirs, pid_fd, *descriptors.values()]
        try:
            socket.send_fds(
                self.control, [json.dumps(request).encode()], sent + [held] * (held >= 0)
            )
            answer = self.control.recv(MOST_BYTES)
            if not answer:
                raise ConnectionError("the server of children ended")
            if answer.startswith(CANNOT):
                raise ClusterError(
                    f"No child process can be started on {socket.gethostname()}: "
                    f"{answer.removeprefix(CANNOT).decode()}."
                )
            return KeptProcess(int(answer), status_fd, pid_fd)
        except BaseException:
            os.close(status_fd)
            raise
        finally:
            os.close(theirs)
            os.close(pid_fd)

    def last_words(self) -> str:
        """Return the end of what it wrote."""
        size = os.fstat(self.log_fd).st_size
        text = os.pread(self.log_fd, _TAIL_BYTES, max(0, size - _TAIL_BYTES))
        return " ".join(text.decode(errors="replace").split())


class WarmServers:
    """The servers of this process; used by all of its threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._servers: dict[object, _Server] = {}
        self._used: dict[str, tuple[str, ...]] = {}
        self._refused: set[str] = set()

    def learn(self, work_name: str, libraries: Sequence[str]) -> None:
        """Note which libraries the first child of a work has imported: later ones have them.

        What later ones import besides is left to them: libraries would come and never go.
        """
        self._used.setdefault(work_name, tuple(libraries))

    def start(
        self,
        module: str,
        settings: Mapping[str, Any],
        descriptors: Mapping[str, int],
        mark: str,
        variables: Mapping[str, str],
        own_variables: Mapping[str, str] = MappingProxyType({}),
        work_name: str = "",
        preloaded: Preloaded = NOTHING_LOADED,
        site_packages: str = "",
        held: int = -1,
    ) -> KeptProcess:
        """Start a keeper, which starts its child.

        Args:
            module: Its `main` is what the child does; the server has it loaded.
            settings: What that is called with: plain values, as for `keeper.main`.
            descriptors: Handed over, and named in the settings by their new numbers. The output of
                the child goes to `log_fd`.
            mark: Its value of `ENVIRONMENT_MARK`.
            variables: All others, which the server has as well, but for the next.
            own_variables: Those that differ from child to child, and are read by nothing that the
                server loads: it is not begun again for them.
            work_name: Of the work that it is for, as for `learn`; empty: unknown.
            preloaded: What the work names, and so the server has loaded before its first child.
            site_packages: A folder of packages that come before all others; empty: none.
            held: A descriptor that the child holds as long as it lives; -1: none.

        Raises:
            ClusterError: No process can be started.
        """
        # What a child finds has to be what it would find, were it started by itself: so also where
        # packages were installed since.
        places = (site_packages, *import_path())
        surroundings = (
            module,
            tuple(sorted(variables.items())),
            folder_number(),
            places,
            tuple(last_changes(places)),
        )
        words = ""
        failures = 0
        # One at a time, as an answer does not say to which request it belongs.
        with self._lock:
            while failures < MOST_FAILURES:
                wanted = dict.fromkeys((*preloaded.modules, *self._used.get(work_name, ())))
                loaded = tuple(name for name in wanted if name not in self._refused)
                key = (surroundings, loaded)
                token = "" if site_packages else preloaded.token
                server = (
                    self._servers.pop(key, None)
                    or self._join(token, module, variables, loaded)
                    or self._begin(module, variables, site_packages, loaded)
                )
                # The last is the one that was used last.
                self._servers[key] = server
                try:
                    return server.start(settings, mark, own_variables, descriptors, held)
                except OSError as error:
                    if server.process is None:
                        self._refused.add(token)
                    if server.process is not None or isinstance(error, TimeoutError):
                        # One of them cannot be imported ahead, or somebody killed it.
                        self._refused.update(loaded)
                        failures += 1
                    words = server.last_words() or words
                    self._end(key)
                except ClusterError:
                    # It has answered: it cannot fork now, and those that it has forked are at work.
                    raise
                except BaseException:
                    # An answer that nobody has read would be taken for that to the next request.
                    self._end(key)
                    raise
        raise ClusterError(
            f"The process that child processes on {socket.gethostname()} are forked from ended "
            "three times, or did not answer: the machine may have run out of memory or processes. "
            f"It wrote: {words or 'nothing'}"
        )

    def _join(
        self, token: str, module: str, variables: Mapping[str, str], libraries: Sequence[str]
    ) -> _Server | None:
        """Have a server forked from that of this machine; None: there is none for such children."""
        if not token or token in self._refused:
            return None
        control = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        control.settimeout(ANSWER_S)
        log_fd = os.memfd_create("partwise-child-server")
        try:
            control.connect(address_of(token, digest_of(module, variables, libraries)))
            if peer_of(control)[1] != os.getuid():
                raise PermissionError("the server of the machine is another user's")
            socket.send_fds(control, [json.dumps(own_settings()).encode()], [log_fd])
        except OSError:
            control.close()
            os.close(log_fd)
            return None
        self._make_room()
        return _Server(module, control, log_fd, None)

    def _make_room(self) -> None:
        while len(self._servers) >= MOST_SERVERS:
            self._end(next(iter(self._servers)))

    def _begin(
        self,
        module: str,
        variables: Mapping[str, str],
        site_packages: str,
        libraries: Sequence[str],
    ) -> _Server:
        self._make_room()
        # Packets: a request comes whole, together with its descriptors.
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.settimeout(ANSWER_S)
        log_fd = os.memfd_create("partwise-child-server")
        with theirs:
            process = _starter.start(
                __name__,
                json.dumps([os.getpid(), theirs.fileno(), (module, *libraries)]),
                site_packages=site_packages,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=log_fd,
                pass_fds=[theirs.fileno()],
                # Of a session of its own: a Ctrl-C at the terminal is for the worker to handle.
                start_new_session=True,
                # Room for a child's own mark, which is written over it in place, as `main` says.
                env={**variables, ENVIRONMENT_MARK: "-" * MARK_BYTES},
            )
        return _Server(module, ours, log_fd, process)

    def _end(self, key: object) -> _Server:
        """Have a server end with its last child."""
        server = self._servers.pop(key)
        server.control.close()
        os.close(server.log_fd)
        if server.process is not None:
            reap(server.process)
        return server

    def close(self) -> None:
        """Have all servers end, and wait a moment for those whose children have ended."""
        with self._lock:
            ending = [self._end(key) for key in list(self._servers)]
        await_ends([each.process for each in ending if each.process is not None], CLOSING_S)


SERVERS = WarmServers()
"""Those of this process: children live on between the shards that different threads run."""
# Those who have children end them at exit as well: they registered later, so they come before.
atexit.register(SERVERS.close)


def main(argument: str) -> None:
    """Fork keepers as the worker asks for them.

    Args:
        argument: JSON: the number of the worker, the descriptor of the connection to it, and the
            modules to load.
    """
    worker_pid, control_fd, modules = json.loads(argument)
    become_child(worker_pid, signal.SIGTERM)
    place = place_of_mark()
    load(modules)
    Forking(socket.socket(fileno=control_fd), place).serve()
    os._exit(0)
