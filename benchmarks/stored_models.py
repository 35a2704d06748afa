"""What a stored model costs beyond the function: tiny ones, and one that a library trains.

    python benchmarks/stored_models.py [--partitions 100000] [--models 400] [--turns 3] [--json]

Many tiny models, a pickle and a LightGBM Booster of one round that a function only returns, stand
beside a function that stores nothing. Then the trainers of LightGBM and XGBoost (600 rows x 8, 100
rounds) stand beside the library's cheapest call for the same trees, by turns in one process each.

Each figure is a median over the turns. Wall clock says what a user waits, and seconds of CPU of all
processes say more where the machine is shared.
"""

import argparse
import contextlib
import json
import logging
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq

from partwise import (
    ExecutionOptions,
    LightGBMTrainer,
    PickleSerde,
    Result,
    XGBoostTrainer,
    map_partitions,
    train_models,
)
from partwise.blocks import LocalCluster

TINY_ROWS, TINY_FEATURES = 10, 4
ROWS, FEATURES, ROUNDS = 600, [f"x{i}" for i in range(8)], 100
TINY_GOAL_US = 60
SMALL_GOAL = 1.10
WARM_UP = 10
"""So many first models of a process are left out: with them it imports the library."""
LOOK_S = 0.1

_made: dict[str, Any] = {}


def nothing(data: Any, context: Any) -> None:
    """Stand for a function that costs nothing."""


def tiny_pickle(data: Any, context: Any) -> Any:  # noqa: ARG001 (what every function takes)
    """Return a model of two numbers."""
    return {"mean": 1.5, "key": context.key}


def tiny_booster(data: Any, context: Any) -> Any:  # noqa: ARG001
    """Return a Booster of one round: the same one each time, as it is written each time."""
    import lightgbm

    if "booster" not in _made:
        rows = np.random.default_rng(0).random((100, TINY_FEATURES))
        settings = {"num_threads": 1, "verbose": -1, "min_data_in_leaf": 5, "num_leaves": 4}
        _made["booster"] = lightgbm.train(settings, lightgbm.Dataset(rows, rows.sum(axis=1)), 1)
    return _made["booster"]


def run_tiny(case: str, source: str, store: str) -> None:
    """Run one case of tiny models, as a command of its own."""
    rows: dict[str, Any] = {"data": source, "partition_by": "key", "store": store}
    how: dict[str, Any] = {"cluster": LocalCluster(workers=2)}
    if case == "nothing":
        run = map_partitions(**rows, function=nothing, **how)
    elif case == "pickle":
        run = train_models(**rows, trainer=tiny_pickle, serde=PickleSerde(), **how)
    else:
        run = train_models(**rows, trainer=tiny_booster, **how)
    if set(run.counts) != {"DONE"}:
        raise SystemExit(f"{case}: {run.counts}")


def compare_tiny(partitions: int, turns: int, folder: Path) -> dict[str, float]:
    """Print and return what tiny models cost beyond nothing, us of the clock each."""
    source = folder / "tiny.parquet"
    generator = np.random.default_rng(0)
    keys = generator.permutation(np.repeat(np.arange(partitions), TINY_ROWS))
    columns = {f"x{i}": generator.random(len(keys)) for i in range(TINY_FEATURES)}
    pq.write_table(pa.table({"key": keys, **columns}), source)
    spent: dict[str, list[tuple[float, float]]] = {"nothing": [], "pickle": [], "lightgbm": []}
    for turn in range(turns):
        for case, of_case in spent.items():
            store = str(folder / f"{case}-{turn}")
            words = [sys.executable, __file__, "--case", case, "--source", str(source)]
            of_case.append(_measure([*words, "--store", store]))
    print(f"{partitions:,} tiny models, 2 workers; goal: {TINY_GOAL_US} us beyond nothing")
    print(f"{'':<12}{'us each':>10}{'beyond':>10}{'CPU each':>10}{'beyond':>10}")
    base, beyond = [0.0, 0.0], {}
    for case, of_case in spent.items():
        each = [
            statistics.median(column) / partitions * 1e6 for column in zip(*of_case, strict=True)
        ]
        if case == "nothing":
            base = each
        wall, cpu = each
        beyond[f"{case} us"] = wall - base[0]
        print(f"{case:<12}{wall:>10.0f}{wall - base[0]:>10.0f}{cpu:>10.0f}{cpu - base[1]:>10.0f}")
    return beyond


def _measure(words: Sequence[str]) -> tuple[float, float]:
    """Return seconds of the wall clock, and of CPU with all that it started, of a command."""
    began = time.perf_counter()
    spent: dict[int, float] = {}
    with tempfile.TemporaryFile("w+") as written:
        process = subprocess.Popen(words, stdout=written, stderr=subprocess.STDOUT)
        # Looked at from outside, again and again: a process that was killed, as children are, is
        # counted by nobody who waits for it.
        while process.poll() is None:
            with contextlib.suppress(psutil.Error):
                command = psutil.Process(process.pid)
                for each in (command, *command.children(recursive=True)):
                    with contextlib.suppress(psutil.Error):
                        times = each.cpu_times()
                        spent[each.pid] = times.user + times.system
            time.sleep(LOOK_S)
        wall = time.perf_counter() - began
        written.seek(0)
        if process.returncode:
            raise SystemExit(f"{' '.join(words)} failed: {written.read()[-2000:]}")
    return wall, sum(spent.values())


def cheapest(library: str, data: Any, seed: int) -> Any:
    """Train as whoever uses the library alone would, for the same trees as the trainer's."""
    table = data.to_arrow()
    rows = np.column_stack([table[name].to_numpy() for name in FEATURES])
    labels = table["y"].to_numpy()
    if library == "xgboost":
        import xgboost

        settings = {"nthread": 1, "seed": seed, "objective": "reg:squarederror"}
        return xgboost.train(settings, xgboost.DMatrix(rows, labels, nthread=1), ROUNDS)
    import lightgbm

    settings = {
        "num_threads": 1,
        "verbosity": -1,
        "deterministic": True,
        "force_row_wise": True,
        "objective": "regression",
        "seed": seed,
    }
    return lightgbm.train(settings, lightgbm.Dataset(rows, labels, params=settings), ROUNDS)


def check_same(library: str, alone: Any, trained: Any, data: Any) -> None:
    """See that both ways come to the same trees: to predictions that are equal to the last bit."""
    rows = np.column_stack([data.to_arrow()[name].to_numpy() for name in FEATURES])
    if library == "xgboost":
        found = [m.inplace_predict(rows, validate_features=False) for m in (alone, trained.model)]
    else:
        found = [m.predict(rows) for m in (alone, trained.model)]
    if not np.array_equal(*found):
        raise ValueError(f"{library} alone trains other trees")


def by_turns(library: str) -> Callable[[Any, Any], Result]:
    """Return a function that trains even keys by the trainer and odd ones by the library alone."""
    kind = LightGBMTrainer if library == "lightgbm" else XGBoostTrainer
    trainer = kind(label="y", features=FEATURES, rounds=ROUNDS, holdout=None)

    def function(data: Any, context: Any) -> Result:
        if context.key < WARM_UP:
            # Not timed.
            check_same(library, cheapest(library, data, context.seed), trainer(data, context), data)
        began = time.process_time()
        if context.key % 2:
            cheapest(library, data, context.seed)
            model = None
        else:
            trained = trainer(data, context)
            if not isinstance(trained, Result):
                raise TypeError("the trainer skipped rows that it should train on")
            model = trained.model
        return Result(model, {"began": began, "ended": time.process_time()})

    return function


def compare_small(library: str, models: int, turns: int, folder: Path) -> float:
    """Print what a model of a library's trainer costs in a child; return how often the library."""
    count = 2 * models
    generator = np.random.default_rng(0)
    matrix = generator.random((count * ROWS, len(FEATURES)))
    columns = dict(zip(FEATURES, matrix.T, strict=True))
    labels = matrix @ np.arange(len(FEATURES)) + generator.random(len(matrix))
    table = pa.table({"key": np.repeat(np.arange(count), ROWS), **columns, "y": labels})
    medians = []
    for turn in range(turns):
        run = train_models(
            table,
            "key",
            by_turns(library),
            store=folder / f"{library}-{turn}",
            cluster=LocalCluster(workers=1),
            execution=ExecutionOptions(n_shards=1),
        )
        medians.append(_medians(run.partitions.sort_by("key")))
    alone, call, whole = (statistics.median(column) for column in zip(*medians, strict=True))
    print(
        f"{library:<9} alone {alone:6.2f} ms, the trainer's call {call:6.2f} ms ="
        f" {call / alone:.2f}x, all of the child {whole:6.2f} ms = {whole / alone:.2f}x"
    )
    return whole / alone


def _medians(ledger: pa.Table) -> tuple[float, float, float]:
    """Return ms of CPU of the library alone, of the trainer's call, and of the child for a model.

    From the start of a function to that of the next is all that the child does for a partition.
    """
    began, ended = (ledger[name].to_numpy()[WARM_UP:] for name in ("began", "ended"))
    is_alone = ledger["key"].to_numpy()[WARM_UP:] % 2 == 1
    calls = (ended - began) * 1e3
    wholes = np.append(np.diff(began), np.nan) * 1e3
    return (
        float(np.median(calls[is_alone])),
        float(np.median(calls[~is_alone])),
        float(np.nanmedian(wholes[~is_alone])),
    )


def main() -> None:
    """Measure both, and print them with their goals."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--partitions", type=int, default=100_000)
    parser.add_argument("--models", type=int, default=400)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--json", action="store_true", help="a last line for other programs")
    for name in ("--case", "--source", "--store"):
        parser.add_argument(name, default="", help=argparse.SUPPRESS)
    given = parser.parse_args()
    logging.disable(logging.INFO)
    if given.case:
        run_tiny(given.case, given.source, given.store)
        return
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} as it begins")
    with tempfile.TemporaryDirectory() as name:
        figures = compare_tiny(given.partitions, given.turns, Path(name))
        print(
            f"CPU of a model of {ROWS} rows x {len(FEATURES)}, {ROUNDS} rounds; goal: "
            f"{SMALL_GOAL:.2f}x the library alone, the stored model included"
        )
        for library in ("lightgbm", "xgboost"):
            figures[f"{library} of alone"] = compare_small(
                library, given.models, given.turns, Path(name)
            )
    if given.json:
        print(json.dumps(figures))


if __name__ == "__main__":
    main()
