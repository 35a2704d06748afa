"""What many small files cost: on a disk, and in a bucket 30 ms away.

    python -m benchmarks.small_files [--files 60]

A function that does nothing is called for each of 50 keys. The bucket is moto's on this machine,
behind a proxy that counts requests and answers late; each format has files of its own in it. One
call before warms the cluster and the imports.
"""

import argparse
import logging
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from benchmarks.rows.buckets import BUCKET, late_bucket
from partwise import LocalCluster, map_partitions

ROWS = 500
KEYS = 50


def main() -> None:
    """Parse the command line, and run."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--files", type=int, default=60)
    files = parser.parse_args().files
    logging.disable(logging.INFO)
    print(f"| {files} files of {ROWS} rows | disk: seconds | bucket: seconds | requests a file |")
    print("|---|---|---|---|")
    with tempfile.TemporaryDirectory() as scratch, late_bucket() as proxy:
        folder, bucket = Path(scratch), fsspec.filesystem("s3")  # type: ignore[no-untyped-call]
        for format_, write in WRITERS.items():
            for number in range(files):
                path = folder / format_ / f"{number:05d}.{format_}"
                path.parent.mkdir(exist_ok=True)
                write(rows(number), path)
                bucket.put_file(str(path), f"{BUCKET}/{format_}/{path.name}")
        measure(str(folder / "parquet"), folder)
        for format_ in WRITERS:
            for name, filter_ in (("", ()), (", of which a filter takes half", FILTER)):
                on_disk = measure(str(folder / format_), folder, filter_)
                proxy.seen.clear()
                far = measure(f"s3://{BUCKET}/{format_}", folder, filter_)
                asked = len(proxy.seen) / files
                print(f"| {format_}{name} | {on_disk:.2f} | {far:.2f} | {asked:.1f} |", flush=True)


FILTER = (("a", "<", 0.5),)


def rows(number: int) -> pa.Table:
    """Return the rows of a file."""
    random = np.random.default_rng([number, time.time_ns()])
    keys = random.integers(0, KEYS, ROWS)
    return pa.table({"key": keys, "a": random.random(ROWS), "b": random.random(ROWS)})


def _write_lines(table: pa.Table, path: Path) -> None:
    table.to_pandas().to_json(path, orient="records", lines=True)


WRITERS: dict[str, Callable[[pa.Table, Path], Any]] = {
    "parquet": pq.write_table,
    "csv": pacsv.write_csv,
    "jsonl": _write_lines,
}


def measure(data: str, folder: Path, filter_: Any = ()) -> float:
    """Return the seconds of a call; its store is on the disk."""
    began = time.perf_counter()
    store = str(folder / f"store-{time.time_ns()}")
    cluster = LocalCluster(workers=2)
    map_partitions(data, "key", _nothing, filter=filter_, store=store, cluster=cluster)
    return time.perf_counter() - began


def _nothing(data: Any, context: Any) -> None:
    """Do nothing."""


if __name__ == "__main__":
    main()
