"""The memory of a partition: of the process at work on it, and of all that this has started.

What a process has for itself is summed, and so is shared memory: MAP_SHARED, /dev/shm, the blocks
of torch's DataLoader. Files that are mapped do not count, as the rows of a shard are. Linux only.

How much of shared memory several processes share is known from /proc/<pid>/smaps_rollup alone,
which takes 80 ms for a gigabyte, and /proc/<pid>/status takes 16 us. So that is read as a rule, and
the sum of it is as much as the processes can have. Only where this is over the limit, the other is
read.
"""

import contextlib
import os
from collections.abc import Iterable
from functools import cached_property
from pathlib import Path

_KIB = 1024


class FamilyMemory:
    """Measures the memory of processes against a limit.

    `scratch` is the worker's folder. Where that is in memory itself, files that are mapped from it
    are not the partition's.
    """

    def __init__(self, scratch: str) -> None:
        self._scratch = os.path.join(os.path.realpath(scratch), "")
        self._twice = 0
        """Bytes that the sum has too much: counted twice, or not the partition's."""

    def measure(self, pids: Iterable[int], limit: int) -> int:
        """Return bytes that processes have; what they share counts once.

        Above `limit` the figure is exact; below, it may be up to what they share too low. Processes
        that have ended meanwhile have none.
        """
        family = list(pids)
        own = shared = largest = 0
        for pid in family:
            own_of_one, shared_of_one = read_memory(pid)
            own += own_of_one
            shared += shared_of_one
            largest = max(largest, shared_of_one)
        if own + shared <= limit:
            return own + largest
        # Unless more has come since, what was found then is known to be enough.
        if own + shared - min(self._twice, shared) > limit:
            self._twice = shared - sum(map(self._exact_shared, family))
        return own + shared - min(self._twice, shared)

    def _exact_shared(self, pid: int) -> int:
        """Return the part of the shared memory of a process that is its own among those sharing."""
        exact = _sum_of(Path(f"/proc/{pid}/smaps_rollup"), b"Pss_Shmem:")
        if exact and self._scratch_is_in_memory:
            exact -= _sum_of(Path(f"/proc/{pid}/smaps"), b"Pss:", os.fsencode(self._scratch))
        return max(0, exact)

    @cached_property
    def _scratch_is_in_memory(self) -> bool:
        return _kind_of_file_system(self._scratch) == "tmpfs"


def read_memory(pid: int) -> tuple[int, int]:
    """Return the bytes in memory that a process has for itself, and those that may be shared.

    Both are without files that are mapped; 0 where it is gone.
    """
    found = {b"RssAnon:": 0, b"RssShmem:": 0}
    with contextlib.suppress(OSError, ValueError, IndexError):
        status = Path(f"/proc/{pid}/status").read_bytes()
        for name in found:
            found[name] = int(status.split(name, 1)[1].split(None, 1)[0]) * _KIB
    return found[b"RssAnon:"], found[b"RssShmem:"]


def _sum_of(path: Path, name: bytes, mapped_from: bytes = b"") -> int:
    """Return the sum of a figure, over all mappings or over those of files in a folder."""
    total, counts = 0, not mapped_from
    with contextlib.suppress(OSError), path.open("rb") as file:
        for line in file:
            fields = line.split(None, 5)
            # A line with a range of addresses begins a mapping, and its figures follow.
            if mapped_from and b"-" in fields[0]:
                counts = len(fields) > 5 and fields[5].startswith(mapped_from)
            elif counts and fields[0] == name:
                total += int(fields[1]) * _KIB
    return total


def _kind_of_file_system(folder: str) -> str:
    with contextlib.suppress(OSError):
        device = os.stat(folder).st_dev
        number = f"{os.major(device)}:{os.minor(device)}"
        for line in Path("/proc/self/mountinfo").read_text().splitlines():
            if line.split()[2] == number:
                return line.partition(" - ")[2].split()[0]
    return ""
