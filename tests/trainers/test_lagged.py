"""Forecasts by trainers of features that have earlier labels among these."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter

from partwise.errors import ColumnError, InputError, SerdeError
from partwise.evaluation import Backtest, HoldoutByTime
from partwise.flows.cli.options import TrainerOptions
from partwise.models.composite_models import with_lags
from partwise.models.serdes import PlainSerde, serde_for
from partwise.outcomes import Skip
from partwise.trainers import (
    Best,
    Lagged,
    LastValue,
    LightGBMTrainer,
    Linear,
    RandomForest,
    StatsForecast,
    TrainerSettings,
    Tuned,
    XGBoostTrainer,
)
from partwise.tuning.space import randint
from tests.trainers import training
from tests.trainers.mlforecast_values import (
    BOOSTER,
    CASES,
    HORIZON,
    LENGTH,
    ROUNDS,
    columns,
)
from tests.trainers.training import train

RECORDED = Path(__file__).with_name("mlforecast_values.json")
LINEAR = Linear(label="y", params={"alpha": 1e-9})


def predict(model, table):
    return training.predict(model, table).tolist()


def test_the_hour_that_clocks_show_twice_is_forecast_from_its_first_time(tmp_path):
    # Of Berlin: 00:00 UTC is 02:00, and so is 01:00, when it is winter.
    hours = pa.array(np.arange("2025-10-20T00", "2025-10-27T01", dtype="M8[h]").astype("M8[us]"))
    hours = hours.cast(pa.timestamp("us", "UTC")).cast(pa.timestamp("us", "Europe/Berlin"))
    table = pa.table({"at": hours, "y": np.arange(169.0)})
    trainer = Lagged(LINEAR, lags=(1, 24), time="at", horizon=48)
    backtest = Backtest(time="at", horizon="24h")
    found = train(trainer.model_copy(update={"holdout": backtest}), table)
    assert found.metrics["holdout_rows"] == 24
    model = train(trainer, table.slice(0, 145)).model
    asked = table.select(["at"]).slice(145)
    forecast = predict(model, asked)
    assert forecast[0] == forecast[1] == pytest.approx(145)
    path = str(tmp_path / "model.json")
    PlainSerde().write(model, path)
    assert predict(PlainSerde().read(path), asked) == forecast
    # As it was kept before it knew the instant of its last row.
    kept = json.loads(Path(path).read_text())
    del kept["scale"]["last_instant"]
    Path(path).write_text(json.dumps({**kept, "format_version": 3}))
    old = PlainSerde().read(path)
    assert predict(old, asked.slice(1)) == pytest.approx(forecast[1:])
    with pytest.raises(InputError, match="a row is at step 0"):
        predict(old, asked)


def days(count, start="2026-01-05"):
    return np.datetime64(start) + np.arange(count)


def counting(count, more=()):
    """Return a series that counts on, which lags of 1 and a mean of 2 say all of."""
    return pa.table({"ds": days(count), "y": np.arange(float(count)), **dict(more)})


@pytest.mark.parametrize("series", [0, 1])
@pytest.mark.parametrize("name", CASES)
def test_forecasts_are_those_of_mlforecast_to_the_bit(name, series, tmp_path):
    case = dict(CASES[name])
    rows = columns(series)
    if not case.pop("covariates", False):
        rows = {name: rows[name] for name in ("ds", "y")}
    table = pa.table(rows)
    booster = LightGBMTrainer(label="y", rounds=ROUNDS, params=BOOSTER)
    trainer = Lagged(booster, time="ds", horizon=HORIZON, **case)
    # The order of rows says nothing.
    known = table.slice(0, LENGTH).take(np.random.default_rng(series).permutation(LENGTH))
    model = train(trainer, known).model
    path = str(tmp_path / "model.json")
    serde_for(model).write(model, path)
    future = table.slice(LENGTH).drop_columns(["y"])
    expected = json.loads(RECORDED.read_text())[name][series]
    assert predict(PlainSerde().read(path), future) == expected
    assert predict(model, future.take(np.arange(HORIZON)[::-1])) == expected[::-1]
    assert predict(model, future.slice(0, 5)) == expected[:5]


@pytest.mark.slow
def test_what_is_recorded_is_what_mlforecast_says():
    python = Path(sys.prefix).with_name(".venv-peers") / "bin" / "python"
    if not python.exists():
        pytest.skip("mlforecast is in .venv-peers, which is not made")
    script = Path(__file__).with_name("mlforecast_values.py")
    found = subprocess.run([python, script], check=True, capture_output=True, text=True).stdout
    assert json.loads(found) == json.loads(RECORDED.read_text())


@pytest.mark.parametrize("strategy", ["recursive", "direct"])
@pytest.mark.parametrize(
    "inner",
    [
        LightGBMTrainer(label="y", rounds=3),
        XGBoostTrainer(label="y", rounds=3),
        LINEAR,
        RandomForest(label="y", params={"n_estimators": 3}),
    ],
    ids=lambda inner: inner.kind,
)
def test_any_trainer_of_features_can_be_lagged(inner, strategy, tmp_path):
    trainer = Lagged(inner, lags=(1, 2), means=(2,), time="ds", horizon=3, strategy=strategy)
    model = train(trainer, counting(40), seed=4).model
    future = pa.table({"ds": days(3, "2026-02-14")})
    path = str(tmp_path / "model.json")
    PlainSerde().write(model, path)
    found = predict(PlainSerde().read(path), future)
    assert found == predict(model, future)
    assert np.isfinite(found).all()
    if inner is LINEAR:
        assert found == pytest.approx([40, 41, 42])


def test_it_is_scored_by_its_own_forecasts_and_goes_on_from_the_newest_row():
    # By the labels of the holdout, a lag of 1 would repeat each of them without an error.
    flat = np.append(np.zeros(36), np.full(9, 5.0))
    table = pa.table({"ds": days(45), "y": flat})
    result = train(Lagged(LINEAR, lags=(1,), time="ds"), table)
    assert result.metrics["holdout_mae"] == pytest.approx(5)
    assert result.metrics["train_rows"] == 45
    assert predict(result.model, pa.table({"ds": days(1, "2026-02-19")}))[0] > 4


@settings(max_examples=50, deadline=None)
@given(
    lags=st.lists(st.integers(1, 6), min_size=1, max_size=3, unique=True),
    means=st.lists(st.integers(1, 5), max_size=2, unique=True),
    missing=st.sets(st.integers(1, 28), max_size=8),
)
def test_features_look_at_earlier_steps_alone(lags, means, missing):
    values = np.arange(30.0) ** 2
    values[sorted(missing)] = np.nan
    places = np.arange(12, 30)
    table = pa.table({"place": places})
    found = with_lags(table, values, places, tuple(lags), tuple(means))
    for place, row in zip(places, found.to_pylist(), strict=True):
        for lag in lags:
            assert np.array_equal(row[f"lag{lag}"], values[place - lag], equal_nan=True)
        for window in means:
            last = place - min(lags)
            known = [v for v in values[last - window + 1 : last + 1] if v == v]
            expected = np.mean(known) if known else np.nan
            assert row[f"lag{min(lags)}_mean{window}"] == pytest.approx(expected, nan_ok=True)


@settings(max_examples=25, deadline=None)
@given(st.sets(st.integers(1, 20), min_size=1), st.randoms(use_true_random=False))
def test_rows_to_come_may_have_any_order_and_gaps(steps, random):
    table = counting(40)
    model = train(Lagged(LINEAR, lags=(2, 3), time="ds", horizon=20), table).model
    asked = random.sample(sorted(steps), len(steps))
    future = pa.table({"ds": days(20, "2026-02-14")[np.array(asked) - 1]})
    assert predict(model, future) == pytest.approx([39 + step for step in asked])


def test_days_of_a_working_week_are_steps():
    times = np.busday_offset("2026-01-05", np.arange(50))
    table = pa.table({"ds": times[:40], "y": np.arange(40.0)})
    model = train(Lagged(LINEAR, lags=(1, 5), time="ds"), table).model
    assert model.scale.unit == "business_days"
    assert predict(model, pa.table({"ds": times[40:]})) == pytest.approx(range(40, 50))


@pytest.mark.parametrize(
    ("trainer", "error", "reason"),
    [
        (lambda: Lagged(LINEAR), ColumnError, "knows no time column"),
        (lambda: Lagged(LINEAR, time="ds", lags=(1, 1)), ValueError, "names a number twice"),
        (lambda: Lagged(LINEAR, time="ds", lags=()), ValueError, "at least 1"),
        (lambda: Lagged(LastValue(), time="ds"), ValueError, "trainer"),
        (lambda: Lagged(Linear(predicts="binary"), label="y"), ValueError, "predicts for binary"),
        (lambda: Lagged(LINEAR, label="z", time="ds"), ValueError, "and Lagged 'z'"),
        (
            lambda: Lagged(LightGBMTrainer(label="y", early_stopping_rounds=2), time="ds"),
            ValueError,
            "one step ahead only",
        ),
        (
            lambda: Lagged(Linear(label="y", holdout=HoldoutByTime("ds"))),
            ValueError,
            "give holdout to Lagged",
        ),
        (
            lambda: Lagged(Linear(label="y", features=("gone",)), time="ds"),
            ColumnError,
            "'gone' are missing",
        ),
        (lambda: Lagged(LINEAR, time="ds", lags=(3,)), ColumnError, "have a column 'lag3'"),
    ],
)
def test_what_cannot_be_is_refused_before_any_work(trainer, error, reason):
    with pytest.raises(error, match=reason):
        trainer().check(counting(3, {"lag3": np.zeros(3)}).schema, frozenset(), ())


@pytest.mark.parametrize("holdout", [None, Backtest(time="ds", horizon="3D", windows=2)])
def test_direct_models_are_scored_on_later_steps_by_going_on(holdout):
    chosen = {"time": "ds"} if holdout is None else {"holdout": holdout}
    result = train(Lagged(LINEAR, strategy="direct", horizon=3, **chosen), counting(40))
    assert result.metrics["holdout_rows"] == (8 if holdout is None else 6)
    assert result.metrics["holdout_mae"] == pytest.approx(0, abs=1e-6)
    assert len(result.model.models) == 3
    with pytest.raises(InputError, match="predicts the 3 steps of time after the last row"):
        predict(result.model, pa.table({"ds": days(4, "2026-02-14")}))


def test_a_series_too_short_is_skipped():
    outcome = train(Lagged(LINEAR, lags=(7,), time="ds", holdout=None), counting(7))
    assert isinstance(outcome, Skip)
    assert outcome.reason == "too short: 7 steps of time, and 8 are needed"


@pytest.mark.parametrize("trainer", [Lagged(LINEAR, label="y"), StatsForecast("Naive", label="y")])
def test_rows_far_ahead_are_not_stepped_to(trainer):
    times = np.datetime64("2026-01-05T00:00:00") + np.append(np.arange(40), 10**12 + 39)
    table = pa.table({"ds": times, "y": np.arange(41.0)})
    holdout = HoldoutByTime("ds", start="2027-01-01")
    outcome = train(trainer.model_copy(update={"time": "ds", "holdout": holdout}), table)
    assert "up to 1000000000000 steps after 40 rows, which is not a series" in outcome.reason


def test_a_young_series_is_scored_on_all_that_came_after():
    table = counting(150)
    holdout = HoldoutByTime("ds", start=str(table["ds"][12].as_py()))
    result = train(Lagged(LINEAR, time="ds", holdout=holdout), table)
    assert result.metrics["holdout_rows"] == 138
    assert result.metrics["holdout_mae"] < 1


def test_settings_come_back_from_json():
    trainer = Lagged(LINEAR, lags=(1, 7), means=(7,), time="ds", strategy="direct", horizon=7)
    for each in (trainer, Best([trainer], label="y"), Tuned(trainer, {"alpha": randint(1, 9)})):
        written = json.loads(each.model_dump_json())
        assert TypeAdapter(TrainerSettings).validate_python(written) == each


def test_a_lack_of_what_is_to_be_known_is_said():
    table = counting(40, {"price": np.arange(40.0) % 3})
    model = train(Lagged(LINEAR, time="ds"), table).model
    with pytest.raises(ColumnError, match="price"):
        predict(model, pa.table({"ds": days(2, "2026-02-14")}))


def test_it_is_a_candidate_and_can_be_tuned():
    table = counting(40)
    best = Best([LastValue(), Lagged(LINEAR)], label="y", holdout=HoldoutByTime("ds"))
    result = train(best, table)
    assert result.candidate == "lagged_linear"
    assert predict(result.model, pa.table({"ds": days(1, "2026-02-14")})) == pytest.approx([40])
    booster = LightGBMTrainer(label="y", rounds=2)
    tuned = Tuned(Lagged(booster, time="ds"), {"num_leaves": randint(2, 9)}, trials=2)
    assert train(tuned, table).metrics["trials"] == 2


def test_the_command_line_makes_one():
    options = TrainerOptions(
        trainer="lightgbm", label="y", lags=("1,7",), lag_means=("7",), time="ds", horizon=14
    )
    booster = LightGBMTrainer(label="y")
    assert options.build() == Lagged(booster, lags=(1, 7), means=(7,), time="ds", horizon=14)
    with pytest.raises(InputError, match="--horizon goes with --lags"):
        TrainerOptions(trainer="lightgbm", label="y", horizon=14).build()
    with pytest.raises(InputError, match="--lags goes with trainers of features"):
        TrainerOptions(trainer="mean", label="y", lags=("1",)).build()


@pytest.mark.parametrize("inside", ["pickle", "torch", "gone"])
def test_a_file_cannot_have_a_program_inside(inside, tmp_path):
    path = tmp_path / "model.json"
    PlainSerde().write(train(Lagged(LINEAR, time="ds"), counting(40)).model, str(path))
    written = json.loads(path.read_text())
    assert written["format_version"] == 3
    written["models"][0]["serde"] = inside
    path.write_text(json.dumps(written))
    with pytest.raises(SerdeError, match=f"a model inside has the format '{inside}'"):
        PlainSerde().read(str(path))
