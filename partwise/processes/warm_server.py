"""A process that has loaded what children load, from which their keepers are forked.

A Python of its own comes as far as a child in a quarter of a second, and needs a second more for a
library such as LightGBM. Forked, it begins in 0.04 s, and shares the memory of what is loaded. The
server has the variables, the packages and the import path that its children are to have, and has
loaded the libraries that a child of the same work has told of; for others there is another one.
A child's memory would else depend on what ran before it. It loads nothing of the user's, and starts
no threads, of which a fork would lack all but one.

Linux only.
"""

import atexit
import ctypes
import gc
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from types import MappingProxyType
from typing import Any

from partwise.errors import ClusterError
from partwise.processes import keeper
from partwise.processes.family import adopt_orphans, children_of, end_all, is_running
from partwise.processes.kept import KeptProcess
from partwise.processes.starting import HELPER_THREADS, Starter, become_child, importing

ENVIRONMENT_MARK = "PARTWISE_CHILD"
"""The variable that tells a child, and all that it starts, from other processes."""
MARK_BYTES = 200
ANSWER_S = 120.0
"""For so long the fork of a child, and the imports before it, are waited for."""
CLOSING_S = 2.0
MOST_SERVERS = 3
"""Of one process; of more, the one unused for longest ends when its last child has."""
_ENDING_LOOK_S = 0.05
_MOST_BYTES = 1 << 16
_MOST_DESCRIPTORS = 8
_TAIL_BYTES = 2_000
_CANNOT = b"cannot: "
"""Begins an answer that has no number of a process."""

# One for the whole process, as the kernel ends what a thread has started when that thread ends.
_starter = Starter("start")


@dataclass(slots=True)
class _Server:
    """A server as its worker sees it."""

    module: str
    """Has the `main` of the children."""
    control: socket.socket
    process: subprocess.Popen[bytes]
    log_fd: int
    """What it writes, as it may say why it cannot begin."""

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
            answer = self.control.recv(_MOST_BYTES)
            if not answer:
                raise ConnectionError("the server of children ended")
            if answer.startswith(_CANNOT):
                raise ClusterError(
                    f"No child process can be started on {socket.gethostname()}: "
                    f"{answer.removeprefix(_CANNOT).decode()}."
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
        libraries: Sequence[str] = (),
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
            libraries: What the work names, and so the server has loaded before its first child.
            site_packages: A folder of packages that come before all others; empty: none.
            held: A descriptor that the child holds as long as it lives; -1: none.

        Raises:
            ClusterError: No process can be started.
        """
        # What a child finds has to be what it would find, were it started by itself: so also where
        # packages were installed since.
        places = (site_packages, *sys.path)
        # By inode: a folder that was removed has no path any more, and children start in it.
        here = os.stat(".")
        surroundings = (
            module,
            tuple(sorted(variables.items())),
            (here.st_dev, here.st_ino),
            places,
            tuple(_last_changes(places)),
        )
        words = ""
        # One at a time, as an answer does not say to which request it belongs.
        with self._lock:
            for _ in range(3):
                wanted = dict.fromkeys((*libraries, *self._used.get(work_name, ())))
                loaded = tuple(name for name in wanted if name not in self._refused)
                key = (surroundings, loaded)
                server = self._servers.pop(key, None) or self._begin(
                    module, variables, site_packages, loaded
                )
                # The last is the one that was used last.
                self._servers[key] = server
                try:
                    return server.start(settings, mark, own_variables, descriptors, held)
                except OSError:
                    # One of them cannot be imported ahead, or somebody killed it.
                    self._refused.update(loaded)
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

    def _begin(
        self,
        module: str,
        variables: Mapping[str, str],
        site_packages: str,
        libraries: Sequence[str],
    ) -> _Server:
        while len(self._servers) >= MOST_SERVERS:
            self._end(next(iter(self._servers)))
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
        return _Server(module, ours, process, log_fd)

    def _end(self, key: object) -> _Server:
        """Have a server end with its last child."""
        server = self._servers.pop(key)
        server.control.close()
        os.close(server.log_fd)
        # For nothing to be left of it then.
        name = f"{HELPER_THREADS}server-ends"
        threading.Thread(target=server.process.wait, name=name, daemon=True).start()
        return server

    def close(self) -> None:
        """Have all servers end, and wait a moment for those whose children have ended."""
        with self._lock:
            ending = [self._end(key) for key in list(self._servers)]
        deadline = time.monotonic() + CLOSING_S
        for server in ending:
            with suppress(subprocess.TimeoutExpired):
                server.process.wait(max(0.0, deadline - time.monotonic()))


SERVERS = WarmServers()
"""Those of this process: children live on between the shards that different threads run."""
# Those who have children end them at exit as well: they registered later, so they come before.
atexit.register(SERVERS.close)


def _last_changes(places: Sequence[str]) -> list[int]:
    """Return when packages were last installed or removed in each folder of packages."""
    changes = []
    for place in places:
        with suppress(OSError):
            if place.endswith("-packages"):
                changes.append(os.stat(place).st_mtime_ns)
    return changes


def main(argument: str) -> None:
    """Fork keepers as the worker asks for them.

    Args:
        argument: JSON: the number of the worker, the descriptor of the connection to it, and the
            modules to load.
    """
    worker_pid, control_fd, modules = json.loads(argument)
    become_child(worker_pid, signal.SIGTERM)
    adopt_orphans()
    # Python would change a copy of the variables; what others read of a process is the first ones.
    libc = ctypes.CDLL(None)
    libc.getenv.restype = ctypes.c_void_p
    place_of_mark = libc.getenv(ENVIRONMENT_MARK.encode())
    with importing():
        for name in modules:
            import_module(name)
    if threading.active_count() > 1:
        # A fork would lack it. The worker begins another server, without these libraries.
        os._exit(1)
    # A collection in a fork would write to every object, and so copy the memory of all.
    gc.collect()
    gc.freeze()
    _Forking(socket.socket(fileno=control_fd), place_of_mark).serve()
    os._exit(0)


class _Forking:
    """The server itself."""

    def __init__(self, control: socket.socket, place_of_mark: int) -> None:
        self._pid = os.getpid()
        self._control = control
        self._place_of_mark = place_of_mark
        self._status_fds: dict[int, int] = {}
        """Where the end of each keeper is told, by its number."""
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
            is_asked = True
            while is_asked or self._status_fds:
                if self._lost_worker_at and not self._end_keepers():
                    return
                wait_s = _ENDING_LOOK_S if self._lost_worker_at else None
                ready = {key.fileobj for key, _ in selector.select(wait_s)}
                if self._ends in ready:
                    self._ends.recv(_MOST_BYTES)
                    self._note_ends()
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
        text, descriptors, _, _ = socket.recv_fds(self._control, _MOST_BYTES, _MOST_DESCRIPTORS)
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
            self._control.send(_CANNOT + str(error).encode())
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
        found = []
        for pid in children_of(self._pid):
            if pid in self._status_fds or pid in self._helpers:
                continue
            if is_running(pid):
                found.append(pid)
            else:
                with suppress(ChildProcessError):
                    os.waitpid(pid, os.WNOHANG)
        return found
