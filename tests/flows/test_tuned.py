"""Settings that are searched for each partition, through the flow."""

import json

import numpy as np
import pyarrow as pa
import pytest

from partwise import (
    Backtest,
    Budget,
    ExecutionOptions,
    InputError,
    LightGBMTrainer,
    LocalCluster,
    PickleSerde,
    Run,
    Tuned,
    XGBoostTrainer,
    find_portfolio,
    loguniform,
    randint,
    run_inference,
    train_models,
)
from partwise.calls.partitions import PortfolioCall
from partwise.calls.reading import read_arguments
from partwise.reports.next_command import next_command
from tests.flows.best_functions import fit_shifted, predict_shifted

SPACE = {
    "learning_rate": loguniform(0.01, 0.5),
    "num_leaves": randint(4, 32),
    "rounds": randint(5, 30),
}
LAST = Backtest(time="day", horizon=10)
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
    return run.artifact(key, "trials.json")


def search(run: Run, key: str) -> list:
    return [(each["settings"], each["value"], each["state"]) for each in trials(run, key)["trials"]]


@pytest.mark.parametrize("isolation", ["shared", pytest.param("partition", marks=pytest.mark.slow)])
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
    report = (tmp_path / "runs" / run.run_id / "report.html").read_text()
    assert "4 partitions tried 48 settings" in report
    # Nothing of the search is left behind that costs a process, or that is logged.
    assert all(b"study" not in run.logs(key).encode() for key in KEYS)
    if isolation == "shared":
        assert len({row["host"] for row in table}) <= 2
        predicted = run_inference(
            rows, "store", f"tuned-{isolation}", store=tmp_path, cluster=cluster,
            run_id="tuned-predicted",
        )  # fmt: skip
        assert predicted.counts == {"DONE": 4}


def test_a_portfolio_is_found_on_a_sample_and_used_on_all(rows, cluster, tmp_path):
    trainer = LightGBMTrainer(label="y", rounds=20)
    holdout = Backtest(time="day", horizon=10, windows=2)
    common = {"store": tmp_path, "cluster": cluster}
    call = {"sample": 3, "trials": 12, "size": 4, "holdout": holdout, "run_id": "portfolio-found"}
    found = find_portfolio(rows, "store", trainer, SPACE, **call, **common)
    # No command can name rows in memory.
    assert "partwise train --portfolio can try these settings" in next_command(found)[1]
    assert found.counts == {"DONE": 3}
    assert found.kind == "find-portfolio"
    scores = found.predictions().to_pandas()
    assert len(scores) == 3 * 12
    assert scores.groupby("setting").size().unique().tolist() == [3]
    portfolio = found.portfolio
    assert portfolio.settings[0] == {}
    assert 2 <= len(portfolio.settings) <= 4
    assert list(portfolio.regrets) == sorted(portfolio.regrets, reverse=True)
    # What `partwise runs resume` would call.
    kind, arguments = read_arguments(found.read_generation_document().call_known)
    assert kind is PortfolioCall
    assert find_portfolio.validate_parameters({**arguments, "data": rows})["holdout"] == holdout
    kept = find_portfolio(
        rows, "store", trainer, SPACE, **{**call, "size": 2}, **common,
        on_existing_artifacts="resume",
    )  # fmt: skip
    assert kept.portfolio.settings == portfolio.settings[:2]
    tuned = Tuned(trainer, portfolio="portfolio-found", holdout=holdout)
    run = train_models(rows, "store", tuned, run_id="portfolio-used", **common)
    assert run.counts == {"DONE": 4}
    assert {row["trials"] for row in run.partitions.to_pylist()} == {2}
    best = {json.dumps(trials(run, key)["best"]) for key in KEYS}
    assert best <= {json.dumps(settings) for settings in portfolio.settings}
    # What each sampled partition scored in the search is what it scores in use.
    of_key = scores[scores["setting"] == 0].set_index("store")["score"]
    untuned = {row["store"]: row["untuned_rmse"] for row in run.partitions.to_pylist()}
    assert all(untuned[key] == pytest.approx(value) for key, value in of_key.items())
    with pytest.raises(InputError, match="has settings of lightgbm, and xgboost is to be tuned"):
        train_models(
            rows, "store", Tuned(XGBoostTrainer(label="y"), portfolio="portfolio-found"),
            run_id="portfolio-other", **common,
        )  # fmt: skip
    with pytest.raises(InputError, match="'portfolio-used' has no portfolio"):
        train_models(
            rows, "store", Tuned(trainer, portfolio="portfolio-used"), run_id="p-none", **common
        )
    assert not (tmp_path / "runs" / "p-none").exists()


@pytest.mark.slow
def test_the_settings_of_a_train_function_are_found_on_a_sample(rows, cluster, tmp_path):
    by = {"by": [0.5, 0.0, 3.0]}
    common = {"store": tmp_path, "cluster": cluster, "serde": PickleSerde()}
    asked = {"sample": 3, "trials": 4, "size": 2, "sampler": "grid", "label": "y"}
    for place, function in enumerate((fit_shifted, "tests.flows.best_functions:fit_shifted")):
        predict = predict_shifted if place else "tests.flows.best_functions:predict_shifted"
        found = find_portfolio(
            rows, "store", function, by, **asked, predict=predict, store=tmp_path, cluster=cluster,
            run_id=f"function-{place}",
        )  # fmt: skip
        # Best alone is not a shift; the function's own is worse on each.
        assert found.portfolio.settings == ({}, {"by": 0.0})
        _, arguments = read_arguments(found.read_generation_document().call_known)
        again = find_portfolio.validate_parameters({**arguments, "data": rows})
        assert (again["label"], again["predict"] is not None) == ("y", True)
    tuned = Tuned(
        fit_shifted, label="y", predict=predict_shifted, portfolio="function-0", holdout=LAST
    )
    run = train_models(rows, "store", tuned, run_id="function-used", **common)
    assert {row["trials"] for row in run.partitions.to_pylist()} == {2}
    with pytest.raises(InputError, match=r"needs --label, or label= in Python"):
        find_portfolio(
            rows, "store", fit_shifted, by, sample=3, trials=4, sampler="grid", run_id="no-label",
            store=tmp_path, cluster=cluster,
        )  # fmt: skip
    assert not (tmp_path / "runs" / "no-label").exists()


def test_a_resume_searches_only_what_changed(rows, cluster, tmp_path):
    trainer = tuned(budget=Budget(total_trials=40, patience=5), trials=None)
    common = {"store": tmp_path, "cluster": cluster, "run_id": "tuned-resumed"}
    first = train_models(rows, "store", trainer, **common)
    spent = {row["store"]: row["trials"] for row in first.partitions.to_pylist()}
    assert sum(spent.values()) <= 40
    changed = rows.slice(0, rows.num_rows - 1)
    second = train_models(changed, "store", trainer, **common, on_existing_artifacts="resume")
    rows_of = second.ledger.sort_by("partition_id")["generation"].to_pylist()
    assert rows_of == [1, 1, 1, 2]
    third = train_models(
        changed, "store", tuned(trials=5), **common, on_existing_artifacts="resume"
    )
    assert set(third.ledger["generation"].to_pylist()) == {3}


def test_a_budget_that_does_not_reach_is_refused_before_work(rows, cluster, tmp_path):
    with pytest.raises(InputError, match="3 trials is less than one for each of 4 partitions"):
        train_models(
            rows, "store", tuned(budget=Budget(total_trials=3)), store=tmp_path, cluster=cluster,
            run_id="tuned-poor",
        )  # fmt: skip


@pytest.mark.slow
def test_the_same_seed_finds_the_same_on_one_and_on_four_workers(rows, tmp_path):
    found = []
    for workers in (1, len(KEYS)):
        run = train_models(
            rows, "store", tuned(pruner="hyperband"), store=tmp_path,
            cluster=LocalCluster(workers=workers), run_id=f"tuned-on-{workers}",
        )  # fmt: skip
        found.append([search(run, key) for key in KEYS])
    assert found[0] == found[1]
