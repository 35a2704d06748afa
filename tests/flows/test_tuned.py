"""Settings that are searched for each partition, through the flow."""

import json

import numpy as np
import pyarrow as pa
import pytest

from partwise import (
    Backtest,
    ExecutionOptions,
    LightGBMTrainer,
    Run,
    Tuned,
    loguniform,
    randint,
    run_inference,
    train_models,
)

SPACE = {
    "learning_rate": loguniform(0.01, 0.5),
    "num_leaves": randint(4, 32),
    "rounds": randint(5, 30),
}
KEYS = [f"store-{number}" for number in range(4)]


@pytest.fixture(scope="module")
def rows() -> pa.Table:
    random = np.random.default_rng(3)
    parts = []
    for place, key in enumerate(KEYS):
        n = 60 + 60 * place
        a, b = random.normal(size=(2, n))
        label = np.sin(place * a) * 3 + b + random.normal(size=n) * 0.2
        parts.append(
            pa.table({"store": [key] * n, "day": np.arange(n), "a": a, "b": b, "y": label})
        )
    return pa.concat_tables(parts)


def tuned(**options) -> Tuned:
    options = {"trials": 12, "holdout": Backtest(time="day", horizon=10, windows=2)} | options
    return Tuned(LightGBMTrainer(label="y", rounds=20), SPACE, **options)


def trials(run: Run, key: str) -> dict:
    return json.loads(run.artifact(key, "trials.json"))


def search(run: Run, key: str) -> list:
    return [(each["settings"], each["value"], each["state"]) for each in trials(run, key)["trials"]]


@pytest.mark.parametrize("isolation", ["shared", "partition"])
def test_each_partition_has_its_own_best_settings(rows, cluster, tmp_path, isolation):
    trainer = tuned(pruner="median")
    run = train_models(
        rows, "store", trainer, store=tmp_path, cluster=cluster, run_id=f"tuned-{isolation}",
        execution=ExecutionOptions(isolation=isolation),
    )  # fmt: skip
    assert run.counts == {"DONE": 4}
    table = run.partitions.to_pylist()
    assert all(row["holdout_rmse"] <= row["untuned_rmse"] for row in table)
    assert {row["trials"] for row in table} == {12}
    best = {json.dumps(trials(run, key)["best"]) for key in KEYS}
    assert len(best) == len(KEYS)
    # Nothing of the search is left behind that costs a process, or that is logged.
    assert all(b"study" not in run.logs(key).encode() for key in KEYS)
    if isolation == "shared":
        assert len({row["host"] for row in table}) <= 2
        predicted = run_inference(
            rows, "store", f"tuned-{isolation}", store=tmp_path, cluster=cluster,
            run_id="tuned-predicted",
        )  # fmt: skip
        assert predicted.counts == {"DONE": 4}
