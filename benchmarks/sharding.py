"""Bring a Parquet table into the order of its keys on disk: partwise beside pandas and polars.

    python benchmarks/sharding.py --rows 10_000_000 --keys 10_000

Every contender runs in a process of its own, which samples its anonymous memory: pages of mapped
files are left out, as the system takes those back when others need them. The source is written by
this script, seeded, and deleted at the end.
"""

import argparse
import json
import multiprocessing
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

KEY = "store"
CHUNK_ROWS = 1_000_000
CONTENDERS = ("partwise", "pandas", "polars")


def anonymous_mb() -> float:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon"):
            return int(line.split()[1]) / 1024
    raise RuntimeError("/proc/self/status has no RssAnon: this needs Linux.")


@contextmanager
def peak_memory(into: dict[str, float]) -> Iterator[None]:
    """Sample this process's anonymous memory every 10 ms; its peak lands in `into`."""
    done = threading.Event()
    into["peak_mb"] = anonymous_mb()

    def sample() -> None:
        while not done.wait(0.01):
            into["peak_mb"] = max(into["peak_mb"], anonymous_mb())

    thread = threading.Thread(target=sample, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def write_source(path: Path, rows: int, keys: int, row_group_rows: int) -> None:
    """A text key, six doubles, three integers: 10 columns."""
    random = np.random.default_rng(1)
    names = pa.array([f"store{key:08d}" for key in range(keys)])
    writer = None
    chunk_rows = max(CHUNK_ROWS, row_group_rows)
    for start in range(0, rows, chunk_rows):
        count = min(chunk_rows, rows - start)
        columns = {KEY: names.take(pa.array(random.integers(0, keys, count)))}
        columns |= {f"x{i}": pa.array(random.normal(size=count)) for i in range(6)}
        columns |= {
            f"n{i}": pa.array(random.integers(0, 1000, count), pa.int32()) for i in range(3)
        }
        table = pa.table(columns)
        writer = writer or pq.ParquetWriter(path, table.schema)
        writer.write_table(table, row_group_size=row_group_rows)
    if writer is not None:
        writer.close()


def sort_one(work: tuple[object, object, str]) -> float:
    """Sort one shard in a process of the pool; its peak of anonymous memory in MB."""
    from partwise.tasks.data.sorted_shards import sort_shard

    peak: dict[str, float] = {}
    with peak_memory(peak):
        sort_shard(*work)  # type: ignore[arg-type]
    return peak["peak_mb"]


def run_partwise(source: Path, out: Path, shards: int, processes: int) -> dict[str, float]:
    from partwise.tasks.data.keys import key_columns
    from partwise.tasks.data.shards import spill_shards
    from partwise.tasks.data.sources import open_source

    figures: dict[str, float] = {}
    began = time.perf_counter()
    with peak_memory(figures):
        rows = open_source(source)
        columns = key_columns(rows.schema, [KEY])
        spill = spill_shards(rows, columns, shards, out / "spill")
    figures["spill_s"] = time.perf_counter() - began
    figures["partitions"] = spill.partitions
    # The time to start processes is left out: those of a cluster run already.
    with multiprocessing.get_context("forkserver").Pool(processes) as pool:
        pool.map(abs, range(processes))
        work = [(shard, columns, str(out / "sorted")) for shard in spill.shards]
        began = time.perf_counter()
        peaks = pool.map(sort_one, work, chunksize=1)
    figures["sort_s"] = time.perf_counter() - began
    figures["sort_peak_mb"] = max(peaks)
    figures["seconds"] = figures["spill_s"] + figures["sort_s"]
    return figures


def run_pandas(source: Path, out: Path) -> dict[str, float]:
    import pandas as pd

    figures: dict[str, float] = {}
    began = time.perf_counter()
    with peak_memory(figures):
        frame = pd.read_parquet(source).sort_values(KEY, kind="stable", ignore_index=True)
        frame.to_feather(out / "sorted.arrow", compression="uncompressed")
    figures["seconds"] = time.perf_counter() - began
    return figures


def run_polars(source: Path, out: Path) -> dict[str, float]:
    import polars as pl

    figures: dict[str, float] = {}
    began = time.perf_counter()
    with peak_memory(figures):
        frame = pl.read_parquet(source).sort(KEY, maintain_order=True)
        frame.write_ipc(out / "sorted.arrow")
    figures["seconds"] = time.perf_counter() - began
    return figures


def run_contender(name: str, source: Path, shards: int, processes: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory(dir=source.parent) as folder:
        if name == "partwise":
            return run_partwise(source, Path(folder), shards, processes)
        return {"pandas": run_pandas, "polars": run_polars}[name](source, Path(folder))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--keys", type=int, default=10_000)
    parser.add_argument("--shards", type=int, default=200)
    parser.add_argument("--row-group-rows", type=int, default=1_000_000)
    parser.add_argument("--processes", type=int, default=2, help="processes that sort shards")
    parser.add_argument("--rounds", type=int, default=1, help="rounds over all contenders")
    parser.add_argument("--contenders", nargs="+", choices=CONTENDERS, default=CONTENDERS)
    parser.add_argument("--directory", type=Path, help="where source and results are written")
    parser.add_argument("--source", type=Path, help="internal: the source a child process reads")
    return parser.parse_args()


def main() -> None:
    args = arguments()
    if args.source is not None:
        figures = run_contender(args.contenders[0], args.source, args.shards, args.processes)
        print(json.dumps(figures))
        return
    with tempfile.TemporaryDirectory(dir=args.directory) as folder:
        source = Path(folder) / "source.parquet"
        write_source(source, args.rows, args.keys, args.row_group_rows)
        size_mb = source.stat().st_size / 1e6
        print(f"{args.rows:,} rows x 10 columns, {args.keys:,} keys, {size_mb:,.0f} MB of Parquet")
        print(f"{'':10} {'seconds':>8} {'rows/s':>12} {'peak anonymous MB':>18}")
        for _ in range(args.rounds):
            for name in args.contenders:
                command = [sys.executable, __file__, "--source", str(source)]
                command += ["--contenders", name, "--shards", str(args.shards)]
                command += ["--processes", str(args.processes)]
                result = subprocess.run(command, check=False, capture_output=True, text=True)
                if result.returncode:
                    reason = (result.stderr.strip().splitlines() or ["killed"])[-1]
                    print(f"{name:10} failed with {result.returncode}: {reason}")
                    continue
                figures = json.loads(result.stdout)
                line = f"{figures['seconds']:8.1f} {args.rows / figures['seconds']:12,.0f}"
                print(f"{name:10} {line} {figures['peak_mb']:18,.0f}", end="")
                if name == "partwise":
                    spill, sort = figures["spill_s"], figures["sort_s"]
                    print(f"   spill {spill:.1f} s in 1 process, sort {sort:.1f} s in ", end="")
                    print(f"{args.processes}, {figures['sort_peak_mb']:,.0f} MB each", end="")
                print(flush=True)


if __name__ == "__main__":
    main()
