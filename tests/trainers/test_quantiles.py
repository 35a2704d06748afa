"""Quantiles beside predictions, each by a model of its own."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from partwise.connector.context import PartitionContext
from partwise.connector.data_connector import DataConnector
from partwise.evaluation import Backtest, HoldoutByTime
from partwise.evaluation.scores import Predicted, find_metric
from partwise.flows.cli.options import TrainerOptions
from partwise.models.composite_models import with_quantiles
from partwise.models.serdes import PlainSerde, serde_for
from partwise.trainers import (
    Best,
    Lagged,
    LightGBMTrainer,
    Mean,
    Tuned,
    XGBoostTrainer,
)
from partwise.trainers.candidate import fit_kept, score
from partwise.tuning.space import randint
from tests.trainers.training import predict, train

LEVELS = (0.9, 0.1, 0.025)
COLUMNS = ["prediction", "prediction_q2.5", "prediction_q10", "prediction_q90"]
OF_X = {"label": "y", "features": ("x",), "rounds": 20}


def rows(count=400):
    """Return rows whose label lies between 0 and 10 x, alike."""
    random = np.random.default_rng(1)
    x = random.uniform(1, 2, count)
    days = np.datetime64("2026-01-05") + np.arange(count)
    return pa.table({"day": days, "x": x, "y": 10 * x * random.uniform(size=count)})


@pytest.mark.parametrize(
    ("kind", "params_of"),
    [
        (LightGBMTrainer, lambda q: {"objective": "quantile", "alpha": q}),
        (XGBoostTrainer, lambda q: {"objective": "reg:quantileerror", "quantile_alpha": q}),
    ],
)
def test_each_is_what_a_run_of_its_own_would_predict(kind, params_of, tmp_path):
    known, future = rows().slice(0, 350), rows().slice(350)
    result = train(kind(**OF_X, quantiles=LEVELS), known)
    path = str(tmp_path / "model.json")
    serde_for(result.model).write(result.model, path)
    found = predict(PlainSerde().read(path), future)
    assert list(found) == COLUMNS
    alone = train(kind(**OF_X), known)
    assert np.array_equal(found["prediction"], predict(alone.model, future))
    singles = [
        predict(train(kind(**OF_X, params=params_of(q)), known).model, future)
        for q in sorted(LEVELS)
    ]
    assert np.array_equal(np.stack([found[name] for name in COLUMNS[1:]]), np.sort(singles, axis=0))
    share = np.mean(future["y"].to_numpy() <= found["prediction_q90"])
    assert 0.6 < share < 1
    assert {*result.metrics} - {*alone.metrics} == {
        *("holdout_pinball_q2.5", "holdout_pinball_q10", "holdout_pinball_q90"),
        "holdout_crossed",
    }
    assert {name: result.metrics[name] for name in alone.metrics} == alone.metrics


def test_pinball_is_that_of_the_metric_of_this_name():
    table, holdout = rows(), HoldoutByTime("day")
    trainer = LightGBMTrainer(**OF_X, quantiles=(0.9,), holdout=holdout, fit_on="train")
    result = train(trainer, table)
    late = table.filter(pa.array(holdout.mask(table, 0)))
    found = predict(result.model, late)["prediction_q90"]
    predicted = Predicted(labels=late["y"].to_numpy(), predictions=found)
    assert result.metrics["holdout_pinball_q90"] == find_metric("pinball:0.9")(predicted)


@pytest.mark.parametrize(
    ("kind", "metric", "objective"),
    [
        (LightGBMTrainer, {"metric": "l2"}, {"objective": "quantile", "alpha": 0.9}),
        (
            XGBoostTrainer,
            {"eval_metric": "rmse"},
            {"objective": "reg:quantileerror", "quantile_alpha": 0.9},
        ),
    ],
)
def test_a_quantile_stops_by_its_own_loss(kind, metric, objective):
    known = rows()
    settings = {**OF_X, "rounds": 200, "early_stopping_rounds": 3}
    both = train(kind(**settings, quantiles=(0.9,), params=metric), known).model
    alone = train(kind(**settings, params=objective), known).model
    found = predict(both, known)["prediction_q90"]
    assert np.array_equal(found, predict(alone, known))


def test_each_quantile_has_a_column_of_its_own():
    found = with_quantiles(np.zeros(1), (0.07, 0.99999985, 0.9999999), [np.zeros(1)] * 3)
    assert [*found][1:] == ["prediction_q7", "prediction_q99.999985", "prediction_q99.99999"]


@given(arrays(np.float64, (3, 7), elements=st.floats(-1e6, 1e6)))
def test_crossing_quantiles_are_put_in_order_and_no_worse_for_it(found):
    labels = np.linspace(-1e6, 1e6, 7)
    quantiles = (0.1, 0.5, 0.9)
    columns = with_quantiles(np.zeros(7), quantiles, list(found))
    ordered = np.stack([columns[f"prediction_q{each}"] for each in (10, 50, 90)])
    assert (np.diff(ordered, axis=0) >= 0).all()

    def loss(predictions):
        metrics = [find_metric(f"pinball:{quantile}") for quantile in quantiles]
        return sum(
            metric(Predicted(labels=labels, predictions=each))
            for metric, each in zip(metrics, predictions, strict=True)
        )

    assert loss(ordered) <= loss(found) * (1 + 1e-12) + 1e-9


def test_the_share_of_rows_in_which_they_crossed_is_said():
    trainer = LightGBMTrainer(**OF_X, quantiles=(0.5, 0.51, 0.52), params={"min_data_in_leaf": 3})
    prepared = trainer.prepare(DataConnector(rows(60)), PartitionContext(seed=3))
    test = np.arange(60) >= 40
    fit = prepared.fit(~test, test)
    asked = rows(60)["x"].to_numpy()[test, None]
    raw = np.stack([each.predict(asked) for each in fit.model.models])
    crossed = (np.diff(raw, axis=0) < 0).any(axis=0).mean()
    assert fit.metrics == {"crossed": crossed}
    assert crossed > 0


@pytest.mark.parametrize("strategy", ["recursive", "direct"])
def test_forecasts_have_quantiles_and_bounds(strategy, tmp_path):
    inner = LightGBMTrainer(**OF_X, quantiles=(0.1, 0.9))
    holdout = Backtest(time="day", horizon="5D", windows=2)
    settings = {"lags": (2, 7), "horizon": 5, "strategy": strategy, "holdout": holdout}
    trainer = Lagged(inner, **settings, intervals=(0.8,))
    known, future = rows(60).slice(0, 50), rows(60).slice(50, 5).drop_columns(["y"])
    result = train(trainer, known)
    assert result.metrics["holdout_pinball_q90"] > 0
    path = str(tmp_path / "model.json")
    PlainSerde().write(result.model, path)
    order = np.array([3, 0, 4, 1, 2])
    found = predict(PlainSerde().read(path), future.take(order))
    columns = ["prediction", "prediction_q10", "prediction_q90"]
    assert list(found) == [*columns, "prediction_lower_80", "prediction_upper_80"]
    in_order = predict(result.model, future)
    for name, values in found.items():
        assert np.array_equal(values, np.asarray(in_order[name])[order])
    plain = Lagged(
        LightGBMTrainer(**OF_X), lags=(2, 7), horizon=5, strategy=strategy, holdout=holdout
    )
    assert np.array_equal(in_order["prediction"], predict(train(plain, known).model, future))


def test_they_go_with_candidates_and_with_settings_that_are_searched():
    booster = LightGBMTrainer(**OF_X, quantiles=(0.1,))
    best = train(Best([Mean(), booster], label="y"), rows())
    tuned = train(Tuned(booster, {"num_leaves": randint(2, 5)}, trials=2), rows())
    for result in (best, tuned):
        assert list(predict(result.model, rows(5))) == ["prediction", "prediction_q10"]
        assert result.metrics["holdout_pinball_q10"] > 0


def test_the_kept_model_of_all_rows_has_them_too():
    booster = LightGBMTrainer(**OF_X, quantiles=(0.1,))
    prepared = booster.prepare(DataConnector(rows()), PartitionContext(seed=3))
    split = HoldoutByTime("day").splits(rows(), 0)
    scored = score(prepared, split)
    assert len(fit_kept(prepared, scored, "all", None).model.models) == 1


@pytest.mark.parametrize("kind", [LightGBMTrainer, XGBoostTrainer])
def test_each_kept_model_has_the_rounds_at_which_those_that_are_scored_stopped(kind):
    random = np.random.default_rng(0)
    x = random.uniform(0, 10, 900)
    # The mean says nothing, so that its model stops at once; the spread is all that there is.
    table = pa.table({"day": np.arange(900), "x": x, "y": random.normal(size=900) * (1 + x)})
    holdout = Backtest(time="day", horizon=150, windows=3)
    settings = {**OF_X, "rounds": 60, "quantiles": (0.9, 0.1), "early_stopping_rounds": 10}
    booster = kind(**settings, holdout=holdout)
    prepared = booster.prepare(DataConnector(table), PartitionContext(seed=3))
    fits = [prepared.fit(each.train, each.test) for each in holdout.splits(table, 3)]

    def rounds_of(model):
        counted = "num_trees" if kind is LightGBMTrainer else "num_boosted_rounds"
        return [getattr(each, counted)() for each in (model.model, *model.models)]

    medians = np.median([rounds_of(fit.model) for fit in fits], axis=0).tolist()
    assert medians[0] < min(medians[1:])

    for trainer in (
        booster,
        Best([booster], holdout=holdout),
        Tuned(booster, {"max_depth": [6]}, trials=1, holdout=holdout),
    ):
        result = train(trainer, table)
        assert rounds_of(result.model) == medians
        assert result.metrics["rounds"] == medians[0]


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"quantiles": (0.0,)}, "greater than 0"),
        ({"quantiles": (0.5, 0.5)}, "named twice"),
        ({"quantiles": (0.5,), "params": {"objective": "binary"}}, "quantiles are of numbers"),
    ],
)
def test_what_has_no_quantiles_is_refused(settings, reason):
    with pytest.raises(ValueError, match=reason):
        LightGBMTrainer(label="y", **settings)


def test_the_command_line_has_them():
    options = TrainerOptions(trainer="lightgbm", label="y", quantiles=("0.1,0.9",))
    assert options.build() == LightGBMTrainer(label="y", quantiles=(0.1, 0.9))
