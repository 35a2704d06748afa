"""What a catalog costs: a version of many keys, one key of it, inference from it, a comparison.

    python -m benchmarks.catalogs [--keys 100000] [--routes 1863] [--turns 3]

Models of the first part are a dictionary each, since it is the catalog that is measured; those of
the second are LightGBM's, as many as there are routes, of sizes as uneven, of two nights. Plain
inference, inference from a catalog with fallbacks that nobody needs, and a comparison of the two
nights on the same rows take turns.
"""

import argparse
import logging
import statistics
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.overhead import timed
from partwise import (
    Catalog,
    Everything,
    LightGBMTrainer,
    LocalCluster,
    PickleSerde,
    compare_models,
    promote_models,
    run_inference,
    train_models,
)

ROUTE_ROWS = 326_000
COLUMNS = ("a", "b", "c")
ONE_KEY = """
import sys, time
import partwise, pyarrow
from partwise import Catalog
began = time.perf_counter()
Catalog.open("many", sys.argv[1]).model(int(sys.argv[2]), partwise.PickleSerde())
print(time.perf_counter() - began)
began = time.perf_counter()
Catalog.open("many", sys.argv[1]).model(int(sys.argv[2]) + 1, partwise.PickleSerde())
print(time.perf_counter() - began)
"""


def mean_of(data: Any, context: Any) -> dict[str, float]:
    """Train a model that costs nothing."""
    del context
    return {"mean": float(data.to_numpy("x").mean())}


def show(what: str, seconds: float, goal: str) -> None:
    """Print a line of the table."""
    print(f"{what:52} {seconds:8.3f}   {goal}", flush=True)


def many_keys(folder: Path, keys: int, turns: int) -> None:
    """Commit versions of many keys, and read them."""
    store, numbers = folder / "many", np.repeat(np.arange(keys), 2)
    rows = pa.table({"key": numbers, "x": np.arange(len(numbers)) * 1.0})
    for night in ("first", "second"):
        given: dict[str, Any] = {"store": store, "cluster": LocalCluster(workers=2)}
        train_models(rows, "key", mean_of, run_id=night, serde=PickleSerde(), **given)
    files = {path for path in store.rglob("*") if path.is_file()}
    commits, opens = [], []
    for turn in range(2 * turns):
        night = ("first", "second")[turn % 2]
        spent, _ = timed(
            lambda night=night: promote_models("many", models=night, rule=Everything(), store=store)
        )
        commits.append(spent)
        new = {path for path in store.rglob("*") if path.is_file()} - files
        files |= new
        spent, table = timed(lambda: Catalog.open("many", store).table)
        assert table.num_rows == keys
        opens.append(spent)
    show(f"a version of {keys:,} keys", statistics.median(commits), "3 s")
    show(f"which is read, of {len(new)} objects", statistics.median(opens), "1 s")
    called = [sys.executable, "-c", ONE_KEY, str(store), "77"]
    both = [
        subprocess.run(called, check=True, capture_output=True, text=True).stdout.split()
        for _ in range(turns)
    ]
    first, second = (statistics.median(float(each[n]) for each in both) for n in (0, 1))
    show("the model of one key, the first of a process", first, "0.1 s")
    show("the model of another", second, "")


def routes(folder: Path, count: int, turns: int) -> None:
    """Compare two nights of models on the rows of one, beside inference with one of them."""
    chance = np.random.default_rng(0)
    sizes = np.maximum(20, chance.lognormal(4.0, 1.3, count)).astype(int)
    sizes = np.maximum(20, sizes * ROUTE_ROWS // sizes.sum())
    keys = chance.permutation(np.repeat(np.arange(count), sizes))
    table = pa.table(
        {
            "key": keys,
            **{name: chance.normal(size=len(keys)) for name in COLUMNS},
            "y": chance.normal(size=len(keys)),
        }
    )
    path, new = folder / "rows.parquet", folder / "new.parquet"
    pq.write_table(table, path)
    # Rows that nothing was trained on.
    pq.write_table(table.set_column(1, "a", pa.array(chance.normal(size=len(keys)))), new)
    given: dict[str, Any] = {"store": folder / "routes", "cluster": LocalCluster(workers=2)}
    for night, rounds in (("first", 50), ("second", 60)):
        trainer = LightGBMTrainer(label="y", features=COLUMNS, rounds=rounds)
        train_models(str(path), "key", trainer, run_id=night, **given)
    promote_models("routes", models="first", rule=Everything(), store=given["store"])
    run = {"data": str(new), "partition_by": "key", **given}

    def call(name: str, turn: int) -> Any:
        run_id = f"{name}-{turn}"
        if name == "comparison":
            return compare_models(candidates=["first", "second"], label="y", run_id=run_id, **run)
        if name == "plain":
            return run_inference(models="first", run_id=run_id, **run)
        models = "catalog://routes"
        return run_inference(models=models, fallback=["second"], run_id=run_id, **run)

    spent: dict[str, list[float]] = {"plain": [], "catalog": [], "comparison": []}
    for turn in range(turns):
        for name, of_name in spent.items():
            seconds, done = timed(partial(call, name, turn))
            assert done.counts == {"DONE": count}, done.counts
            of_name.append(seconds)
    medians = {name: statistics.median(values) for name, values in spent.items()}
    show(f"inference with {count:,} models", medians["plain"], "")
    show("the same from a catalog with a fallback", medians["catalog"], "")
    show("  beside plain inference", medians["catalog"] / medians["plain"], "1.05 x")
    show(f"comparison of 2 x {count:,} models", medians["comparison"], "")
    show("  beside plain inference", medians["comparison"] / medians["plain"], "1.3 x")


def main() -> None:
    """Parse the command line, and measure."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--keys", type=int, default=100_000)
    parser.add_argument("--routes", type=int, default=1_863)
    parser.add_argument("--turns", type=int, default=3)
    arguments = parser.parse_args()
    logging.disable(logging.WARNING)
    print(f"{'':52} {'seconds':>8}   goal")
    with tempfile.TemporaryDirectory(prefix="partwise-catalogs-") as made:
        many_keys(Path(made), arguments.keys, arguments.turns)
        routes(Path(made), arguments.routes, arguments.turns)


if __name__ == "__main__":
    main()
