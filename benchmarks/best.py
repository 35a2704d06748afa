"""What choosing among candidates brings for each partition: Best, and each of them alone.

    python -m benchmarks.best [--data bike_trips.parquet] [--partitions 300]

By default on the demo's table; with --data on trips between bike stations, a model for each route.
One run of `Best` scores LightGBM, a linear model and a naive one by the same backtest on each
partition; printed are the medians of rmse over those that all have a score for, of each candidate
and of the one that was chosen. A further run of each alone, and inference, give the rmse of rows of
the last weeks, which none of them has seen.
"""

import argparse
import tempfile
from pathlib import Path
from typing import Any

import pandas as pd

from benchmarks.tuning import Task, bike_task, demo_task, unseen_scores
from partwise import Best, Linear, LocalCluster, Mean, SeasonalNaive, train_models


def candidates_of(task: Task) -> dict[str, Any]:
    """Return the candidates by their names: naive is the mean, of sales last week's day."""
    common: dict[str, Any] = {"label": task.label}
    naive: Any = Mean(**common)
    if task.keys == ["store"]:
        naive = SeasonalNaive(label=task.label, season=7, time=task.time)
    return {
        "lightgbm": task.trainer,
        "linear": Linear(**common, features=task.features),
        naive.kind: naive,
    }


def compare(options: argparse.Namespace, folder: Path) -> None:
    task = bike_task(options.data) if options.data else demo_task(folder)
    known, unseen = task.split(options.partitions)
    common = {"store": str(folder / "store"), "cluster": LocalCluster(workers=2)}
    candidates = candidates_of(task)
    best = Best(list(candidates.values()), holdout=task.holdout, metric="rmse")
    run = train_models(known, task.keys, best, run_id="best", **common)
    ledger = run.partitions.to_pandas().set_index(task.keys)
    scores = {name: ledger[f"candidate_{name}_rmse"] for name in candidates}
    scores["best"] = ledger["holdout_rmse"]
    tests = {"best": unseen_scores(task, run, unseen, common)}
    for name, trainer in candidates.items():
        alone = trainer.model_copy(update={"holdout": task.holdout})
        single = train_models(known, task.keys, alone, run_id=f"alone-{name}", **common)
        tests[name] = unseen_scores(task, single, unseen, common)
    searched, late = pd.DataFrame(scores).dropna(), pd.DataFrame(tests).dropna()
    chosen = ledger["candidate"].value_counts().to_dict()
    print(f"{len(searched):,} partitions scored, {len(late):,} of them later; chosen: {chosen}")
    print(f"{'median of rmse':20} {'backtest':>9} {'unseen':>9}")
    for name in scores:
        print(f"{name:20} {searched[name].median():9.4f} {late[name].median():9.4f}")
    least = min(searched[name].median() for name in candidates)
    is_met = bool(searched["best"].median() <= least)
    print(f"no worse in the median than the best alone, by the backtest: {is_met}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default="")
    parser.add_argument("--partitions", type=int, default=0, help="Only so many; 0: all.")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        compare(options, Path(directory))


if __name__ == "__main__":
    main()
