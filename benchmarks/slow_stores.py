"""What a run asks of its bucket, and how long it takes where that is far, thin or overloaded.

    python -m benchmarks.slow_stores [--models 10000] [--only "30 ms"]

The bucket is moto's on this machine. A proxy before it counts requests and bytes, answers late,
lets little through, or answers every request with 503 for two seconds of each ten. Each of these
buckets gets a training of models of a few bytes, a resume of it with nothing to do, and an
inference.
"""

import argparse
import logging
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.rows.buckets import BUCKET, WORKERS, late_bucket, predict, train
from partwise import LocalCluster, PickleSerde, run_inference, train_models


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A bucket, and how it is slow."""

    name: str
    late_s: float = 0.0
    bytes_per_s: float = 0.0
    burst_s: tuple[float, float] = (0.0, 0.0)


KINDS = (
    Kind(name="near"),
    Kind(name="30 ms", late_s=0.03),
    Kind(name="300 ms", late_s=0.3),
    Kind(name="100 kB/s", bytes_per_s=1e5),
    Kind(name="503 for 2 of 10 s", burst_s=(10.0, 2.0)),
)


def main() -> None:
    """Parse the command line, and run."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--models", type=int, default=10_000)
    parser.add_argument("--only", choices=[kind.name for kind in KINDS])
    arguments = parser.parse_args()
    if arguments.only is None:
        print(f"| bucket | call, {arguments.models:,} models | requests | refused | MB | seconds |")
        print("|---|---|---|---|---|---|", flush=True)
        for kind in KINDS:
            # A process keeps its clients, and so the address of the bucket that it met first.
            words = ["--models", str(arguments.models), "--only", kind.name]
            command = [sys.executable, "-m", "benchmarks.slow_stores", *words]
            subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
        return
    logging.disable(logging.WARNING)
    with tempfile.TemporaryDirectory() as folder:
        rows = str(Path(folder, "rows.parquet"))
        pq.write_table(pa.table({"key": range(arguments.models)}), rows)
        measure(next(kind for kind in KINDS if kind.name == arguments.only), rows)


def measure(kind: Kind, rows: str) -> None:
    """Print the lines of a bucket."""
    with late_bucket(kind.late_s) as proxy:
        proxy.bytes_per_s, proxy.burst_s = kind.bytes_per_s, kind.burst_s
        given: dict[str, Any] = {"store": f"s3://{BUCKET}", "serde": PickleSerde()}
        calls: dict[str, Any] = {
            "train": lambda cluster: train_models(
                rows, "key", train, run_id="trained", cluster=cluster, **given
            ),
            "resume, all done": lambda cluster: train_models(
                *(rows, "key", train),
                run_id="trained",
                on_existing_artifacts="resume",
                cluster=cluster,
                **given,
            ),
            "infer": lambda cluster: run_inference(
                rows, "key", "trained", predict, cluster=cluster, **given
            ),
        }
        for name, call in calls.items():
            proxy.seen.clear()
            before, refused = proxy.carried, proxy.refused
            began = time.perf_counter()
            run = call(LocalCluster(workers=WORKERS))
            seconds = time.perf_counter() - began
            assert run.status.value == "SUCCESS", run
            print(
                f"| {kind.name} | {name} | {len(proxy.seen)} | {proxy.refused - refused} | "
                f"{(proxy.carried - before) / 1e6:.1f} | {seconds:.1f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
