"""What a command costs before and behind its work: the goals, and what this machine takes.

    python benchmarks/start.py [--repeats 5] [--json]

Each line is the median of the wall clock, from the start of the process to its end, with files in
the page cache. Beside it stand the seconds of CPU of the command and of all that it started: they
say more where the machine is shared. With --json the medians of the clock are printed, by name.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

PARTITIONS, ROWS = 10, 50
COMMAND = (sys.executable, "-m", "partwise.flows.cli.main")
TRAIN = ("train", "sales.parquet", "-p", "store", "--trainer", "lightgbm", "--label")


@dataclass(frozen=True)
class Goal:
    """A command, and in how many seconds it is to end on an idle machine of 2 cores."""

    name: str
    words: Sequence[str]
    seconds: float
    code: int = 0


GOALS = (
    Goal("import partwise", (sys.executable, "-c", "import partwise"), 0.05),
    Goal("partwise --help", (*COMMAND, "--help"), 0.12),
    Goal("a refusal: a wrong label", (*COMMAND, *TRAIN, "sals"), 0.5, code=2),
    Goal(f"partwise train, {PARTITIONS} tiny models", (*COMMAND, *TRAIN, "sales"), 2.5),
    Goal("partwise demo, nothing left to do", (*COMMAND, "demo"), 1.2),
)

PLAIN = Goal("python", (sys.executable, "-c", "pass"), 0.0)


def measure(goal: Goal, folder: Path) -> tuple[float, float]:
    """Return seconds of the wall clock, and of CPU, of one call."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.perf_counter()
    ended = subprocess.run(goal.words, cwd=folder, capture_output=True, text=True, check=False)
    wall = time.perf_counter() - began
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if ended.returncode != goal.code:
        raise SystemExit(f"{goal.name} ended with {ended.returncode}: {ended.stderr[-2000:]}")
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return wall, cpu


def main() -> None:
    """Measure each goal, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", action="store_true", help="print the medians alone")
    given = parser.parse_args()
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_rows(folder / "sales.parquet")
        subprocess.run((*COMMAND, "demo"), cwd=folder, capture_output=True, check=True)
        found = {goal.name: medians(goal, given.repeats, folder) for goal in GOALS}
    if given.json:
        print(json.dumps({name: wall for name, (wall, _) in found.items()}))
        return
    print(f"{os.cpu_count()} cores, load {load:.1f} as it begins")
    print(f"{'':<36}{'goal':>8}{'median':>8}{'CPU':>8}")
    for goal in GOALS:
        wall, cpu = found[goal.name]
        print(f"{goal.name:<36}{goal.seconds:>6.2f} s{wall:>6.2f} s{cpu:>6.2f} s")


def medians(goal: Goal, repeats: int, folder: Path) -> tuple[float, float]:
    """Return the medians of some calls, after a first one."""
    measure(goal, folder)
    runs = [measure(goal, folder) for _ in range(repeats)]
    wall, cpu = (statistics.median(column) for column in zip(*runs, strict=True))
    if goal.seconds < 0.1:
        # An interpreter's own start is not part of what importing costs.
        own = [measure(PLAIN, folder) for _ in range(repeats)]
        wall -= statistics.median(each[0] for each in own)
        cpu -= statistics.median(each[1] for each in own)
    return wall, cpu


def write_rows(path: Path) -> None:
    random = np.random.default_rng(0)
    count = PARTITIONS * ROWS
    columns = {name: random.normal(size=count) for name in ("x", "price", "sales")}
    pq.write_table(pa.table({"store": np.arange(count) % PARTITIONS, **columns}), path)


if __name__ == "__main__":
    main()
