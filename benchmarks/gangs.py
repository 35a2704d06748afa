"""One big model: gangs, beside one process on the same path and the libraries' Dask front ends.

    python benchmarks/gangs.py [--rows 6_000_000] [--rounds 10] [--turns 3]
    python benchmarks/gangs.py --trips 40_000 [--turns 3]

The first trains on rows x 20 float32 with 500,000 rows of validation. The second is shaped like use
case 8 of TPCx-AI, the classification of shopping trips: orders, line items and products are joined
to 7 weekday flags and 68 sums by department, mostly zeros, which tell 38 types of trips.

Each contestant is a process of its own, and they run by turns. Printed are medians: seconds from
the files to the model on a cluster (and, for gangs, a Prefect server) that is there already, and
the highest anonymous memory of all processes of a contestant and of the largest (for a gang the
largest rank, else the largest Dask worker).
"""

import argparse
import hashlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq

COLUMNS = 20
VALIDATION_ROWS = 500_000
ROW_GROUP = 125_000
FRAME_GROUPS = 2
"""Row groups in a partition of a Dask DataFrame: each worker has some of the validation."""
WORKERS = 2
DEPARTMENTS = 68
TRIP_TYPES = 38
TRIP_ROUNDS = 100
SAMPLE_S = 0.05


def write_rows(path: Path, rows: int, seed: int) -> None:
    """Write rows of 20 float32 features and a label of 0 or 1 that follows from some of them."""
    generator = np.random.default_rng(seed)
    names = [f"x{i}" for i in range(COLUMNS)]
    schema = pa.schema([*((name, pa.float32()) for name in names), ("label", pa.float32())])
    with pq.ParquetWriter(path, schema) as writer:
        for start in range(0, rows, ROW_GROUP):
            count = min(ROW_GROUP, rows - start)
            x = generator.standard_normal((count, COLUMNS), dtype=np.float32)
            score = x[:, 0] + x[:, 1] * x[:, 2] + np.sin(3 * x[:, 3]) + 0.5 * np.abs(x[:, 4])
            chance = 1 / (1 + np.exp(-score))
            label = (generator.random(count) < chance).astype(np.float32)
            writer.write_table(pa.table([*x.T, label], schema=schema))


def write_both(folder: Path, rows: int) -> None:
    """Write the rows to train on, and those of validation."""
    write_rows(folder / "train.parquet", rows, 1)
    write_rows(folder / "validation.parquet", min(VALIDATION_ROWS, rows), 2)


def write_trips(folder: Path, orders: int) -> None:
    """Write the tables orders, lineitem and product, from a seed."""
    generator = np.random.default_rng(8)
    n_products = 5_000
    department = generator.integers(0, DEPARTMENTS, n_products)
    products = {"p_product_id": np.arange(n_products), "p_department": department}
    pq.write_table(pa.table(products), folder / "product.parquet")
    kind = generator.integers(0, TRIP_TYPES, orders)
    weekday = (kind + generator.choice([0, 0, 0, 1, 3], orders)) % 7
    table = {"o_order_id": np.arange(orders), "o_weekday": weekday, "o_trip_type": kind}
    pq.write_table(pa.table(table), folder / "order.parquet")
    # A type of trip goes for a few departments mostly.
    liking = generator.dirichlet(np.full(DEPARTMENTS, 0.15), TRIP_TYPES)
    items = generator.poisson(4 + kind % 9) + 1
    order = np.repeat(np.arange(orders), items)
    below = generator.random((len(order), 1)) > liking.cumsum(axis=1)[kind[order]]
    wanted = np.minimum(below.sum(axis=1), DEPARTMENTS - 1)
    by_department = np.argsort(department, kind="stable")
    first = np.searchsorted(department[by_department], np.arange(DEPARTMENTS + 1))
    size = np.maximum(first[wanted + 1] - first[wanted], 1)
    product = by_department[first[wanted] + generator.integers(0, 1 << 30, len(order)) % size]
    quantity = generator.integers(-1, 6, len(order))
    lines = {"li_order_id": order, "li_product_id": product, "quantity": quantity}
    pq.write_table(pa.table(lines), folder / "lineitem.parquet")


def join_trips(folder: Path, path: Path) -> None:
    """Join the three tables to one row for each order: flags, sums by department, the type."""
    flags = ", ".join(f"(o_weekday = {day})::FLOAT AS day{day}" for day in range(7))
    sums = ", ".join(
        f"coalesce(sum(quantity) FILTER (p_department = {number}), 0)::FLOAT AS d{number}"
        for number in range(DEPARTMENTS)
    )
    connection = duckdb.connect()
    connection.execute(f"SET threads = {WORKERS}")
    connection.execute(
        f"""COPY (
            SELECT o_trip_type::FLOAT AS label, {flags}, {sums}
            FROM '{folder}/order.parquet'
            JOIN '{folder}/lineitem.parquet' ON o_order_id = li_order_id
            JOIN '{folder}/product.parquet' ON li_product_id = p_product_id
            GROUP BY o_order_id, o_weekday, o_trip_type ORDER BY o_order_id
        ) TO '{path}' (FORMAT parquet, ROW_GROUP_SIZE 4096)"""
    )


class Work:
    """What every contestant trains: the files and the settings of both libraries."""

    def __init__(self, folder: Path, rounds: int, *, trips: bool) -> None:
        self.folder = folder
        self.train = str(folder / ("joined.parquet" if trips else "train.parquet"))
        self.validation = "" if trips else str(folder / "validation.parquet")
        self.trips = trips
        self.rounds = rounds
        classes: dict[str, Any] = {"num_class": TRIP_TYPES}
        self.xgboost = {"tree_method": "hist", "max_depth": 6, "seed": 0, "max_bin": 256}
        self.xgboost |= {"objective": "binary:logistic", "eval_metric": "logloss"}
        self.lightgbm = {"num_leaves": 63, "seed": 0, "verbose": -1, "objective": "binary"}
        self.lightgbm |= {"metric": "binary_logloss"}
        if trips:
            self.xgboost |= {"objective": "multi:softmax", "eval_metric": "mlogloss", **classes}

    def start(self) -> None:
        """Do what comes before training, as part of what is measured."""
        if self.trips:
            join_trips(self.folder, Path(self.train))


@contextmanager
def dask_cluster(workers: int, threads: int) -> Iterator[Any]:
    """Give a client of a cluster on this machine."""
    import distributed

    with (
        distributed.LocalCluster(
            n_workers=workers, threads_per_worker=threads, dashboard_address=None, memory_limit=0
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        client.wait_for_workers(workers)
        yield client


@contextmanager
def prefect_server() -> Iterator[str]:
    """Give the URL of a Prefect server of our own."""
    from prefect.server.api.server import SubprocessASGIServer

    server = SubprocessASGIServer()
    server.start()
    try:
        yield server.api_url
    finally:
        server.stop()


def by_gang(
    work: Work, workers: int, threads: int, trainer: Any, *, says: bool = True
) -> tuple[float, str]:
    """Train by a gang; with one worker it is one process on the same path.

    `says` is whether it is said how many ranks there are, and how many threads each has.
    """
    from partwise import RemoteCluster, ScalingConfig, train_distributed

    with dask_cluster(workers, threads) as client, tempfile.TemporaryDirectory() as store:
        began = time.monotonic()
        work.start()
        run = train_distributed(
            work.train,
            trainer,
            eval_data={"validation": work.validation} if work.validation else {},
            run_id="bench",
            store=store,
            scaling=ScalingConfig(ranks=workers, cpus=threads) if says else ScalingConfig(),
            cluster=RemoteCluster(address=client.scheduler.address, shares_filesystem=True),
        )
        seconds = time.monotonic() - began
        metrics = dict(run.ledger["metrics"][0].as_py())
        shown: dict[str, Any] = {name: value for name, value in metrics.items() if "loss" in name}
        [name] = (name for name in run.artifacts(0) if name.startswith("model."))
        # The same for any number of ranks, and each time.
        shown["model"] = hashlib.sha256(run.read_artifact(run.partition_id(0), name)).hexdigest()[
            :12
        ]
        if work.trips:
            shown |= trip_error(work, run.model())
    return seconds, json.dumps(shown)


def trip_error(work: Work, booster: Any) -> dict[str, float]:
    """Return the share of the trips that a booster takes for another type."""
    import xgboost

    rows = pq.read_table(work.train)
    predicted = booster.predict(xgboost.DMatrix(rows.drop(["label"]), nthread=WORKERS))
    return {"error": float(np.mean(predicted != rows["label"].to_numpy()))}


def gang_of_xgboost(
    work: Work, workers: int, threads: int, memory: str = "internal", *, says: bool = True
) -> tuple[float, str]:
    """XGBoost on shared cuts."""
    from partwise import DistributedXGBoost

    trainer = DistributedXGBoost(
        label="label", params=work.xgboost, rounds=work.rounds, memory=memory
    )
    return by_gang(work, workers, threads, trainer, says=says)


def gang_of_lightgbm(work: Work, workers: int, threads: int) -> tuple[float, str]:
    """LightGBM on shared bins."""
    from partwise import DistributedLightGBM

    trainer = DistributedLightGBM(label="label", params=work.lightgbm, rounds=work.rounds)
    return by_gang(work, workers, threads, trainer)


def _read_groups(path: str, first: int) -> Any:
    groups = range(first, min(first + FRAME_GROUPS, pq.ParquetFile(path).num_row_groups))
    return pq.ParquetFile(path).read_row_groups(list(groups)).to_pandas()


def _frames(path: str) -> tuple[Any, Any]:
    import dask.dataframe as dd

    # Not by read_parquet: of a single column Dask joins partitions, and the label's would not
    # match those of the features.
    count = pq.ParquetFile(path).num_row_groups
    firsts = range(0, count, FRAME_GROUPS)
    frame = dd.from_map(_read_groups, [path] * len(firsts), firsts)
    return frame.drop(columns=["label"]), frame["label"]


def dask_xgboost(work: Work) -> tuple[float, str]:
    """XGBoost's own front end for Dask."""
    from xgboost import dask as dxgb

    with dask_cluster(WORKERS, 1) as client:
        began = time.monotonic()
        work.start()
        matrix = dxgb.DaskQuantileDMatrix(client, *_frames(work.train), max_bin=256)
        evals = []
        if work.validation:
            features, label = _frames(work.validation)
            valid = dxgb.DaskQuantileDMatrix(client, features, label, ref=matrix, max_bin=256)
            evals = [(valid, "validation")]
        done = dxgb.train(client, work.xgboost, matrix, num_boost_round=work.rounds, evals=evals)
        seconds = time.monotonic() - began
        history = {k: v[-1] for name in done["history"].values() for k, v in name.items()}
        if work.trips:
            history = trip_error(work, done["booster"])
    return seconds, json.dumps(history)


def dask_lightgbm(work: Work) -> tuple[float, str]:
    """LightGBM's own front end for Dask."""
    import lightgbm

    settings = {k: v for k, v in work.lightgbm.items() if k not in ("seed", "objective", "metric")}
    with dask_cluster(WORKERS, 1) as client:
        began = time.monotonic()
        work.start()
        features, label = _frames(work.train)
        model = lightgbm.DaskLGBMClassifier(
            client=client, n_estimators=work.rounds, random_state=0, tree_learner="data", **settings
        )
        model.fit(
            features.to_dask_array(lengths=True),
            label.to_dask_array(lengths=True),
            eval_set=[tuple(f.to_dask_array(lengths=True) for f in _frames(work.validation))],
            eval_metric="binary_logloss",
        )
        seconds = time.monotonic() - began
        shown = {k: v[-1] for name in model.evals_result_.values() for k, v in name.items()}
    return seconds, json.dumps(shown)


CONTESTANTS: dict[str, Callable[[Work], tuple[float, str]]] = {
    "XGBoost, one process": lambda work: gang_of_xgboost(work, 1, WORKERS),
    "XGBoost, gang": lambda work: gang_of_xgboost(work, WORKERS, 1),
    "XGBoost, gang, external": lambda work: gang_of_xgboost(work, WORKERS, 1, "external"),
    "XGBoost, ranks left open": lambda work: gang_of_xgboost(work, WORKERS, 1, says=False),
    "xgboost.dask": dask_xgboost,
    "LightGBM, one process": lambda work: gang_of_lightgbm(work, 1, WORKERS),
    "LightGBM, gang": lambda work: gang_of_lightgbm(work, WORKERS, 1),
    "lightgbm.dask": dask_lightgbm,
}
OF_TRIPS = ("XGBoost, one process", "XGBoost, gang", "XGBoost, ranks left open", "xgboost.dask")


class MemoryWatch(threading.Thread):
    """Samples the anonymous memory of the processes below one."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self._root = psutil.Process(pid)
        self.ended = threading.Event()
        self.all_bytes = 0
        self.largest_bytes = 0

    def run(self) -> None:
        """Sample until `ended` is set."""
        while not self.ended.wait(SAMPLE_S):
            sizes = []
            try:
                family = [self._root, *self._root.children(recursive=True)]
            except psutil.NoSuchProcess:
                return
            for process in family:
                try:
                    # Not smaps_rollup, which walks all pages and takes time from what is measured.
                    text = Path(f"/proc/{process.pid}/status").read_text()
                except OSError:
                    continue
                line = next((each for each in text.splitlines() if "RssAnon:" in each), "")
                sizes.append(int(line.split()[1]) * 1024 if line else 0)
            self.all_bytes = max(self.all_bytes, sum(sizes))
            # Not the root: that is the driver with its scheduler and Prefect.
            self.largest_bytes = max(self.largest_bytes, *sizes[1:], 0)


def measure(
    name: str, arguments: argparse.Namespace, folder: Path, prefect_url: str
) -> dict[str, Any]:
    """Run a contestant in a process of its own, and return its figures."""
    command = [sys.executable, __file__, "--contestant", name, "--folder", str(folder)]
    command += ["--rounds", str(arguments.rounds), "--trips", str(arguments.trips)]
    environment = {**os.environ, "PREFECT_LOGGING_LEVEL": "ERROR", "OMP_NUM_THREADS": "1"}
    environment["PREFECT_API_URL"] = prefect_url
    if "one process" in name:
        environment["OMP_NUM_THREADS"] = str(WORKERS)
    process = subprocess.Popen(command, stdout=subprocess.PIPE, env=environment, text=True)
    watch = MemoryWatch(process.pid)
    watch.start()
    printed, _ = process.communicate()
    watch.ended.set()
    watch.join()
    if process.returncode:
        raise SystemExit(f"{name} failed with exit status {process.returncode}")
    figures: dict[str, Any] = json.loads(printed.splitlines()[-1])
    return figures | {"all": watch.all_bytes, "largest": watch.largest_bytes}


def main() -> None:
    """Measure, or be one contestant."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=6_000_000)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--trips", type=int, default=0, help="orders of the second work")
    parser.add_argument("--only", nargs="*", help="some contestants")
    parser.add_argument("--contestant", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.contestant:
        rounds = TRIP_ROUNDS if arguments.trips else arguments.rounds
        work = Work(arguments.folder, rounds, trips=bool(arguments.trips))
        seconds, result = CONTESTANTS[arguments.contestant](work)
        print(json.dumps({"call s": seconds, "result": result}))
        return
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        if arguments.trips:
            write_trips(folder, arguments.trips)
        else:
            write_both(folder, arguments.rows)
        names = arguments.only or (OF_TRIPS if arguments.trips else tuple(CONTESTANTS))
        measured: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
        with prefect_server() as url:
            for _ in range(arguments.turns):
                for name in names:
                    measured[name].append(measure(name, arguments, folder, url))
    print(f"{'':26}{'seconds':>9}{'all MiB':>9}{'largest':>9}  result of each turn")
    for name, turns in measured.items():
        seconds, whole, largest = (
            statistics.median(turn[figure] for turn in turns)
            for figure in ("call s", "all", "largest")
        )
        results = "; ".join(dict.fromkeys(turn["result"] for turn in turns))
        print(f"{name:26}{seconds:9.1f}{whole / 2**20:9.0f}{largest / 2**20:9.0f}  {results}")


if __name__ == "__main__":
    main()
