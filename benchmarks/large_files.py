"""What large files in a bucket cost, where each request is 30 ms late and gets 60 MB/s.

    python -m benchmarks.large_files [--rows 3_200_000]

A function that does nothing is called for each of 500 keys of 12 columns of doubles, by two
workers. The bucket is benchmarks/paced_bucket.py on this machine: who asks once at a time gets no
more than those 60 MB/s, as of real buckets (their makers name 85 to 90).
"""

import argparse
import json
import logging
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.feather as feather
import pyarrow.orc as paorc
import pyarrow.parquet as pq

from partwise import LocalCluster, map_partitions

LATE_S, BYTES_PER_S = 0.03, 60e6
KEYS, FILES = 500, 8


def main() -> None:
    """Parse the command line, and run."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rows", type=int, default=3_200_000)
    rows = parser.parse_args().rows
    logging.disable(logging.INFO)
    with tempfile.TemporaryDirectory() as scratch, paced_bucket(Path(scratch) / "b") as bucket:
        folder, stores = Path(scratch) / "b", Path(scratch) / "stores"
        layouts = write(folder, rows)
        # Imports, and the cluster.
        measure(str(folder / layouts[-1]), stores, ["key"])
        print("| files | MB | disk: s | bucket: s | load of it: s | requests | MB carried |")
        print("|---|---|---|---|---|---|---|")
        for name in layouts:
            for columns in (None, ["key", "x3"]) if name.startswith("parquet") else (None,):
                size = sum(path.stat().st_size for path in (folder / name).iterdir()) / 1e6
                on_disk, _ = measure(str(folder / name), stores, columns)
                # Else the shards of the call before would be used again.
                for path in (folder / name).iterdir():
                    path.touch()
                counted(bucket)
                far, load = measure(f"s3://b/{name}", stores, columns)
                asked = counted(bucket)
                shown = name if columns is None else f"{name}, 2 of 13 columns"
                cells = [shown, f"{size:.0f}", f"{on_disk:.2f}", f"{far:.2f}", f"{load:.2f}"]
                cells += [str(asked["requests"]), f"{asked['bytes'] / 1e6:.0f}"]
                print(f"| {' | '.join(cells)} |", flush=True)


def write(folder: Path, rows: int) -> list[str]:
    """Write the files, and return the names of their folders."""
    random = np.random.default_rng(time.time_ns())
    columns: dict[str, Any] = {"key": random.integers(0, KEYS, rows)}
    table = pa.table(columns | {f"x{number}": random.random(rows) for number in range(12)})
    some = table.slice(0, rows // 6)
    places = {name: folder / name for name in ("parquet", "parquet-one", "csv", "jsonl", "orc")}
    places["ipc"] = folder / "ipc"
    for place in places.values():
        place.mkdir()
    step = -(-rows // FILES)
    for number in range(FILES):
        part = table.slice(number * step, step)
        path = places["parquet"] / f"{number}.parquet"
        pq.write_table(part, path, row_group_size=100_000, use_dictionary=["key"])
    # As pandas writes it.
    pq.write_table(table, places["parquet-one"] / "a.parquet", use_dictionary=["key"])
    pacsv.write_csv(some, places["csv"] / "a.csv")
    some.slice(0, rows // 12).to_pandas().to_json(
        places["jsonl"] / "a.jsonl", orient="records", lines=True
    )
    paorc.write_table(some, places["orc"] / "a.orc", stripe_size=2**23)
    feather.write_feather(
        some, places["ipc"] / "a.arrow", compression="uncompressed", chunksize=100_000
    )
    return list(places)


@contextmanager
def paced_bucket(folder: Path) -> Iterator[str]:
    """Run the bucket, which the environment names from here on; gives its address."""
    folder.mkdir()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = [str(port), str(folder), str(LATE_S), str(BYTES_PER_S)]
    server = subprocess.Popen([sys.executable, "-m", "benchmarks.paced_bucket", *words])
    url = f"http://127.0.0.1:{port}"
    os.environ |= {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x"}
    os.environ |= {"AWS_DEFAULT_REGION": "us-east-1", "AWS_ENDPOINT_URL_S3": url}
    try:
        for _ in range(100):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.1)
        yield url
    finally:
        server.kill()
        server.wait()


def counted(url: str) -> dict[str, int]:
    """Return what the bucket counted since the last time."""
    with urllib.request.urlopen(f"{url}/_counted") as answer:
        found: dict[str, int] = json.load(answer)
    return found


def measure(data: str, stores: Path, columns: Any = None) -> tuple[float, float]:
    """Return the seconds of a call, and those of loading in it; its store is on the disk."""
    began = time.perf_counter()
    store, cluster = str(stores / str(time.time_ns())), LocalCluster(workers=2)
    run = map_partitions(data, "key", _nothing, columns=columns, store=store, cluster=cluster)
    seconds = time.perf_counter() - began
    assert run.summary is not None
    return seconds, run.summary.stages["load"]


def _nothing(data: Any, context: Any) -> None:
    """Do nothing."""


if __name__ == "__main__":
    main()
