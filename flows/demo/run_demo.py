"""The demo: train a model for each of 100 stores, then forecast the month that was held out.

The error of a store is the sum of absolute errors, as a share of what it sold in that month.
"""

import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from rich.console import Console

from partwise.evaluation import HoldoutByTime
from partwise.flows.demo.table import HELD_OUT_FROM, forecast_errors, write_demo_table
from partwise.flows.run_inference import run_inference
from partwise.flows.train_models import train_models
from partwise.formatting import counted
from partwise.outcomes import RunStatus
from partwise.reports.next_command import program, store_option
from partwise.runs.run import Run
from partwise.trainers import LightGBMTrainer

TRAINING_RUN = "demo-models"
INFERENCE_RUN = "demo-december"
TRAINER = LightGBMTrainer(
    label="sales",
    # The store's name is the key, and dates never come again.
    features=(
        "weekday",
        "day_of_year",
        "price",
        "promotion",
        "temperature_c",
        "rain_mm",
        "holiday",
        "usual_sales",
    ),
    categorical=("holiday",),
    params={"objective": "poisson", "learning_rate": 0.05, "num_leaves": 15},
    rounds=200,
    holdout=HoldoutByTime(column="date", start="2025-11-01"),
)


def run_demo(directory: str | Path = "demo") -> int:
    """Run the demo, or what is left to do of it, and print what came of it.

    A second call resumes the runs in the folder. The exit code is 0, or 3 when some partitions
    failed.
    """
    console = Console(highlight=False, soft_wrap=True)
    path = Path(directory) / "sales.parquet"
    store = str(Path(directory) / "artifacts")
    began = time.monotonic()
    written = _write_table(path)
    _print_stage(console, "table", written, time.monotonic() - began, path)
    training = train_models(
        str(path),
        "store",
        TRAINER,
        run_id=TRAINING_RUN,
        store=store,
        filter=[("date", "<", HELD_OUT_FROM)],
        on_existing_artifacts="resume",
    )
    _print_run(console, "train", training)
    inference = run_inference(
        str(path),
        "store",
        TRAINING_RUN,
        run_id=INFERENCE_RUN,
        store=store,
        filter=[("date", ">=", HELD_OUT_FROM)],
        keep_columns=["date", "sales"],
        on_existing_artifacts="resume",
    )
    _print_run(console, "infer", inference)
    errors = forecast_errors(pq.read_table(path), inference.predictions())
    _print_errors(console, errors)
    better = int(np.sum(errors["model"].to_numpy() < errors["naive"].to_numpy()))
    console.print(f"{_work_done(training)}; {better} of {errors.num_rows} beat the naive forecast.")
    command = f"{program()} runs show {INFERENCE_RUN} --open{store_option(inference)}"
    console.print(f"next: {command}  (its report)", markup=False)
    return 0 if training.status is inference.status is RunStatus.SUCCESS else 3


def _write_table(path: Path) -> str:
    if path.exists():
        return "kept as it is"
    path.parent.mkdir(parents=True, exist_ok=True)
    return f"{write_demo_table(path):,} rows written"


def _print_run(console: Console, stage: str, run: Run) -> None:
    """Print a run's statuses, and the seconds of its stages, without those of imports."""
    statuses = ", ".join(f"{count} {status}" for status, count in sorted(run.counts.items()))
    stages = run.summary.stages if run.summary is not None else {}
    _print_stage(console, stage, statuses, sum(stages.values()), run.path)
    if stages:
        parts = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in stages.items())
        console.print(f"{'':<8}{parts}", markup=False)


def _work_done(training: Run) -> str:
    if training.generation == 1:
        return f"{counted(training.executed or 0, 'model')} trained"
    return f"{counted(training.executed or 0, 'model')} retrained, {training.kept} kept"


def _print_stage(
    console: Console, stage: str, what: str, seconds: float, where: Path | str
) -> None:
    console.print(f"{stage:<8}{what:<24}{seconds:>6.1f} s  {where}", markup=False)


def _print_errors(console: Console, errors: pa.Table) -> None:
    console.print()
    console.print(f"{'error in December 2025':<32}{'median':>8}{'worst':>8}")
    names = {"model": "own model of each store", "naive": "seasonal-naive (4 weeks' mean)"}
    for column, name in names.items():
        shares = errors[column].to_numpy()
        worst = errors["store"][int(shares.argmax())]
        console.print(f"{name:<32}{np.median(shares):>8.1%}{shares.max():>8.1%}  {worst}")
    console.print()
