"""Bounds beside predictions, by how far off these were on rows held out."""

from math import ceil

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from partwise.errors import InputError
from partwise.evaluation import Backtest, CrossValidation
from partwise.evaluation.intervals import half_widths
from partwise.evaluation.predictions import prediction_array
from partwise.flows.cli.options import TrainerOptions
from partwise.models.serdes import PlainSerde, serde_for
from partwise.trainers import (
    Best,
    Lagged,
    LastValue,
    LightGBMTrainer,
    Linear,
    Mean,
    Tuned,
    XGBoostTrainer,
)
from partwise.tuning.space import randint
from tests.trainers.training import predict, train


def fit(data, context):
    """Stands for a train function of a user's."""


def rows(count=60):
    random = np.random.default_rng(1)
    x = random.normal(size=count)
    days = np.datetime64("2026-01-05") + np.arange(count)
    return pa.table({"day": days, "x": x, "y": 3 * x + random.normal(size=count)})


@given(
    st.lists(st.floats(-1e6, 1e6), max_size=60),
    st.lists(st.sampled_from([0.5, 0.55, 0.8, 0.9, 0.95, 0.999]), unique=True),
)
def test_so_many_of_the_residuals_are_within_as_a_label_more_has_to_be(residuals, levels):
    found = half_widths(np.array(residuals), levels)
    for level, width in zip(levels, found, strict=True):
        wanted = ceil(round(level * (len(residuals) + 1), 9))
        if wanted > len(residuals):
            assert width is None
            continue
        assert sum(abs(each) <= width for each in residuals) >= wanted
        assert sum(abs(each) < width for each in residuals) < wanted


@pytest.mark.parametrize(("count", "level"), [(9, 0.8), (19, 0.9), (19, 0.95), (50, 0.55)])
def test_labels_of_the_same_kind_are_within_as_often_as_is_asked_for(count, level):
    drawn = np.random.default_rng(count).standard_t(3, size=(4000, count + 1))
    within = [abs(each[-1]) <= half_widths(each[:-1], [level])[0] for each in drawn]
    exactly = ceil(round(level * (count + 1), 9)) / (count + 1)
    assert np.mean(within) == pytest.approx(exactly, abs=4 * np.sqrt(0.25 / 4000))


TRAINERS = [
    LightGBMTrainer(label="y", features=("x",), rounds=5, intervals=(0.5, 0.9)),
    XGBoostTrainer(label="y", features=("x",), rounds=5, intervals=(0.5, 0.9)),
    Linear(label="y", features=("x",), intervals=(0.5, 0.9)),
    Lagged(Linear(label="y", features=("x",)), time="day", intervals=(0.5, 0.9)),
    LastValue(label="y", time="day", intervals=(0.5, 0.9)),
    Best([Mean(), Linear(features=("x",))], label="y", intervals=(0.5, 0.9)),
    Tuned(
        LightGBMTrainer(label="y", features=("x",), rounds=5),
        {"num_leaves": randint(2, 5)},
        trials=2,
        intervals=(0.5, 0.9),
    ),
    Linear(
        label="y",
        features=("x",),
        intervals=(0.5, 0.9),
        holdout=Backtest(time="day", horizon="6D", windows=2),
    ),
    Linear(label="y", features=("x",), intervals=(0.5, 0.9), holdout=CrossValidation(folds=3)),
]


@pytest.mark.parametrize("trainer", TRAINERS, ids=lambda each: each.kind)
def test_bounds_stand_beside_the_predictions_that_there_are_without_them(trainer, tmp_path):
    known, future = rows().slice(0, 50), rows().slice(50).drop_columns(["y"])
    plain = train(trainer.model_copy(update={"intervals": ()}), known)
    result = train(trainer, known)
    path = str(tmp_path / "model.json")
    serde_for(result.model).write(result.model, path)
    found = predict(PlainSerde().read(path), future)
    assert list(found) == [
        "prediction",
        *("prediction_lower_50", "prediction_upper_50"),
        *("prediction_lower_90", "prediction_upper_90"),
    ]
    assert np.array_equal(found["prediction"], predict(plain.model, future))
    assert np.array_equal(prediction_array(found, 10), found["prediction"])
    names = {name for name in result.metrics if "seconds" not in name}
    assert names - {*plain.metrics} == {"interval_rows"}
    assert result.metrics["interval_rows"] == {"backtest": 12, "cross_validation": 50}.get(
        trainer.holdout.kind, 10
    )
    inner, outer = (found[f"prediction_upper_{each}"] - found["prediction"] for each in (50, 90))
    assert (inner > 0).all()
    assert (inner <= outer).all()
    assert np.allclose(found["prediction"] - found["prediction_lower_50"], inner)


def test_residuals_are_those_of_all_windows_by_the_models_before_each():
    table = rows(40)
    holdout = Backtest(time="day", horizon="5D", windows=3)
    result = train(LastValue(label="y", time="day", holdout=holdout, intervals=(0.8,)), table)
    y = table["y"].to_numpy()
    errors = [abs(y[end - 5 : end] - y[end - 6]) for end in (30, 35, 40)]
    # 13 of 15: 0.8 of 16 is 12.8.
    assert result.model.half_widths == (pytest.approx(np.sort(np.concatenate(errors))[12]),)


def test_bounds_are_null_where_too_few_rows_were_scored(caplog):
    table = rows(30)
    result = train(Linear(label="y", features=("x",), intervals=(0.8, 0.95)), table)
    assert "6 rows scored are too few for intervals of 0.95: their bounds are null" in caplog.text
    found = predict(result.model, table)
    assert found["prediction_lower_95"].null_count == 30
    assert np.isfinite(found["prediction_lower_80"]).all()


@pytest.mark.parametrize(
    ("trainer", "reason"),
    [
        (lambda: Linear(label="y", intervals=(1.5,)), "less than 1"),
        (lambda: Linear(label="y", intervals=(0.5, 0.5)), "named twice"),
        (lambda: Linear(label="y", intervals=(0.5,), holdout=None), "need a holdout"),
        (
            lambda: Linear(label="y", predicts="binary", intervals=(0.5,)),
            "intervals are of numbers",
        ),
        (lambda: Best([Mean(intervals=(0.5,))], label="y"), "give intervals to Best"),
        (lambda: Best([Mean(), fit], label="y", intervals=(0.5,)), "'fit' is a function"),
        (lambda: Lagged(Linear(label="y", intervals=(0.5,)), time="day"), "to Lagged"),
        (lambda: Tuned(Mean(label="y", intervals=(0.5,)), {"a": randint(1, 2)}), "to Tuned"),
    ],
)
def test_what_cannot_have_bounds_is_refused_before_any_work(trainer, reason):
    with pytest.raises((ValueError, InputError), match=reason):
        trainer().check(rows().schema)


def test_the_command_line_has_them():
    options = {"label": "y", "intervals": ("0.8,0.95",), "time": "day"}
    mean = TrainerOptions(trainer="mean", label="y", intervals=("0.8",)).build()
    assert mean == Mean(label="y", intervals=(0.8,))
    best = TrainerOptions(trainer="best", candidate=("mean,last_value",), **options).build()
    candidates = [Mean(label="y"), LastValue(label="y", time="day")]
    assert best == Best(candidates, label="y", intervals=(0.8, 0.95))
    lagged = TrainerOptions(trainer="linear", lags=("1",), **options).build()
    assert lagged == Lagged(Linear(label="y"), time="day", intervals=(0.8, 0.95))
