"""The flow's own cost per partition: a no-op function over many small partitions.

    python benchmarks/overhead.py [--partitions 100000] [--rows 100] [--workers 2]
    python benchmarks/overhead.py --partitions 300 --rows 2000 --rounds 12 --isolation all
    python benchmarks/overhead.py --partitions 1_000_000 --rows 10 --json

Prints what `map_partitions` takes beside a pandas groupby loop and joblib over pandas groups, all
in one run, with the memory of driver and scheduler (one process here), and what was written.
With `--rounds` a LightGBM model of so many rounds is trained in place of the no-op, and with
`--isolation all` each isolation has its turn, three times: then only the medians are printed.
With --json it is our own figures alone, without loop and joblib.
"""

import argparse
import json
import logging
import resource
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from partwise.blocks import LocalCluster
from partwise.engine.options import ExecutionOptions, Isolation
from partwise.flows import map_partitions


def make_source(path: Path, partitions: int, rows: int) -> None:
    """Write a Parquet file of shuffled rows."""
    generator = np.random.default_rng(0)
    keys = generator.permutation(np.repeat(np.arange(partitions), rows))
    columns = {f"x{i}": generator.random(len(keys)) for i in range(4)}
    pq.write_table(pa.table({"key": keys, **columns}), path)


def do_nothing(data: Any, context: Any) -> None:
    """Stand for a function that costs nothing."""


def train(rounds: int) -> Callable[[Any, Any], None]:
    """Return a function that trains a LightGBM model on one thread."""

    def function(data: Any, context: Any) -> None:  # noqa: ARG001 (what every function takes)
        import lightgbm

        table = data.to_arrow()
        rows = np.column_stack([table[f"x{i}"].to_numpy() for i in range(4)])
        settings = {"num_threads": 1, "verbose": -1, "deterministic": True, "force_row_wise": True}
        labels = rows @ np.arange(4.0)
        lightgbm.train(settings, lightgbm.Dataset(rows, labels, params=settings), rounds)

    return function


def compare_isolations(
    arguments: argparse.Namespace, function: Callable[[Any, Any], None], folder: Path
) -> None:
    """Print the median of three runs with each isolation, by turns."""
    spent: dict[Isolation, list[float]] = {"shared": [], "partition": []}
    for turn in range(3):
        for isolation, of_isolation in spent.items():
            run = map_partitions(
                str(folder / "rows.parquet"),
                "key",
                function,
                store=folder / f"{isolation}-{turn}",
                cluster=LocalCluster(workers=arguments.workers),
                execution=ExecutionOptions(n_shards=arguments.shards, isolation=isolation),
            )
            seconds = run.partitions["seconds"].to_numpy()
            stages = run.summary.stages
            total = (run.summary.finished_at - run.summary.started_at).total_seconds()
            after = total - stages["cluster"] - stages["load"]
            of_isolation.append(after / arguments.partitions * arguments.workers * 1e3)
            print(
                f"{isolation:<10} {of_isolation[-1]:8.3f} ms of a worker for each partition, "
                f"{np.median(seconds) * 1e3:.3f} ms of them in the function"
            )
    for isolation, of_isolation in spent.items():
        print(f"{isolation:<10} {np.median(of_isolation):8.3f} ms in the median")


def timed(function: Callable[[], Any]) -> tuple[float, Any]:
    """Return the seconds that a call took, and its result."""
    began = time.perf_counter()
    result = function()
    return time.perf_counter() - began, result


@contextmanager
def highest(look: Callable[[], int], every_s: float) -> Iterator[list[int]]:
    """Give a list whose last element is the most that `look` returned so far, asked so often."""
    peaks, done = [0], threading.Event()

    def sample() -> None:
        while not done.wait(every_s):
            peaks.append(max(peaks[-1], look()))

    thread = threading.Thread(target=sample, daemon=True)
    thread.start()
    try:
        yield peaks
    finally:
        done.set()
        thread.join()


def peak_memory() -> AbstractContextManager[list[int]]:
    """Give a list whose last element is this process's highest resident memory, in bytes."""

    def look() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()

    return highest(look, 0.05)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--partitions", type=int, default=100_000)
    parser.add_argument("--rows", type=int, default=100)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--shards", type=int, default=None)
    parser.add_argument("--rounds", type=int, default=0)
    parser.add_argument("--isolation", choices=["shared", "partition", "all"], default="shared")
    parser.add_argument("--json", action="store_true", help="our own figures, without the others")
    arguments = parser.parse_args()
    function = train(arguments.rounds) if arguments.rounds else do_nothing
    logging.disable(logging.INFO)

    def show(name: str, seconds: float) -> None:
        each = seconds / arguments.partitions * 1e6
        print(f"{name:<20} {seconds:6.1f} s = {each:.0f} us a partition")

    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "rows.parquet")
        make_source(source, arguments.partitions, arguments.rows)
        if arguments.isolation == "all":
            compare_isolations(arguments, function, Path(folder))
            return
        with peak_memory() as peaks:
            total, run = timed(
                lambda: map_partitions(
                    str(source),
                    "key",
                    function,
                    store=Path(folder, "store"),
                    cluster=LocalCluster(workers=arguments.workers),
                    execution=ExecutionOptions(
                        n_shards=arguments.shards, isolation=arguments.isolation
                    ),
                )
            )
        stages = run.summary.stages
        seconds = (run.summary.finished_at - run.summary.started_at).total_seconds()
        files = [path for path in Path(folder, "store").rglob("*") if path.is_file()]
        written = sum(path.stat().st_size for path in files) / 1e6
        if arguments.json:
            after = seconds - stages["cluster"] - stages["load"]
            figures = {"call s": total, "after sharding s": after}
            (document,) = (path for path in files if path.name == "run.json")
            figures["shards"] = json.loads(document.read_text())["n_shards"]
            print(json.dumps(figures | {"driver MiB": peaks[-1] >> 20, "objects": len(files)}))
            return
        print(f"{arguments.partitions:,} partitions of {arguments.rows} rows: {dict(run.counts)}")
        print(f"partwise, in all     {total:6.1f} s: {stages}")
        show("  after sharding", seconds - stages["cluster"] - stages["load"])
        print(f"  driver, scheduler  {peaks[-1] >> 20:6d} MiB resident at most")
        print(f"  written            {len(files):6d} objects, {written:.1f} MB")

        frame = pd.read_parquet(source)
        loop, _ = timed(lambda: [do_nothing(part, None) for _, part in frame.groupby("key")])
        show("pandas groupby loop", loop)
        parallel = joblib.Parallel(n_jobs=arguments.workers)
        spent, _ = timed(
            lambda: parallel(
                joblib.delayed(do_nothing)(part, None) for _, part in frame.groupby("key")
            )
        )
        show("joblib", spent)


if __name__ == "__main__":
    main()
