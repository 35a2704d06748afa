"""What grows with the number of partitions, what that comes to at ten million, and what ends first.

    python -m benchmarks.scale [--partitions 100000 1000000] [--rows 3] [--of 10000000]

Maps a function that does nothing over so many partitions, with two workers, and resumes the run:
each number in a process of its own. Printed are seconds, the memory of driver and scheduler (one
process), of the largest other process, what is written, and what the difference of the last two
numbers says of `--of` partitions.
"""

import argparse
import json
import logging
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from benchmarks.frame.processes import bytes_below
from benchmarks.overhead import do_nothing, highest, make_source, peak_memory, timed
from partwise.blocks import LocalCluster
from partwise.flows import map_partitions

NAMES = {
    "train s": ("us", 1e6),
    "sharding s": ("us", 1e6),
    "resume s": ("us", 1e6),
    "driver MiB": ("B", 2**20),
    "resume MiB": ("B", 2**20),
    "other MiB": ("B", 2**20),
    "ledger MB": ("B", 1e6),
    "summary and report MB": ("B", 1e6),
    "objects": ("", 1),
}
"""What is printed, the unit of a partition's part in it, and how many of these make one."""


def largest_child() -> int:
    """Return the most memory that a child has for itself, in bytes."""
    sizes = [0]
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            sizes.append(process.memory_info().rss)
    return max(sizes)


def measure(partitions: int, rows: int) -> dict[str, float]:
    """Run so many partitions, and resume them."""
    logging.disable(logging.INFO)
    with tempfile.TemporaryDirectory(prefix="partwise-scale-") as made:
        folder = Path(made)
        make_source(folder / "rows.parquet", partitions, rows)
        store = folder / "store"

        def call() -> Any:
            return map_partitions(
                str(folder / "rows.parquet"),
                "key",
                do_nothing,
                run_id="scale",
                store=store,
                cluster=LocalCluster(workers=2),
                on_existing_artifacts="resume",
            )

        with peak_memory() as own, highest(largest_child, 0.5) as others:
            seconds, run = timed(call)
        stages = run.summary.stages
        kept = store / "runs" / "scale"
        ledger = bytes_below(kept / "ledger")
        found = {
            "train s": seconds - stages["load"] - stages["cluster"],
            "sharding s": stages["load"],
            "driver MiB": own[-1] / 2**20,
            "other MiB": others[-1] / 2**20,
            "ledger MB": ledger,
            "summary and report MB": bytes_below(store) - ledger,
            "objects": float(sum(path.is_file() for path in store.rglob("*"))),
        }
        del run
        with peak_memory() as again:
            found["resume s"], _ = timed(call)
        return found | {"resume MiB": again[-1] / 2**20}


def print_table(counts: list[int], found: list[dict[str, float]], of: int) -> None:
    """Print what was found, what a partition costs by it, and what so many would."""
    heads = [*(f"{count:,}" for count in counts), "a partition", f"{of:,}"]
    print(f"{'':24}" + "".join(f"{head:>14}" for head in heads))
    for name, (unit, size) in NAMES.items():
        values = [each[name] for each in found]
        line = f"{name:24}" + "".join(f"{value:14,.1f}" for value in values)
        if len(values) > 1:
            slope = (values[-1] - values[-2]) / (counts[-1] - counts[-2])
            then = values[-1] + slope * (of - counts[-1])
            line += f"{slope * size:10,.2f} {unit:3}{then:14,.0f}"
        print(line)


def main() -> None:
    """Parse the command line, and measure."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--partitions", type=int, nargs="+", default=[100_000, 1_000_000])
    parser.add_argument("--rows", type=int, default=3)
    parser.add_argument("--of", type=int, default=10_000_000)
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        print(json.dumps(measure(arguments.one, arguments.rows)))
        return
    found: list[dict[str, float]] = []
    for count in arguments.partitions:
        words = ["--rows", str(arguments.rows), "--one", str(count)]
        called = [sys.executable, "-m", "benchmarks.scale", *words]
        done = subprocess.run(called, check=True, capture_output=True, text=True)
        found.append(json.loads(done.stdout.splitlines()[-1]))
        print(f"measured: {count:,}", file=sys.stderr, flush=True)
    print_table(arguments.partitions, found, arguments.of)


if __name__ == "__main__":
    main()
