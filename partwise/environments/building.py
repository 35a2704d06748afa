"""An environment on the machine where it is used: built once, shared by all processes there."""

import fcntl
import hashlib
import logging
import os
import shutil
import socket
import sys
import sysconfig
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from partwise.environments.cache import (
    COMPLETE,
    TREE,
    BuiltDocument,
    environments_folder,
    find_places,
    note_use,
    read_document,
    size_of,
    write_document,
)
from partwise.environments.conda import build_conda
from partwise.environments.resolved_environment import ResolvedEnvironment, python_version
from partwise.environments.uv import UvError, run_uv
from partwise.errors import EnvironmentBuildError
from partwise.store.entry_locks import lock_entry
from partwise.store.no_room import says_no_room

logger = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True)
class BuiltEnvironment:
    """An environment that is ready on this machine; nobody removes it before `close`."""

    python: str = ""
    """Its interpreter; empty: it adds nothing to this process's own."""
    site_packages: str = ""
    """The folder of its packages; empty: it is the interpreter of this process."""
    entry: Path | None = None
    _descriptor: int = -1

    @property
    def scripts(self) -> str:
        """The folder of its programs; empty: it has none."""
        return os.path.dirname(self.python)

    def hold(self) -> int:
        """Return a descriptor: until all who have inherited it have ended, nobody removes this.

        -1: there is nothing to be held.
        """
        return -1 if self.entry is None else lock_entry(self.entry, fcntl.LOCK_SH)

    def close(self) -> None:
        """Give it free; what was handed over by `hold` is still held."""
        if self._descriptor >= 0 and self.entry is not None:
            note_use(self.entry)
            os.close(self._descriptor)
            self._descriptor = -1

    def __enter__(self) -> "BuiltEnvironment":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def open_environment(resolved: ResolvedEnvironment | None) -> BuiltEnvironment:
    """Return an environment on this machine, built if it is not there; None: nothing is asked for.

    Any number of processes and threads may ask at once: one builds, the others wait for it. One
    that is killed leaves nothing that counts, and the next one builds.
    """
    if resolved is None:
        return BuiltEnvironment()
    if not resolved.is_own:
        return BuiltEnvironment(python=sys.executable)
    _check_machine(resolved)
    entry = environments_folder() / _entry_name(resolved)
    while True:
        with _disk_errors_explained(resolved, entry):
            # Waits for who builds it.
            descriptor = lock_entry(entry, fcntl.LOCK_SH)
        places = find_places(entry) if read_document(entry) else None
        if places is not None:
            note_use(entry)
            python, packages = places
            return BuiltEnvironment(
                python=python, site_packages=packages, entry=entry, _descriptor=descriptor
            )
        os.close(descriptor)
        _build(resolved, entry)


def _build(resolved: ResolvedEnvironment, entry: Path) -> None:
    """Build an environment, unless somebody else has done so meanwhile."""
    with _disk_errors_explained(resolved, entry):
        descriptor = lock_entry(entry, fcntl.LOCK_EX)
        try:
            if read_document(entry) is not None:
                return
            # What a killed builder left.
            shutil.rmtree(entry, ignore_errors=True)
            entry.mkdir(mode=0o700)
            logger.info("building the environment of %s in %s", resolved.name, entry)
            began = time.monotonic()
            try:
                # What builds holds the lock too: were this process killed, the next one would wait
                # until nobody writes into the folder any more.
                build = build_conda if resolved.conda else _build_with_uv
                build(resolved, entry / TREE, descriptor)
                document = _describe(resolved, entry, time.monotonic() - began)
                write_document(entry, document)
            except BaseException:
                (entry / COMPLETE).unlink(missing_ok=True)
                shutil.rmtree(entry, ignore_errors=True)
                raise
        finally:
            # Also for what the build may have left running, which has inherited it.
            fcntl.flock(descriptor, fcntl.LOCK_UN)
            os.close(descriptor)


def _build_with_uv(resolved: ResolvedEnvironment, tree: Path, lock: int) -> None:
    """Make the environment and install its packages."""
    python = str(tree / "bin" / "python")
    where = str(tree.parent)
    try:
        run_uv(
            ["venv", "--quiet", "--no-project", "--python", sys.executable, str(tree)],
            resolved.sources,
            where,
            inherited=(lock,),
        )
        run_uv(
            [
                # Everything that is needed is among the pins: uv is to choose nothing once more.
                *("pip", "install", "--quiet", "--python", python, "--no-deps"),
                *("--requirements", "-", *resolved.sources.options()),
            ],
            resolved.sources,
            where,
            text="\n".join([*resolved.options, *resolved.pins, ""]),
            inherited=(lock,),
        )
    except UvError as error:
        scratch = " Set PARTWISE_SCRATCH to a folder that has room."
        advice = scratch if says_no_room(str(error)) else ""
        raise EnvironmentBuildError(
            f"The environment of {resolved.name} cannot be built on {socket.gethostname()}. "
            f"uv says: {error}{advice}"
        ) from None


def _describe(resolved: ResolvedEnvironment, entry: Path, seconds: float) -> BuiltDocument:
    """Return what is known of an environment that was just built."""
    if find_places(entry) is None:
        raise EnvironmentBuildError(
            f"The environment of {resolved.name} has no Python ({entry / TREE / 'bin' / 'python'}):"
            " name one in it."
        )
    return BuiltDocument(
        name=resolved.name,
        packages=resolved.versions,
        size_bytes=size_of(entry / TREE),
        built_at=datetime.now(UTC).isoformat(timespec="seconds"),
        seconds=round(seconds, 3),
    )


def _check_machine(resolved: ResolvedEnvironment) -> None:
    """See that this machine is of the kind that the packages were chosen for."""
    here = (python_version(), sysconfig.get_platform())
    if not resolved.conda and here != (resolved.python, resolved.platform):
        raise EnvironmentBuildError(
            f"The environment of {resolved.name} was resolved for Python {resolved.python} on "
            f"{resolved.platform}, and {socket.gethostname()} has Python {here[0]} on {here[1]}: "
            "give workers the Python of the driver."
        )


def _entry_name(resolved: ResolvedEnvironment) -> str:
    """Return the name of an environment's folder; interpreters of one machine do not share any."""
    interpreter = f"{sys.base_prefix} {sys.version}"
    return f"{resolved.key[:24]}-{hashlib.sha256(interpreter.encode()).hexdigest()[:8]}"


@contextmanager
def _disk_errors_explained(resolved: ResolvedEnvironment, entry: Path) -> Iterator[None]:
    """Say in an error of the disk which environment was built, and what to do."""
    try:
        yield
    except OSError as error:
        raise EnvironmentBuildError(
            f"The environment of {resolved.name} cannot be built on {socket.gethostname()} in "
            f"{str(entry.parent)!r}: {error.strerror or error}; set PARTWISE_SCRATCH to a folder "
            "that has room and can be written."
        ) from error
