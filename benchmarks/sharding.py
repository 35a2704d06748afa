r"""Group a Parquet table by key on disk: partwise beside polars, DuckDB and Dask's P2P shuffle.

    python benchmarks/sharding.py --rows 10_000_000 --keys 10_000 100_000
    python benchmarks/sharding.py --rows 260_000_000 --keys 100_000 --contenders partwise \
        --rounds 1 --drop  # 20 GB

Every contender runs in a process of its own with two threads, or two Dask workers; its result is
a file, or files, in which the rows of a key lie together in their order. What it takes to import
libraries and to start workers is left out of the seconds. Memory is the largest sum over all
processes of a contender: resident (with pages of mapped files), and anonymous (which the system
cannot take back). The source is written by this script, seeded, and deleted at the end.
"""

import argparse
import contextlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq

KEY = "store"
CHUNK_ROWS = 1_000_000
THREADS = 2
SAMPLE_S = 0.02
DROP = "BENCHMARK_DROP_SORTED"
"""Set: partwise's sorted files go at once, as they do in a run, so that a small disk will do."""


def write_source(path: Path, rows: int, keys: int) -> int:
    """A text key, six doubles, three integers: 10 columns; returns the bytes in Arrow memory."""
    random = np.random.default_rng(1)
    names = pa.array([f"store{key:08d}" for key in range(keys)])
    values = {f"x{i}": pa.array(random.normal(size=CHUNK_ROWS)) for i in range(6)}
    values |= {
        f"n{i}": pa.array(random.integers(0, 1000, CHUNK_ROWS), pa.int32()) for i in range(3)
    }
    size = 0
    writer = None
    for start in range(0, rows, CHUNK_ROWS):
        count = min(CHUNK_ROWS, rows - start)
        key = names.take(pa.array(random.integers(0, keys, count)))
        table = pa.table({KEY: key} | {name: array[:count] for name, array in values.items()})
        writer = writer or pq.ParquetWriter(path, table.schema)
        writer.write_table(table)
        size += table.nbytes
    if writer is not None:
        writer.close()
    return size


def run_partwise(source: Path, out: Path, timed: Callable[..., object]) -> None:
    from partwise.blocks import LocalCluster
    from partwise.shuffle.load import load_shards
    from partwise.shuffle.shard_cache import open_cache
    from partwise.shuffle.shard_count import check_n_shards, default_n_shards
    from partwise.shuffle.shared_folder import SharedFolder
    from partwise.shuffle.write import Division
    from partwise.sources.opening import open_source
    from partwise.store.store import Store
    from partwise.tables.keys.partition_keys import key_columns

    (out / "shared").mkdir()
    shared_folder = SharedFolder(
        out / "shared", Store.parse(out / "store"), "run", "token", shared=True
    )
    with LocalCluster(workers=THREADS).client() as client:
        client.run(warm_up)
        with timed():
            rows = open_source(source)
            about = rows.description()
            columns = key_columns(rows.schema, [KEY])
            division = Division(
                selection=rows.selection,
                key_columns=columns,
                n_shards=check_n_shards(default_n_shards(about.rows, about.size_bytes, THREADS)),
                null_keys="error",
            )
            with open_cache(about, division, shared_folder) as cache:
                sharded = load_shards(rows, division, client, cache, shared_folder, print)
                futures = client.map(
                    sort_one, sharded.shards, columns=columns, out=str(out), pure=False
                )
                assert sum(client.gather(futures)) == sharded.rows


def warm_up() -> None:
    import partwise.shuffle.load  # noqa: F401


def sort_one(shard: object, columns: object, out: str) -> int:
    from partwise.shuffle.sorted_shards import sort_shard

    done = sort_shard(shard, columns, out)  # type: ignore[arg-type]
    if os.environ.get(DROP):
        os.unlink(done.path)
    return int(done.offsets[-1])


def run_polars(source: Path, out: Path, timed: Callable[..., object]) -> None:
    import polars as pl

    with timed():
        frame = pl.scan_parquet(source).sort(KEY, maintain_order=True)
        frame.sink_ipc(out / "sorted.arrow", engine="streaming")


def run_duckdb(source: Path, out: Path, timed: Callable[..., object]) -> None:
    import duckdb

    with timed():
        db = duckdb.connect(config={"threads": THREADS, "temp_directory": str(out / "temp")})
        # The number of the row keeps the order within a key, which ORDER BY alone does not.
        db.execute(
            f"COPY (SELECT * EXCLUDE (file_row_number) FROM read_parquet('{source}', "
            f"file_row_number=true) ORDER BY {KEY}, file_row_number) "
            f"TO '{out}/sorted.parquet' (COMPRESSION 'uncompressed')"
        )


def run_dask(source: Path, out: Path, timed: Callable[..., object]) -> None:
    import dask
    import dask.dataframe as dd
    from distributed import Client, LocalCluster

    dask.config.set({"dataframe.shuffle.method": "p2p", "temporary-directory": str(out)})
    with (
        LocalCluster(n_workers=THREADS, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster),
        timed(),
    ):
        frame = dd.read_parquet(source, split_row_groups=True)
        frame.shuffle(KEY).map_partitions(sort_frame).to_parquet(out / "sorted")


def sort_frame(frame: object) -> object:
    return frame.sort_values(KEY, kind="stable")  # type: ignore[attr-defined]


CONTENDERS = {
    "partwise": run_partwise,
    "polars": run_polars,
    "duckdb": run_duckdb,
    "dask": run_dask,
}


def run_contender(name: str, source: Path, out: Path) -> None:
    """Run one contender in this process, and print its seconds."""
    seconds: list[float] = []

    @contextmanager
    def timed() -> Iterator[None]:
        began = time.perf_counter()
        yield
        seconds.append(time.perf_counter() - began)

    with contextlib.redirect_stdout(sys.stderr):
        CONTENDERS[name](source, out, timed)
    print(json.dumps(seconds))


class PeakMemory:
    """Samples the memory of a process and all that it started."""

    def __init__(self, pid: int) -> None:
        self.resident_mb = self.anonymous_mb = 0.0
        self._root = psutil.Process(pid)
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)
        self._thread.start()

    def _sample(self) -> None:
        while not self._done.wait(SAMPLE_S):
            with contextlib.suppress(psutil.Error):
                family = [self._root, *self._root.children(recursive=True)]
                pairs = [memory_mb(process.pid) for process in family]
                self.resident_mb = max(self.resident_mb, sum(pair[0] for pair in pairs))
                self.anonymous_mb = max(self.anonymous_mb, sum(pair[1] for pair in pairs))

    def stop(self) -> None:
        """End the sampling."""
        self._done.set()
        self._thread.join()


def memory_mb(pid: int) -> tuple[float, float]:
    """Resident and anonymous memory of a process."""
    try:
        pages = Path(f"/proc/{pid}/statm").read_text().split()
    except OSError:
        return 0.0, 0.0
    resident, shared = int(pages[1]), int(pages[2])
    page_mb = os.sysconf("SC_PAGE_SIZE") / 1e6
    return resident * page_mb, (resident - shared) * page_mb


def measure(name: str, source: Path, folder: Path) -> tuple[float, float, float] | str:
    """Seconds, resident and anonymous MB of a contender; or why it failed."""
    out = folder / name
    out.mkdir()
    environment = os.environ | {
        "POLARS_MAX_THREADS": str(THREADS),
        "OMP_NUM_THREADS": "1",
        "PARTWISE_SCRATCH": str(out / "scratch"),
        "POLARS_TEMP_DIR": str(out),
    }
    command = [sys.executable, __file__, "--source", str(source), "--contenders", name]
    with subprocess.Popen(
        [*command, "--directory", str(out)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    ) as process:
        peak = PeakMemory(process.pid)
        said, errors = process.communicate()
        peak.stop()
    shutil.rmtree(out)
    if process.returncode:
        return (errors.strip().splitlines() or ["killed"])[-1]
    return json.loads(said)[0], peak.resident_mb, peak.anonymous_mb


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--keys", type=int, nargs="+", default=[10_000, 100_000])
    parser.add_argument("--rounds", type=int, default=3, help="rounds over all contenders")
    parser.add_argument("--contenders", nargs="+", choices=CONTENDERS, default=list(CONTENDERS))
    parser.add_argument("--drop", action="store_true", help="delete partwise's files once sorted")
    parser.add_argument("--directory", type=Path, help="where source and results are written")
    parser.add_argument("--source", type=Path, help="internal: the source a child process reads")
    return parser.parse_args()


def main() -> None:
    args = arguments()
    if args.source is not None:
        run_contender(args.contenders[0], args.source, args.directory)
        return
    if args.drop:
        os.environ[DROP] = "1"
    for keys in args.keys:
        with tempfile.TemporaryDirectory(dir=args.directory) as name:
            folder = Path(name)
            source = folder / "source.parquet"
            size = write_source(source, args.rows, keys)
            print(f"{args.rows:,} rows x 10 columns ({size / 1e9:.1f} GB), {keys:,} keys")
            print(f"{'medians':10} {'seconds':>8} {'resident MB':>12} {'anonymous MB':>13}")
            found: dict[str, list[tuple[float, float, float]]] = {}
            for _ in range(args.rounds):
                for contender in args.contenders:
                    figures = measure(contender, source, folder)
                    if isinstance(figures, str):
                        print(f"{contender:10} failed: {figures}")
                    else:
                        found.setdefault(contender, []).append(figures)
            for contender, rounds in found.items():
                medians = [statistics.median(values) for values in zip(*rounds, strict=True)]
                seconds, resident, anonymous = medians
                print(f"{contender:10} {seconds:8.1f} {resident:12,.0f} {anonymous:13,.0f}")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
