"""Functions that do their worst in a hundredth of the partitions of a shard.

Called from a child process, which imports this file: so it imports nothing of pytest's.
"""

import ctypes
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass
from mmap import PAGESIZE, mmap
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from partwise.processes.family import is_running
from tests.engine.shards import ShardOfRun

MIB = 1 << 20
MEMORY_BYTES = 300 * MIB
TIMEOUT_S = 4.0
DAEMON = """
import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        with open(f"{sys.argv[1]}/daemon-{os.getpid()}", "w"):
            pass
        time.sleep(600)
    os._exit(0)
os.wait()
"""


class Unpicklable(Exception):
    """An exception that no process can send to another."""

    def __reduce__(self):
        raise TypeError("cannot pickle")


def crash(_: str) -> None:
    """Read where nothing is."""
    ctypes.string_at(0)


def leave(_: str) -> None:
    """End the process as if all were well."""
    os._exit(0)


def loop(_: str) -> None:
    """Never end."""
    while True:
        pass


def take_memory(_: str) -> None:
    """Take more memory than there is."""
    blocks = []
    while True:
        blocks.append(np.ones(4 * MIB))


def share_memory(_: str) -> None:
    """Take it where only the sum over several processes shows it."""
    for _ in range(2):
        if os.fork() == 0:
            mapped = mmap(-1, 250 * MIB)
            np.frombuffer(mapped, np.uint8)[::PAGESIZE] = 1
            time.sleep(600)
    time.sleep(600)


def raise_unpicklable(_: str) -> None:
    """Raise what cannot be sent."""
    raise Unpicklable


def raise_a_gigabyte(_: str) -> None:
    """Raise an exception with a message of a gigabyte."""
    raise RuntimeError("x" * (1 << 30))


def fork_many(_: str) -> None:
    """Fork again and again, though not without end, and wait."""
    for _ in range(6):
        os.fork()
    time.sleep(600)


def die_with_daemon(folder: str) -> None:
    """Start what nothing leads to, and be killed."""
    subprocess.run([sys.executable, "-c", DAEMON, folder], env={}, check=True)
    os.kill(os.getpid(), signal.SIGKILL)


def leave_daemon(folder: str) -> None:
    """Start it, and return as if nothing was."""
    subprocess.run([sys.executable, "-c", DAEMON, folder], env={}, check=True)


def flood_log(_: str) -> None:
    """Print more than the disk of a small machine has."""
    line = b"x" * 65_535 + b"\n"
    for _ in range(3_000):
        os.write(1, line)


def hold_shared_file(folder: str) -> None:
    """Hold a file in shared memory until the time is up."""
    with open(f"/dev/shm/partwise-poison-{os.getpid()}", "wb") as file:
        file.write(b"x")
        Path(folder, f"shared-{os.getpid()}").write_text(file.name)
        time.sleep(600)


POISONS = {
    crash: "ProcessDied",
    leave: "ProcessDied",
    loop: "PartitionTimeout",
    take_memory: "MemoryLimitExceeded",
    share_memory: "MemoryLimitExceeded",
    raise_unpicklable: "Unpicklable",
    raise_a_gigabyte: "MemoryLimitExceeded",
    # What forks share with each other counts for each of them.
    fork_many: "MemoryLimitExceeded",
    die_with_daemon: "ProcessDied",
    leave_daemon: "",
    flood_log: "",
    hold_shared_file: "PartitionTimeout",
}
"""What each fails with; empty: it is DONE, and harms nobody."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoisonCounts:
    """What became of a shard with poison in it."""

    partitions: int
    poisoned: Counter[str]
    """By what was done."""
    wrong: tuple[str, ...]
    """Partitions that came to something else than they should, in words."""
    left: tuple[str, ...]
    """Processes and files that outlive the shard."""


def run_poison(seed: int, partitions: int, folder: Path, isolation: str) -> PoisonCounts:
    """Run a shard of which each hundredth partition is poison; return what became of it.

    Args:
        seed: Which partitions, and what they do; every kind is done before one is done again.
        partitions: How many there are.
        folder: For all files.
        isolation: As of `ExecutionOptions`.
    """
    chance = random.Random(seed)
    keys = chance.sample(range(partitions), max(1, partitions // 100))
    kinds = chance.sample(list(POISONS), len(POISONS))
    deeds = {key: kinds[place % len(kinds)] for place, key in enumerate(keys)}
    notes = folder / "notes"
    notes.mkdir(parents=True)

    def function(data: Any, context: Any) -> dict[str, list[int]]:
        if context.key in deeds:
            deeds[context.key](str(notes))
        return {"seen": [context.key]}

    shard = ShardOfRun(folder)
    table = pa.table({"key": np.arange(partitions), "value": np.arange(float(partitions))})
    try:
        _, run = shard.run(
            function,
            table,
            max_retries=0,
            timeout_s=TIMEOUT_S,
            memory_bytes=MEMORY_BYTES,
            isolation=isolation,
        )
    finally:
        shard.host.close()
    rows = run.ledger.select(["key.key", "status", "error_type"]).to_pylist()
    wrong = [f"{len(rows)} of {partitions} partitions"] if len(rows) != partitions else []
    for row in rows:
        deed = deeds.get(row["key.key"])
        error = POISONS[deed] if deed else ""
        fits = row["status"] == ("FAILED" if error else "DONE")
        if not fits or not (row["error_type"] or "").endswith(error):
            name = deed.__name__ if deed else "nothing"
            wrong.append(f"{row['key.key']} did {name}: {row['status']} {row['error_type']}")
    done = set(run.predictions()["seen"].to_pylist())
    if done != {row["key.key"] for row in rows if row["status"] == "DONE"}:
        wrong.append("output rows are not those of the DONE partitions")
    return PoisonCounts(
        partitions=partitions,
        poisoned=Counter(deed.__name__ for deed in deeds.values()),
        wrong=tuple(wrong),
        left=tuple(_left(notes)),
    )


def _left(notes: Path) -> list[str]:
    """Return the daemons that still run after a while, and the shared files that are there."""
    daemons = [int(path.name.partition("-")[2]) for path in notes.glob("daemon-*")]
    deadline = time.monotonic() + 10
    while any(map(is_running, daemons)) and time.monotonic() < deadline:
        time.sleep(0.05)
    shared = [path.read_text() for path in notes.glob("shared-*")]
    running = [f"process {pid}" for pid in daemons if is_running(pid)]
    return running + [path for path in shared if os.path.exists(path)]
