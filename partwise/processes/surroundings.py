"""What a process finds when it starts: servers fork children only where these are those wanted."""

import hashlib
import json
import os
import resource
import signal
import socket
import struct
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib.machinery import all_suffixes
from pathlib import Path
from typing import Any

from partwise.processes.starting import import_path

_PASSING = {
    # `readline`, which an interactive Python imports, sets them for processes that it starts only.
    *("LINES", "COLUMNS"),
    # Dask sets it in a driver that starts a cluster, so that a second run would begin all again.
    "__DASK_PARENT_PID",
}
_STATUS = ("Umask:", "Seccomp:")
_DASKS_FOLDER = "dask-scratch-space"
"""Stands in the path of the folders that Dask puts before all others, one for each worker."""
_SUFFIXES = tuple(all_suffixes())
_CREDENTIALS = struct.Struct("3i")


def folder_number() -> tuple[int, int]:
    """Return which folder this process is in.

    By inode: one that was removed has no path any more, and children start in it.
    """
    here = os.stat(".")
    return here.st_dev, here.st_ino


def last_changes(places: Sequence[str]) -> list[int]:
    """Return when packages were last installed or removed in each folder of packages."""
    changes = []
    for place in places:
        with suppress(OSError):
            if place.endswith("-packages"):
                changes.append(os.stat(place).st_mtime_ns)
    return changes


def digest_of(module: str, variables: Mapping[str, str], libraries: Sequence[str]) -> str:
    """Return a name for what a child would find that a process like this one starts.

    It has another one where anything of it differs, but for what is set for each server that is
    forked: Dask's own folders on its import path, if they are without code, and its signals; and
    for variables that come and go with what a driver does.
    """
    named = sorted(each for each in variables.items() if each[0] not in _PASSING)
    here = ""
    with suppress(OSError):  # it may have been removed
        here = os.getcwd()
    # "" is the working directory in an interactive Python, of which a worker is given the path.
    places = [
        place or here for place in import_path() if _DASKS_FOLDER not in place or _holds_code(place)
    ]
    found = [
        *(module, named, sorted(libraries)),
        *(folder_number(), places, last_changes(places), _inherited()),
    ]
    return hashlib.sha256(json.dumps(found).encode()).hexdigest()


def own_settings() -> dict[str, Any]:
    """Return what a fork of another process takes over from this one."""
    return {
        "path": import_path(),
        "blocked": list(signal.pthread_sigmask(signal.SIG_BLOCK, ())),
        "ignored": [
            number
            for number in signal.valid_signals()
            if signal.getsignal(number) == signal.SIG_IGN
        ],
    }


def take_over(settings: Mapping[str, Any]) -> None:
    """Take over what `own_settings` are of another process."""
    sys.path[:] = settings["path"]
    for number in settings["ignored"]:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, settings["blocked"])


def address_of(token: str, name: str) -> str:
    """Return where a driver's server listens, for children with surroundings of a name."""
    return f"\0partwise/warm/{token}/{name}"


def peer_of(connection: socket.socket) -> tuple[int, int]:
    """Return the number of the process at the other end, and that of its user."""
    read = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, uid, _ = _CREDENTIALS.unpack(read)
    return pid, uid


def _holds_code(place: str) -> bool:
    """Whether anything can be imported from a place.

    Asked of Dask's only, as others may fill in between: a store in the working directory did, and
    children of the first run there were not forked.
    """
    if not os.path.isdir(place):
        return os.path.exists(place)
    with suppress(OSError), os.scandir(place) as entries:
        for entry in entries:
            # Dask has its workers run texts of ours first, which it writes here under such names.
            if entry.name.startswith((tempfile.gettempprefix(), "__pycache__")):
                continue
            if entry.name.endswith(_SUFFIXES):
                return True
            # A package; none is a folder without code, such as Dask's for what it has spilled.
            is_package = entry.name.isidentifier() and entry.is_dir()
            if is_package and any(name.endswith(_SUFFIXES) for name in os.listdir(entry)):
                return True
    return False


def _inherited() -> list[object]:
    """Return what a process has from its parent, and hands on."""
    limits = {
        name: resource.getrlimit(getattr(resource, name))
        for name in dir(resource)
        # A child has none of the first, and the second is another name for one.
        if name.startswith("RLIMIT_") and name not in ("RLIMIT_CORE", "RLIMIT_OFILE")
    }
    lines = Path("/proc/self/status").read_text().splitlines()
    return [
        limits,
        [line for line in lines if line.startswith(_STATUS)],
        sorted(os.sched_getaffinity(0)),
        os.getpriority(os.PRIO_PROCESS, 0),
        Path("/proc/self/oom_score_adj").read_text(),
        Path("/proc/self/cgroup").read_text(),
    ]
