"""What a partition left in its process and cannot be put back: found, so that the process goes.

Looked at are the modules and classes that the work's code names, Python's threads and the processes
below this one. What a function changed inside a value, such as an element of a dict that a module
holds, is not seen.
"""

import contextlib
import os
import sys
import threading
import time
from collections.abc import Mapping
from types import FunctionType, ModuleType
from typing import Any

from partwise.engine.child.named_code import NamedCode
from partwise.engine.child.state import RESTORED_IN_SYS, THOROUGH_S
from partwise.processes.family import children_of, clears_up, command_of, is_running
from partwise.processes.starting import HELPER_THREADS, is_helper

GRACE_S = 0.05
"""For so long, threads and processes that are about to end are waited for."""
_HELPERS = {"fsspecIO", "TMonitor"}
"""Threads that fsspec and tqdm keep for the whole process, by their name or class."""
_PROCESS_WORDS = frozenset({"fork", "posix_spawn", "posix_spawnp", "Popen", "system", "Process"})
_MODULE_WORDS = frozenset({"modules", "reload", "import_module"})


class Leftovers:
    """What stands in the process now; made when the work and what it imports are loaded."""

    def __init__(self, named: NamedCode) -> None:
        self._named = named
        # Only its length is asked for after each partition: enumerate() takes a lock and copies.
        self._active = threading._active  # type: ignore[attr-defined]
        self._threads = set(threading.enumerate())
        self._processes = {pid for pid in children_of(os.getpid()) if is_running(pid)}
        self._looks_at_modules = bool(named.words & _MODULE_WORDS)
        self._looks_at_processes = bool(named.words & _PROCESS_WORDS)
        self._note_modules()

    def _note_modules(self) -> None:
        self._modules = dict(sys.modules)
        self._module_values = tuple(self._modules.values())
        self._note_scopes()

    def _note_scopes(self) -> None:
        self._scopes = [
            (members, tuple(members.values()), dict(members), name)
            for name, members in self._named.scopes.items()
        ]

    def look(self, seconds: float) -> list[str]:
        """Return, in words, what a partition left; what it imported is noted."""
        found: list[str] = []
        is_thorough = seconds > THOROUGH_S
        if is_thorough or self._named.sets_attributes:
            for members, values, saved, name in self._scopes:
                # As a rule the values are the same objects, and these are compared by identity.
                with contextlib.suppress(Exception):
                    if tuple(members.values()) == values:
                        continue
                found += self._describe_changes(name, members, saved)
        if len(sys.modules) != len(self._modules) or (
            (is_thorough or self._looks_at_modules)
            and tuple(sys.modules.values()) != self._module_values
        ):
            found += self._look_at_modules()
        if len(self._active) != len(self._threads):
            found += self._look_at_threads()
        if is_thorough or self._looks_at_processes:
            with contextlib.suppress(ChildProcessError):
                # Raises where there is no child, as a rule: one call in place of reads in /proc.
                os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
                found += self._look_at_processes()
        return found

    def _describe_changes(
        self, name: str, members: Mapping[str, Any], saved: Mapping[str, Any]
    ) -> list[str]:
        is_own = name in self._named.own
        package = name.partition(".")[0]
        found = []
        for key in {*saved, *members}:
            old, new = saved.get(key, _ABSENT), members.get(key, _ABSENT)
            if key in _PUT_BACK.get(name, ()):
                continue
            if old is new or self._is_wrapped_by_library(name, key, old, new):
                continue
            if _matters(key, old, new, is_own, package):
                deed = "added" if old is _ABSENT else "removed" if new is _ABSENT else "replaced"
                found.append(f"it {deed} {name}.{key}")
        if not found:
            # A module that was imported, or what a library keeps for itself.
            self._note_scopes()
        return found

    def _is_wrapped_by_library(self, name: str, key: str, old: Any, new: Any) -> bool:
        """Whether a library has wrapped a function of its own, or of a class derived from its own.

        As torch does with `step` of an optimizer when the first one is made. The wrapper's code is
        of the same package, it calls what was there, and the user's code assigns no attribute of
        this name. Where that may set any, the code has to be of the module or a base of the class:
        a decorator such as torch.no_grad is for users as well.
        """
        owner, named = self._named.owners.get(name), self._named
        if owner is None or not isinstance(new, FunctionType) or key in named.set_names:
            return False
        kinds = owner.__mro__ if isinstance(owner, type) else ()
        homes = {kind.__module__ for kind in kinds} or {owner.__name__}
        # Not `__module__`, which functools.wraps copies from what is wrapped.
        home = str(new.__globals__.get("__name__"))
        if new.__globals__ is not getattr(sys.modules.get(home), "__dict__", None):
            return False
        packages = {each.partition(".")[0] for each in homes}
        is_near = home in homes or not named.sets_by_name
        if home.partition(".")[0] not in packages or not is_near or named.is_own(home):
            return False
        wrapped = getattr(new, "__wrapped__", None)
        originals = [old, *(vars(kind).get(key, _ABSENT) for kind in kinds)]
        return wrapped is not None and any(wrapped is original for original in originals)

    def _look_at_modules(self) -> list[str]:
        modules = sys.modules
        found = [
            f"it {'replaced' if name in modules else 'removed'} the module {name} in sys.modules"
            for name, module in self._modules.items()
            if modules.get(name, _ABSENT) is not module
        ]
        if not found:
            self._named.follow()
            self._note_modules()
        return found

    def _look_at_threads(self) -> list[str]:
        deadline = time.monotonic() + GRACE_S
        left = []
        for thread in set(threading.enumerate()) - self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
            if thread.is_alive():
                if _is_helper(thread):
                    self._threads.add(thread)
                else:
                    left.append(f"it left the thread {thread.name!r} running")
        # Of those that have ended, nothing is noted any more.
        self._threads &= set(threading.enumerate())
        return left

    def _look_at_processes(self) -> list[str]:
        deadline = time.monotonic() + GRACE_S
        while True:
            with contextlib.suppress(ChildProcessError):
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass
            left = [
                pid
                for pid in children_of(os.getpid())
                if pid not in self._processes and not (clears_up(pid) or is_helper(pid))
            ]
            # One that has ended since counts: what it had started came here perhaps only then.
            if not left or time.monotonic() > deadline:
                return [f"it left the process {command_of(pid)[:100]!r} running" for pid in left]
            time.sleep(0.002)


def describe_leftovers(left: list[str]) -> str:
    """Return what a partition left as a sentence for its log."""
    return (
        f"partwise: this partition left its process changed: {'; '.join(left)}. Another process "
        "takes its place, which takes time, so that the next partition does not meet that. Undo it "
        "in the function, or run with isolation='partition'; what all partitions are meant to "
        "share belongs in functools.cache."
    )


_ABSENT = object()
_PUT_BACK = {"sys": frozenset({*RESTORED_IN_SYS, "stdout", "stderr"}), "os": frozenset({"environ"})}
"""Attributes that others here put back."""


def _matters(key: str, old: Any, new: Any, is_own: bool, package: str) -> bool:
    """Whether a change of an attribute may change the results of others.

    A library keeps much in its modules for itself, sets what was None, fills what was an empty
    tuple, as torch.cuda does when it is first used, and adds what it imports.
    """
    is_special = key.startswith("__")
    if is_special and not any(isinstance(value, FunctionType) for value in (old, new)):
        return False
    if is_own:
        return not (old is _ABSENT and isinstance(new, ModuleType))
    if (key.startswith("_") and not is_special) or old is None:
        return False
    # By its type first: an array compares with a tuple by elements, or raises.
    if isinstance(old, tuple) and not old:
        return False
    if old is _ABSENT:
        source = str(getattr(new, "__module__", "") or "")
        return not (isinstance(new, ModuleType) or source.partition(".")[0] == package)
    return True


def _is_helper(thread: threading.Thread) -> bool:
    if thread.name.startswith(HELPER_THREADS):
        # The judge of exports, which is started for the first partition and lives on.
        return True
    return thread.name in _HELPERS or type(thread).__name__ in _HELPERS
