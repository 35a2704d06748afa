"""What many runs in one process leave behind: memory, files and threads of each process, and disks.

    python -m benchmarks.endurance [--runs 500] [--every 50] [--partitions 20]

Trains, infers and maps by turns, on one Dask cluster whose scheduler and two workers are processes
of their own. Prints a line for each after every so many runs, and what grew from the first of these
lines to the last.
"""

import argparse
import json
import logging
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa

from benchmarks.frame.processes import Figures, bytes_below, figures
from partwise.blocks import RemoteCluster
from partwise.flows import map_partitions, run_inference, train_models
from partwise.models.serdes import PickleSerde


def fit(data: Any, context: Any) -> dict[str, float]:
    """Train a tiny model."""
    del context
    return {"mean": float(data.to_numpy("x").mean())}


def predict(data: Any, model: dict[str, float], context: Any) -> dict[str, Any]:
    """Predict with it."""
    del context
    return {"guess": np.full(len(data), model["mean"])}


def double(data: Any, context: Any) -> dict[str, Any]:
    """Return rows."""
    del context
    return {"doubled": 2 * data.to_numpy("x")}


def measure() -> dict[str, Figures]:
    """Measure this process, the scheduler, and the workers with what they have started."""
    own = psutil.Process()
    groups: dict[str, list[psutil.Process]] = {"driver": [own], "scheduler": [], "workers": []}
    for process in own.children():
        line = " ".join(process.cmdline())
        if "dask_scheduler" in line:
            groups["scheduler"].append(process)
        elif "dask_worker" in line:
            groups["workers"] += [process, *process.children(recursive=True)]
    return {name: figures(processes) for name, processes in groups.items()}


def kinds(given: dict[str, Any], rows: pa.Table) -> Iterator[Callable[[str], Any]]:
    """Give the calls by turns, each of which takes a run's ID."""
    trained = ""

    def train(run_id: str) -> Any:
        nonlocal trained
        trained = run_id
        return train_models(rows, "key", fit, run_id=run_id, serde=PickleSerde(), **given)

    def infer(run_id: str) -> Any:
        how = {"serde": PickleSerde(), **given}
        return run_inference(rows, "key", trained, predict, run_id=run_id, **how)

    while True:
        yield train
        yield infer
        yield lambda run_id: map_partitions(rows, "key", double, run_id=run_id, **given)


@contextmanager
def cluster(folder: Path) -> Iterator[str]:
    """Start a scheduler and two workers, and give the address; nobody reads what they print."""
    file = folder / "scheduler.json"
    shared = ["--host", "127.0.0.1", "--dashboard-address", ":0", "--scheduler-file", str(file)]
    worker = ["--nthreads", "1", "--local-directory", str(folder / "scratch")]
    with ExitStack() as started:

        def start(name: str, *words: str) -> None:
            process = subprocess.Popen(
                [sys.executable, "-m", f"distributed.cli.{name}", *shared, *words],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            started.callback(process.wait)
            started.callback(process.terminate)

        start("dask_scheduler", "--port", "0")
        while not (file.exists() and file.stat().st_size):
            time.sleep(0.1)
        for _ in range(2):
            start("dask_worker", *worker)
        yield str(json.loads(file.read_text())["address"])


def main() -> None:
    """Parse the command line, and run."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--runs", type=int, default=500)
    parser.add_argument("--every", type=int, default=50)
    parser.add_argument("--partitions", type=int, default=20)
    arguments = parser.parse_args()
    logging.disable(logging.WARNING)
    keys = np.repeat(np.arange(arguments.partitions), 10)
    rows = pa.table({"key": keys, "x": np.random.default_rng(0).normal(size=len(keys))})
    with (
        tempfile.TemporaryDirectory(prefix="partwise-endurance-") as folder,
        cluster(Path(folder)) as scheduler,
    ):
        address = RemoteCluster(address=scheduler, shares_filesystem=True)
        given = {"store": f"{folder}/store", "cluster": address}
        first: dict[str, Figures] = {}
        print(f"{'runs':>5}  {'process':10} {'memory MB':>10} {'files':>6} {'threads':>8}")
        for number, call in zip(range(1, arguments.runs + 1), kinds(given, rows), strict=False):
            run = call(f"run-{number:05}")
            assert run.status.value == "SUCCESS", run
            if number % arguments.every:
                continue
            now = measure()
            first = first or now
            for name, found in now.items():
                print(
                    f"{number:5}  {name:10} {found.memory_mb:10.1f} {found.files:6} "
                    f"{found.threads:8}",
                    flush=True,
                )
            disks = f"scratch {bytes_below(Path(folder, 'scratch')):.1f} MB"
            print(f"{number:5}  store {bytes_below(Path(folder, 'store')):.1f} MB, {disks}")
        runs = arguments.runs - arguments.every
        for name, found in now.items():
            grown = found.memory_mb - first[name].memory_mb
            print(
                f"{name}: {1000 * grown / max(runs, 1):+.1f} kB a run, "
                f"{found.files - first[name].files:+} files, "
                f"{found.threads - first[name].threads:+} threads"
            )


if __name__ == "__main__":
    main()
