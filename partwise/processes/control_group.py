"""A control group (cgroup v2) for each child: all that it starts is in it, and ends with it.

No process leaves its group by another parent, session or environment. So the kernel ends all of a
group at once, whoever started it, and counts its memory as a whole: also that of files in /dev/shm
that no process has mapped. Who may write to the group above (as root) can leave it all the same, so
the keeper does its part with a group as without one.

A group is made only where that is ours to do: in the worker's own group, where systemd has
delegated that (`Delegate=yes`) or where it is the topmost that we see, as in a container. There
the kernel counts no memory, except in the topmost of a machine: it does so only below a group that
has no processes. Where the worker's own group is called `partwise-workers`, others are made beside
it.
"""

import contextlib
import fcntl
import functools
import os
import secrets
import time
from dataclasses import dataclass
from pathlib import Path

SUBGROUP = "partwise-workers"
"""The name of a group that is only there so that the one above has no processes."""
_PREFIX = "partwise-child-"
_ENDING_S = 2.0
"""For so long the end of killed processes is waited for."""
_NOWHERE = "/proc/none"
_MEMBERSHIP = "/proc/self/cgroup"
_MOUNTS = "/proc/self/mountinfo"


@dataclass(frozen=True, slots=True)
class ControlGroup:
    """The group of a child; made by its keeper, which has it locked as long as it lives.

    What cannot be done with it is left undone: nothing depends on a group.
    """

    path: str

    def make(self) -> int:
        """Make the group; return a descriptor that keeps it locked, or -1 where there is none."""
        descriptor = -1
        try:
            os.mkdir(self.path)
            descriptor = os.open(self.path, os.O_RDONLY)
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Before Linux 5.14 there was no such thing, and so no use of a group.
            os.stat(f"{self.path}/cgroup.kill")
        except OSError:
            if descriptor >= 0:
                os.close(descriptor)
            with contextlib.suppress(OSError):
                os.rmdir(self.path)
            return -1
        return descriptor

    def enter(self) -> None:
        """Move this process into the group, and with it all that it starts from now on."""
        self._write("cgroup.procs", b"0")

    def holds(self, pid: int) -> bool:
        """Whether a process is in the group, or in one that was made within it."""
        with contextlib.suppress(OSError):
            # No other group has this name: it is a random one.
            return os.path.basename(self.path).encode() in Path(f"/proc/{pid}/cgroup").read_bytes()
        return False

    def memory(self) -> tuple[int, int] | None:
        """Return the bytes of anonymous and of shared memory; None where they are not counted."""
        try:
            lines = Path(self.path, "memory.stat").read_bytes().splitlines()
        except OSError:
            return None
        figures = dict(line.split(b" ", 1) for line in lines)
        return int(figures[b"anon"]), int(figures[b"shmem"])

    def shared_bytes(self) -> int:
        """Return the bytes of shared memory; 0 where they are not counted."""
        return (self.memory() or (0, 0))[1]

    def end(self) -> None:
        """Kill all that is in the group, and remove it."""
        self._write("cgroup.kill", b"1")
        deadline = time.monotonic() + _ENDING_S
        # It can be removed when all have ended; what waits for a dead disk never does.
        while os.path.exists(self.path) and time.monotonic() < deadline:
            try:
                for folder, _, _ in os.walk(self.path, topdown=False):
                    os.rmdir(folder)
            except OSError:
                time.sleep(0.001)

    def _write(self, name: str, text: bytes) -> None:
        with contextlib.suppress(OSError):
            descriptor = os.open(f"{self.path}/{name}", os.O_WRONLY)
            try:
                os.write(descriptor, text)
            finally:
                os.close(descriptor)


def new_group() -> ControlGroup:
    """Return a group that is still to be made, and cannot be where this process can make none."""
    return ControlGroup(f"{prepare_folder() or _NOWHERE}/{_PREFIX}{secrets.token_hex(8)}")


@functools.cache
def prepare_folder() -> str | None:
    """Return `find_folder()`, where memory is counted from now on and nothing is left of others.

    Once for a process: it stays in the group that it is in.
    """
    folder = find_folder()
    if folder is not None:
        with contextlib.suppress(OSError):
            Path(folder, "cgroup.subtree_control").write_text("+memory")
        _end_abandoned(folder)
    return folder


def counts_memory() -> bool | None:
    """Make a group to see whether its memory is counted; None: none can be made."""
    group = new_group()
    lock = group.make()
    if lock < 0:
        return None
    try:
        return group.memory() is not None
    finally:
        os.close(lock)
        group.end()


def find_folder() -> str | None:
    """Return the group in which this process may make others; None: there is none."""
    place = _own_place()
    if place is None:
        return None
    top, folder = place
    if folder.name == SUBGROUP and folder != top:
        folder = folder.parent
    elif folder != top and not _is_delegated(folder):
        return None
    # The kernel asks for both before it moves a process to a group within.
    needed = (folder, folder / "cgroup.procs")
    return str(folder) if all(os.access(path, os.W_OK) for path in needed) else None


def _own_place() -> tuple[Path, Path] | None:
    """Return the topmost group that this process sees, and its own; None: it sees none."""
    with contextlib.suppress(OSError):
        lines = Path(_MEMBERSHIP).read_text().splitlines()
        names = [Path(line[3:]) for line in lines if line.startswith("0::")]
        for line in Path(_MOUNTS).read_text().splitlines() if names else ():
            fields, _, kind = line.partition(" - ")
            root, top = fields.split()[3:5]
            # One that is not below what is mounted, or has `..` in its name, cannot be seen here.
            if (
                kind.startswith("cgroup2 ")
                and names[0].is_relative_to(root)
                and ".." not in names[0].parts
            ):
                return Path(top), Path(top, names[0].relative_to(root))
    return None


def _is_delegated(folder: Path) -> bool:
    with contextlib.suppress(OSError):
        return os.getxattr(folder, "user.delegate") == b"1"
    return False


def _end_abandoned(folder: str) -> None:
    """End the groups whose keeper and worker were killed at the same time."""
    with contextlib.suppress(OSError):
        for name in os.listdir(folder):
            if name.startswith(_PREFIX):
                _end_if_free(ControlGroup(f"{folder}/{name}"))


def _end_if_free(group: ControlGroup) -> None:
    with contextlib.suppress(OSError):
        descriptor = os.open(group.path, os.O_RDONLY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            group.end()
        finally:
            os.close(descriptor)
