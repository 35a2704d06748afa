"""What tuning brings for each partition: plain settings, 30 TPE trials, and a portfolio of 8.

    python benchmarks/tuning.py [--data bike_trips.parquet] [--trials 30] [--sample 200]

By default on the demo's table; with --data on trips between bike stations, a model for each route.
All three train by the same flow on the same rows, and score settings by the same backtest. Printed
are medians over the partitions: the score that was searched with, and that of rows of the last
weeks, which none of them has seen. `seconds` are those of the stage that trains; what finding the
portfolio took is a line of its own, as it is found once for all runs to come.
"""

import argparse
import statistics
import tempfile
import time
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from partwise import (
    Backtest,
    LightGBMTrainer,
    LocalCluster,
    Run,
    Tuned,
    find_portfolio,
    loguniform,
    randint,
    run_inference,
    train_models,
    uniform,
)
from partwise.flows.demo.table import write_demo_table

SPACE = {
    "learning_rate": loguniform(0.01, 0.3),
    "num_leaves": randint(2, 64),
    "min_data_in_leaf": randint(3, 60),
    "lambda_l2": loguniform(0.01, 100),
    "feature_fraction": uniform(0.4, 1.0),
}
UNSEEN = timedelta(days=56)


@dataclass(frozen=True)
class Task:
    """Rows, and what is predicted of them."""

    table: pa.Table
    keys: list[str]
    label: str
    time: str
    features: list[str]

    def split(self, partitions: int) -> tuple[pa.Table, pa.Table]:
        """Return what is trained on, and the last weeks, of the first so many keys; 0: of all."""
        last: datetime = pc.max(self.table[self.time]).as_py()
        is_late = pc.greater(
            self.table[self.time], pa.scalar(last - UNSEEN, self.table[self.time].type)
        )
        known, unseen = self.table.filter(pc.invert(is_late)), self.table.filter(is_late)
        if partitions:
            keys = known.group_by(self.keys).aggregate([]).slice(0, partitions)
            known, unseen = (
                rows.join(keys, self.keys, join_type="inner") for rows in (known, unseen)
            )
        return known, unseen

    @property
    def trainer(self) -> LightGBMTrainer:
        """What is tuned."""
        return LightGBMTrainer(label=self.label, features=self.features, rounds=100, min_rows=40)

    @property
    def holdout(self) -> Backtest:
        """How settings are scored."""
        return Backtest(time=self.time, horizon="28D", windows=3, too_short="fewer")


def bike_task(path: str) -> Task:
    """Return the trips: how long one takes, as a logarithm, by when it begins and who rides."""
    trips = pq.read_table(path).to_pandas()
    start = trips["start_date"]
    table = pd.DataFrame(
        {
            "start_station": trips["start_station"],
            "end_station": trips["end_station"],
            "start_date": start,
            "hour": start.dt.hour + start.dt.minute / 60,
            "weekday": start.dt.day_of_week.astype("int32"),
            "day": start.dt.day_of_year.astype("int32"),
            "subscriber": (trips["subscription_type"] == "Subscriber").astype("int8"),
            "bike": trips["bike_id"],
            "log_duration": np.log(trips["duration"].clip(60, 4 * 3600)),
        }
    )
    return Task(
        table=pa.Table.from_pandas(table, preserve_index=False),
        keys=["start_station", "end_station"],
        label="log_duration",
        time="start_date",
        features=["hour", "weekday", "day", "subscriber", "bike"],
    )


def demo_task(folder: Path) -> Task:
    path = folder / "sales.parquet"
    write_demo_table(path)
    table = pq.read_table(path)
    table = table.filter(pc.is_valid(table["sales"]))
    return Task(
        table=table,
        keys=["store"],
        label="sales",
        time="date",
        features=["weekday", "day_of_year", "price", "promotion", "temperature_c", "rain_mm"],
    )


def unseen_scores(task: Task, run: Run, rows: pa.Table, common: dict[str, Any]) -> pd.Series:
    """Return the rmse of each partition on rows that its model has not seen."""
    predicted = run_inference(
        rows,
        task.keys,
        run.run_id,
        run_id=f"{run.run_id}-unseen",
        keep_columns=[task.label],
        on_missing_model="skip",
        **common,
    ).predictions()
    frame = predicted.to_pandas()
    frame["error"] = (frame["prediction"] - frame[task.label]) ** 2
    errors: pd.Series = np.sqrt(frame.groupby(task.keys)["error"].mean())
    return errors


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default="")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--trials", type=int, default=30)
    parser.add_argument("--sample", type=int, default=200)
    parser.add_argument("--settings", type=int, default=100)
    parser.add_argument("--size", type=int, default=8)
    parser.add_argument(
        "--partitions", type=int, default=0, help="Only so many, the first; 0: all."
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        compare(options, Path(directory))


def compare(options: argparse.Namespace, folder: Path) -> None:
    task = bike_task(options.data) if options.data else demo_task(folder)
    known, unseen = task.split(options.partitions)
    cluster = LocalCluster(workers=options.workers)
    common = {"store": str(folder / "store"), "cluster": cluster}
    searched: dict[str, Any] = {"holdout": task.holdout, "metric": "rmse"}
    began = time.perf_counter()
    found = find_portfolio(
        known, task.keys, task.trainer, SPACE,
        sample=options.sample, trials=options.settings, size=options.size, run_id="portfolio",
        **searched, **common,
    )  # fmt: skip
    finding = time.perf_counter() - began
    trainers = {
        "plain settings": Tuned(task.trainer, SPACE, trials=1, **searched),
        f"{options.trials} TPE trials": Tuned(
            task.trainer, SPACE, trials=options.trials, **searched
        ),
        f"portfolio of {len(found.portfolio.settings)}": Tuned(
            task.trainer, portfolio="portfolio", **searched
        ),
    }
    runs, scores, tests = {}, {}, {}
    for place, (name, trainer) in enumerate(trainers.items()):
        run = train_models(known, task.keys, trainer, run_id=f"trained-{place}", **common)
        frame = run.partitions.to_pandas().set_index(task.keys)
        runs[name], scores[name] = run, frame["holdout_rmse"].dropna()
        tests[name] = unseen_scores(task, run, unseen, common)
    both = pd.concat([pd.DataFrame(scores), pd.DataFrame(tests).add_suffix(" unseen")], axis=1)
    both = both.dropna()
    print(f"{len(both):,} partitions; finding the portfolio took {finding:.0f} s. Medians of rmse:")
    print(f"{'':20} {'searched':>9} {'unseen':>9} {'seconds':>9} {'of TPE':>7}")
    stage = {name: run.summary.stages["train"] for name, run in runs.items() if run.summary}
    plain, tpe, portfolio = trainers
    for name in trainers:
        print(
            f"{name:20} {both[name].median():9.4f} {both[name + ' unseen'].median():9.4f}"
            f" {stage[name]:9.1f} {stage[name] / stage[tpe]:7.2f}"
        )
    for name in (plain, portfolio):
        for suffix in ("", " unseen"):
            ratio = statistics.median(both[name + suffix] / both[tpe + suffix])
            print(f"{name}{suffix}: in the median {ratio:.4f} of the rmse of {tpe}")
    print("settings:", *found.portfolio.settings, sep="\n  ")
    print("regrets:", ", ".join(f"{each:.3f}" for each in found.portfolio.regrets))


if __name__ == "__main__":
    main()
