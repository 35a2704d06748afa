"""A run in which each partition has the model of its own best trainer: inference and exports."""

from datetime import date

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from partwise.engine.options import ExecutionOptions
from partwise.errors import ColumnError, InputError
from partwise.evaluation import Backtest
from partwise.flows import export_models, run_inference, train_models
from partwise.outcomes import RunStatus
from partwise.reports.report import render_report
from partwise.runs.run import Run
from partwise.trainers import Best, LightGBMTrainer, Linear, Mean, SeasonalNaive
from tests.flows.best_functions import fit_nothing

DAYS = 140
BEST = {"stump": "lightgbm", "line": "linear", "week": "seasonal_naive"}
"""What each partition's labels are made for."""
FAILING = "tests.flows.best_functions:fit_nothing"


def trainer(*more, rounds: int = 30) -> Best:
    boosted = LightGBMTrainer(label="value", rounds=rounds, params={"min_data_in_leaf": 5})
    return Best(
        [boosted, Linear(), SeasonalNaive(season=7), FAILING, *more],
        holdout=Backtest(time="day", horizon="7D", windows=2),
    )


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return tmp_path_factory.mktemp("best")


@pytest.fixture(scope="module")
def data(store):
    chance = np.random.default_rng(4)
    tables = []
    for key in BEST:
        x = chance.normal(size=DAYS)
        place = np.arange(DAYS)
        value = {
            "stump": np.where(x > 0, 10.0, 2.0),
            "line": 5 * x,
            "week": 10.0 * (place % 7 == 3) + 3 * (place % 7 == 5),
        }[key]
        day = np.datetime64("2026-03-01") + place
        tables.append(pa.table({"shop": [key] * DAYS, "day": day, "x": x, "value": value}))
    path = store / "rows.parquet"
    pq.write_table(pa.concat_tables(tables), path)
    return str(path)


@pytest.fixture(scope="module")
def trained(data, store, cluster) -> Run:
    return train_models(
        data, "shop", trainer(), run_id="best-of-four", store=store, cluster=cluster,
        execution=ExecutionOptions(n_shards=1),
    )  # fmt: skip


def test_each_partition_keeps_the_model_of_its_best_candidate(trained):
    assert trained.status is RunStatus.SUCCESS
    rows = {row["shop"]: row for row in trained.partitions.to_pylist()}
    assert {key: row["candidate"] for key, row in rows.items()} == BEST
    for key, row in rows.items():
        scores = {name: row[f"candidate_{name}_rmse"] for name in BEST.values()}
        assert row["holdout_rmse"] == scores[BEST[key]] == min(scores.values())
        told = trained.artifact(key, "candidates.json")
        assert [each["candidate"] for each in told if each["best"]] == [BEST[key]]
        assert told[-1]["reason"] == "ValueError: this candidate fails"
    names = {key: type(trained.model(key)).__name__ for key in BEST}
    assert names == {"stump": "Booster", "line": "LinearModel", "week": "ForecastModel"}
    assert "The best candidate, by partitions:" in render_report(trained)


def test_models_of_several_kinds_predict_in_one_inference(trained, data, store, cluster):
    late = pq.read_table(data).filter(pc.field("day") > date(2026, 7, 10))
    run = run_inference(
        late, "shop", trained.run_id, run_id="best-inferred", store=store, cluster=cluster,
        keep_columns=["value"],
    )  # fmt: skip
    assert run.status is RunStatus.SUCCESS
    found = run.predictions()
    assert found.num_rows == late.num_rows
    errors = np.abs(found["prediction"].to_numpy() - found["value"].to_numpy())
    assert errors.max() < 0.5


@pytest.mark.slow
def test_an_export_refuses_the_kinds_that_have_no_exporter_by_name(trained, store, cluster):
    run = export_models(trained.run_id, run_id="best-onnx", store=store, cluster=cluster)
    assert run.status is RunStatus.PARTIAL_FAILURE
    rows = {row["shop"]: row for row in run.partitions.to_pylist()}
    assert rows["stump"]["status"] == "DONE"
    for key, kind in (("line", "LinearModel"), ("week", "ForecastModel")):
        assert kind in rows[key]["error_message"]
        assert "cannot be exported to onnx" in rows[key]["error_message"]


def test_a_resume_runs_again_when_the_candidates_have_changed(trained, data, store, cluster):
    def resume(changed: Best) -> Run:
        return train_models(
            data, "shop", changed, run_id=trained.run_id, store=store, cluster=cluster,
            execution=ExecutionOptions(n_shards=1), on_existing_artifacts="resume",
        )  # fmt: skip

    same = resume(trainer())
    assert (same.kept, same.executed) == (3, 0)
    # By its name or itself, a function is the same.
    itself = trainer().model_copy(update={"candidates": (*trainer().candidates[:-1], fit_nothing)})
    same = resume(itself)
    assert (same.kept, same.executed) == (3, 0)
    more = resume(trainer(Mean()))
    assert (more.kept, more.executed) == (0, 3)
    assert "candidate_mean_rmse" in more.partitions.column_names


@pytest.mark.parametrize(
    ("wrong", "error", "reason"),
    [
        (lambda: Best([Mean(label="value"), "nowhere:fit"]), InputError, "nowhere"),
        (lambda: Best([Mean(label="value"), Mean(label="x")]), ColumnError, "'x'.*'value'"),
        (lambda: Best([Mean(label="value")], metric="best"), InputError, "no metric 'best'"),
        (lambda: Best([Mean(label="value")], metric="auc"), InputError, "none of a regression"),
        (lambda: Best([Mean(label="value")], metric="mase"), InputError, "order in time"),
        (lambda: Best([SeasonalNaive(label="value")]), ColumnError, "no time column"),
    ],
)
def test_what_cannot_be_compared_is_refused_before_any_work(data, store, wrong, error, reason):
    with pytest.raises(error, match=reason):
        train_models(data, "shop", wrong(), run_id="best-refused", store=store)
