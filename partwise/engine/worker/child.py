"""The worker's side of a child process: start it, watch it from outside, end all of it.

Linux only: the mark is a memfd, and memory is read from /proc.
"""

import atexit
import contextlib
import os
import secrets
import shutil
import signal
import socket
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from mmap import mmap
from pathlib import Path

from partwise.engine.child.log import give_back_middle, is_large, read_log
from partwise.engine.child.main import MARK, SENT, ChildSettings
from partwise.engine.failures import Failure
from partwise.engine.messages import Connection, OpenWork, WorkUnusable
from partwise.engine.options import Isolation
from partwise.engine.worker.packages import packages_variables
from partwise.environments.building import BuiltEnvironment
from partwise.errors import ClusterError
from partwise.processes.family import (
    children_of,
    clears_up,
    descendants_of,
    end_all,
    find_marked,
    is_running,
    stop,
)
from partwise.processes.forking import ENVIRONMENT_MARK
from partwise.processes.keeper import KEEPER_S
from partwise.processes.memory import FamilyMemory
from partwise.processes.shared_files import own_folder_of
from partwise.processes.warm_server import NOTHING_LOADED, SERVERS, Preloaded
from partwise.processes.worker_server import user_variables
from partwise.redaction import without_secrets

CHILD = "partwise.engine.child.main"
"""The module of a child."""
START_TIMEOUT_S = 120.0

_local = threading.local()
_alive: set["ChildProcess"] = set()


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildPlan:
    """What children of an execution are started with; only memory and variables change with it."""

    owner: str
    """The execution: `end_marked(owner)` finds what its children left behind."""
    directory: str
    """Where they have folders of their own."""
    memory_bytes: int
    """What a partition may have; half of it may be kept between partitions."""
    isolation: Isolation = "shared"
    threads: int = 1
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables besides those of this process."""
    packages: BuiltEnvironment = field(default_factory=BuiltEnvironment)
    """Come before those of this process."""
    work_name: str = ""
    preloaded: Preloaded = NOTHING_LOADED
    """What they find loaded."""


class ChildProcess:
    """A running child and all that it started."""

    def __init__(self, plan: ChildPlan) -> None:
        os.makedirs(plan.directory, exist_ok=True)
        self._directory = tempfile.mkdtemp(prefix="child-", dir=plan.directory)
        self.plan = plan
        token = secrets.token_hex(8)
        self.mark = f"{plan.owner}:{token}"
        self._own_folder = own_folder_of(self._directory, token)
        self.work_path: str | None = None
        ours, theirs = socket.socketpair()
        # Shared memory, and no message: it can be read when the child is dead, and costs nothing.
        mark_fd = os.memfd_create("partwise-mark")
        os.ftruncate(mark_fd, MARK.size)
        # Appended to: the child empties it while processes that it started go on writing.
        self._log_fd = os.open(
            Path(self._directory, "log"), os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600
        )
        self._mark = mmap(mark_fd, MARK.size)
        MARK.pack_into(self._mark, 0, -1, 0)
        settings = ChildSettings(
            token=token,
            directory=self._directory,
            recycle_bytes=plan.memory_bytes // 2,
            isolation=plan.isolation,
            threads=plan.threads,
        )
        variables = user_variables() | dict(plan.environment) | packages_variables(plan.packages)
        # It may live on when this process has given the environment free.
        held = plan.packages.hold()
        try:
            self._process = SERVERS.start(
                CHILD,
                asdict(settings),
                {"socket_fd": theirs.fileno(), "mark_fd": mark_fd, "log_fd": self._log_fd},
                self.mark,
                variables,
                work_name=plan.work_name,
                preloaded=plan.preloaded,
                site_packages=plan.packages.site_packages,
                held=held,
            )
        except BaseException:
            ours.close()
            os.close(self._log_fd)
            shutil.rmtree(self._directory, ignore_errors=True)
            raise
        finally:
            # The child alone has its end from now on: else nobody would see that it is gone.
            theirs.close()
            os.close(mark_fd)
            if held >= 0:
                os.close(held)
        self._memory = FamilyMemory(os.path.dirname(plan.directory))
        self.connection = Connection(ours)
        _alive.add(self)

    @property
    def pid(self) -> int:
        """The number of the process itself; of its keeper until it has begun."""
        return self._process.pid

    def open_work(self, path: str) -> Failure | None:
        """Load the work from its file; return the failure when the user's code cannot be loaded."""
        self.connection.send(OpenWork(path=path))
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline:
            try:
                message = self.connection.receive(0.2)
            except EOFError:
                break
            if message is not None:
                self.work_path = path
                return message.failure if isinstance(message, WorkUnusable) else None
        log = without_secrets(self.read_log().decode(errors="replace"))[-2000:]
        raise ClusterError(
            f"A child process on {socket.gethostname()} did not start within "
            f"{START_TIMEOUT_S:.0f} s ({self.describe_end()}); it wrote: {log or 'nothing'}"
        )

    def learn(self, libraries: Sequence[str]) -> None:
        """Have the next children of its work find loaded what this one has used."""
        if self.plan.work_name:
            SERVERS.learn(self.plan.work_name, libraries)

    def running(self) -> tuple[int, float]:
        """Return the partition at work, or -1, and for how many seconds its function has run."""
        index, since_ns = MARK.unpack_from(self._mark, 0)
        return index, (time.monotonic_ns() - since_ns) / 1e9 if since_ns > 0 else 0.0

    def preparing_s(self) -> float:
        """Return for how many seconds the child has imported what the first partition needs."""
        since_ns = MARK.unpack_from(self._mark, 0)[1]
        return (time.monotonic_ns() + since_ns) / 1e9 if since_ns < SENT else 0.0

    def has_ended(self) -> bool:
        """Whether the process is dead."""
        return self._process.poll() is not None

    def family(self) -> list[int]:
        """Return what works on the partition, and all that it started."""
        # With a fork for each partition, the process that forks is not the partition's.
        own = [] if self.plan.isolation == "partition" else [self.pid]
        return [*own, *descendants_of(self.pid)]

    def memory_bytes(self, family: list[int], limit: int) -> int:
        """Return the memory of the child's processes, for a comparison with a limit."""
        return self._memory.measure(family, limit)

    def pause(self) -> None:
        """Hold the child still, so that what it is doing can be read without a race."""
        # First the one that forks: from then on no other partition can begin.
        stop([self.pid])
        if self.plan.isolation == "partition":
            stop(children_of(self.pid))

    def resume(self) -> None:
        """Let a paused child go on."""
        forks = children_of(self.pid) if self.plan.isolation == "partition" else ()
        for pid in (*forks, self.pid):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGCONT)

    def kill(self) -> None:
        """Kill the child and everything that it started."""
        group = self.pid
        # Before that its number is that of its keeper, which hears no SIGTERM while it is stopped:
        # such an end took the 10 s after which a keeper is killed.
        if self._process.has_begun():
            self.pause()
        self._process.wait_end()
        needle = f"{ENVIRONMENT_MARK}={self.mark}".encode()
        # A keeper may have been killed itself: what it has left is known by its mark or its group.
        end_all(lambda: find_marked(needle, group=group))

    def was_killed(self) -> bool:
        """Whether the process was ended by SIGKILL."""
        return self._process.poll() == -signal.SIGKILL

    def describe_end(self) -> str:
        """Return how the process ended, in words."""
        return self._process.describe_end()

    def bound_log(self) -> None:
        """Keep the room that the log takes on the disk within bounds."""
        if is_large(self._log_fd):
            # Held still, so that it does not empty the log for the next partition meanwhile.
            self.pause()
            if is_large(self._log_fd):
                give_back_middle(self._log_fd)
            self.resume()

    def read_log(self) -> bytes:
        """Return what stands in the child's log: what the partition at work has written."""
        return read_log(self._log_fd, os.fstat(self._log_fd).st_size)

    def close(self) -> None:
        """End the child and remove its files."""
        try:
            # In one step, since two threads may come to it: the second would close a descriptor
            # that belongs to something else by then.
            _alive.remove(self)
        except KeyError:
            return
        self.connection.close()
        self.kill()
        os.close(self._log_fd)
        for folder in (self._directory, self._own_folder):
            shutil.rmtree(folder, ignore_errors=True)


def borrow_child(plan: ChildPlan) -> ChildProcess:
    """Return this thread's child, started again when there is none or it has ended.

    So it is when it is another execution's, or has other variables.
    """
    child: ChildProcess | None = getattr(_local, "child", None)
    # A thread may run shards of two executions by turns. Each has children of its own: the one that
    # ends first removes its folder and kills all that bear its mark.
    is_usable = child is not None and child in _alive and not child.has_ended()
    wanted = plan.owner, plan.environment
    if child is None or not is_usable or (child.plan.owner, child.plan.environment) != wanted:
        discard_child()
        child = _local.child = ChildProcess(plan)
    return child


def discard_child() -> None:
    """End this thread's child; the next `borrow_child` starts another."""
    child: ChildProcess | None = getattr(_local, "child", None)
    if child is not None:
        _local.child = None
        child.close()


@atexit.register
def close_children() -> None:
    """End all children of this process."""
    for child in list(_alive):
        child.close()


def close_idle_children(work_name: str) -> None:
    """End the children of this process that hold the work of this file name and run nothing."""
    for child in list(_alive):
        if os.path.basename(child.work_path or "") == work_name and child.running()[0] < 0:
            child.close()


def end_marked(mark: str) -> None:
    """End the processes whose mark begins so, also those that started a session of their own.

    Keepers do it themselves, as only they know what would be left in shared memory.
    """
    needle = f"{ENVIRONMENT_MARK}={mark}".encode()
    found = set(find_marked(needle))
    # What has lost its keeper is asked as well, but for what clears up: that would end.
    below = {child for pid in found for child in children_of(pid)}
    keepers = [pid for pid in found - below if not clears_up(pid)]
    for pid in keepers:
        for number in (signal.SIGTERM, signal.SIGCONT):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, number)
    deadline = time.monotonic() + KEEPER_S
    while any(map(is_running, keepers)) and time.monotonic() < deadline:
        time.sleep(0.002)
    end_all(lambda: find_marked(needle))
