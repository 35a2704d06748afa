"""Child processes that end with their parent: the craft that the engine and the judge share.

Linux only: a child ends with its parent through PR_SET_PDEATHSIG.
"""

import ctypes
import json
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, TypeVar

T = TypeVar("T")

LOST_PARENT = 70
"""The exit status of a child that finds its parent gone."""
HELPER_THREADS = "partwise-"
"""Begins the names of threads that partwise keeps for a whole process."""
_PR_SET_PDEATHSIG = 1
_PATH = "import sys, json; sys.path[:] = path = json.loads(sys.argv[1]); "
# What packages ask for in .pth files is added behind all others, and then put before them.
_PACKAGES_FIRST = (
    "import site; known = len(path); site.addsitedir(sys.argv[4]); "
    "sys.path[:] = [*sys.path[known:], *sys.path[:known]]; "
)
_CALL = "from importlib import import_module; import_module(sys.argv[2]).main(sys.argv[3])"


def import_path() -> list[str]:
    """Return where this process imports from: what is no text in sys.path, Python passes over."""
    places: list[Any] = sys.path
    return [place for place in places if isinstance(place, str)]


def python_words(module: str, argument: str, site_packages: str = "") -> list[str]:
    """Return the command that calls `main(argument)` of a module with this process's import path.

    `site_packages` is a folder of packages that come before all others; empty: none.
    """
    # -P: a file in the working directory must not take the place of a library.
    words = [sys.executable, "-P", "-c", _PATH + _CALL, json.dumps(import_path()), module, argument]
    if site_packages:
        words[3] = _PATH + _PACKAGES_FIRST + _CALL
        words.append(site_packages)
    return words


_started: set[int] = set()


def is_helper(pid: int) -> bool:
    """Whether a child of this process is a helper of partwise's, which a `Starter` has started."""
    return pid in _started


class LastingThread:
    """A thread for what ends with the thread that began it: it lasts as long as this process."""

    def __init__(self, name: str) -> None:
        self._name = f"{HELPER_THREADS}{name}"
        self._executor: ThreadPoolExecutor | None = None
        self._lock = threading.Lock()

    def call(self, function: Callable[..., T], *args: Any, **options: Any) -> T:
        """Call a function there, and return what it returns."""
        return self._begun().submit(function, *args, **options).result()

    def _begun(self) -> ThreadPoolExecutor:
        with self._lock:
            if self._executor is None:
                executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix=self._name)
                try:
                    # Nothing yet. If Ctrl-C comes just as the thread has started, Python has not
                    # noted it as one to be told to end, and would wait for it as we end.
                    executor.submit(int).result()
                except BaseException:
                    executor.shutdown(wait=False)
                    raise
                self._executor = executor
            return self._executor

    def close(self) -> None:
        """End the thread, and with it the children that it has begun."""
        with self._lock:
            if self._executor is not None:
                self._executor.shutdown()


class Starter:
    """Starts child processes, all on one thread of its own.

    The kernel ends a child when the *thread* that started it ends, not the process. A caller's
    thread may end at any time, so this one starts them, and lives until `close`, or until the
    process ends.
    """

    def __init__(self, name: str) -> None:
        self._thread = LastingThread(name)

    def start(
        self, module: str, argument: str, *, site_packages: str = "", **options: Any
    ) -> subprocess.Popen[bytes]:
        """Start Python on `main(argument)` of a module, with the import path of this process.

        `options` are those of `subprocess.Popen`.
        """
        command = python_words(module, argument, site_packages)
        popen: Any = subprocess.Popen
        process: subprocess.Popen[bytes] = self._thread.call(popen, command, **options)
        _started.add(process.pid)
        return process

    def close(self) -> None:
        """End the thread, and with it the children that still run."""
        self._thread.close()


def reap(process: subprocess.Popen[bytes]) -> None:
    """Have nothing be left of a process once it ends, however late that is; do not wait."""
    name = f"{HELPER_THREADS}reaper"
    thread = threading.Thread(target=process.wait, name=name, daemon=True)
    # As Python (from 3.12) ends there are no new threads, and what is left is nobody's child soon.
    with suppress(RuntimeError):
        thread.start()


def await_ends(processes: Iterable[subprocess.Popen[bytes]], limit_s: float) -> None:
    """Wait until processes have ended, or for so many seconds in all."""
    deadline = time.monotonic() + limit_s
    for process in processes:
        with suppress(subprocess.TimeoutExpired):
            process.wait(max(0.0, deadline - time.monotonic()))


def end_with_parent(parent_pid: int, number: signal.Signals = signal.SIGKILL) -> None:
    """Have this process end with its parent, or be sent another signal then."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, number)
    # The parent may have ended before that call: then nothing would end this process.
    if os.getppid() != parent_pid:
        os._exit(LOST_PARENT)


def become_child(parent_pid: int, number: signal.Signals = signal.SIGKILL) -> None:
    """Have this process end with its parent, and leave no core file behind; called first."""
    end_with_parent(parent_pid, number)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def describe_exit(code: int) -> str:
    """Return in words how a process ended, by its `returncode`.

    Example:
        >>> describe_exit(-11)
        'signal 11 (SIGSEGV)'
    """
    if code >= 0:
        return f"exit status {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        # Of those for real time, Python names the first and the last alone.
        return f"signal {-code}"
    hint = "; the machine may have run out of memory" if code == -signal.SIGKILL else ""
    return f"signal {-code} ({name}{hint})"
