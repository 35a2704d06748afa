"""Forecasts by time: scored on what is after the rows trained on, and kept of all rows."""

import json
import sys
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from partwise.connector.context import MemoryLink, PartitionContext
from partwise.connector.data_connector import DataConnector
from partwise.errors import ColumnError, InputError
from partwise.evaluation import Backtest, CrossValidation, HoldoutByTime, HoldoutFraction
from partwise.flows.cli.options import TrainerOptions
from partwise.models.serdes import PlainSerde
from partwise.outcomes import Skip
from partwise.trainers import (
    Best,
    LastValue,
    Linear,
    Mean,
    SeasonalNaive,
    StatsForecast,
    Tuned,
)
from partwise.tuning.space import choice
from tests.trainers import training
from tests.trainers.training import train

BY_DAY = {"label": "y", "time": "day"}
NAMED = SeasonalNaive(**BY_DAY)
"""What "package.module:trainer" stands for."""


def series(times, labels=None, order=7):
    """Return rows in no order, whose labels count on in time."""
    labels = np.arange(len(times), dtype=float) if labels is None else labels
    shuffled = np.random.default_rng(order).permutation(len(times))
    return pa.table({"day": times, "y": labels}).take(pa.array(shuffled))


def days(count, start="2026-01-05"):
    return np.datetime64(start) + np.arange(count)


def predict(model, times):
    return np.asarray(training.predict(model, pa.table({"day": times}))).tolist()


STATISTICAL = pytest.param(
    StatsForecast("Naive", **BY_DAY, horizon=5), marks=pytest.mark.slow, id="statsforecast"
)
"""It imports numba."""


@pytest.mark.parametrize(
    "trainer",
    [
        LastValue(**BY_DAY),
        SeasonalNaive(**BY_DAY),
        LastValue(**BY_DAY, holdout=HoldoutFraction(fraction=0.5)),
        LastValue(label="y", holdout=HoldoutByTime(column="day")),
        LastValue(label="y", holdout=Backtest(time="day", horizon="3D", windows=2)),
        LastValue(**BY_DAY, holdout=None),
        Best([LastValue(**BY_DAY)]),
        Best([Mean(), LastValue(time="day")], label="y", holdout=HoldoutFraction(fraction=0.3)),
        Best([LastValue()], label="y", holdout=HoldoutByTime(column="day")),
        Best([f"{__name__}:NAMED"], label="y"),
        Best([Tuned(SeasonalNaive(**BY_DAY), {"season": choice([1])}, trials=1)]),
        Tuned(SeasonalNaive(**BY_DAY), {"season": choice([1])}, trials=1),
        Tuned(f"{__name__}:NAMED", {"season": choice([1])}, trials=1, label="y"),
        TrainerOptions(trainer="last_value", label="y", time="day").build(),
        TrainerOptions(trainer="last_value", label="y", time="day", holdout_fraction=0.4).build(),
        TrainerOptions(trainer="last_value", label="y", time="day", no_holdout=True).build(),
        TrainerOptions(trainer="last_value", label="y", holdout_by_time="day").build(),
        TrainerOptions(
            trainer="best", candidate=("mean", "last_value"), label="y", time="day"
        ).build(),
        STATISTICAL,
    ],
    ids=lambda trainer: type(trainer).__name__,
)
@pytest.mark.parametrize("seed", [3, 4])
def test_the_kept_model_goes_on_from_the_newest_row(trainer, seed):
    table = series(days(20))
    result = train(trainer, table, seed)
    assert predict(result.model, days(5, "2026-01-25")) == [19.0] * 5
    scored_on = trainer.held_out(table, seed)[1]
    if trainer.evaluation is None:
        return
    assert sorted(scored_on) == list(range(20 - len(scored_on), 20)), "the latest"


def test_a_share_of_rows_is_that_of_the_latest_ones():
    result = train(LastValue(**BY_DAY), series(days(10)))
    assert result.metrics["train_rows"] == 10
    assert result.metrics["holdout_rows"] == 2
    # The last value before them is 7, and they are 8 and 9.
    assert result.metrics["holdout_mae"] == 1.5


def test_who_asks_for_it_keeps_the_model_that_was_scored():
    result = train(LastValue(**BY_DAY, fit_on="train"), series(days(10)))
    assert predict(result.model, days(1, "2026-01-15")) == [7.0]
    assert result.metrics["train_rows"] == 8


def test_the_models_of_others_are_kept_as_before():
    trainer = Best([Linear(features=("x",)), LastValue(time="day")], label="y")
    rows = series(days(20), np.random.default_rng(1).normal(size=20))
    rows = rows.append_column("x", rows["y"])
    context = PartitionContext(key="s", seed=1, link=MemoryLink())
    linear = Linear(label="y", features=("x",), holdout=HoldoutByTime(column="day"))
    result = trainer(DataConnector(rows), context)
    alone = linear(DataConnector(rows), PartitionContext(seed=1))
    assert result.candidate == "linear"
    assert result.model.to_json() == alone.model.to_json()


@pytest.mark.parametrize(
    ("trainer", "error", "reason"),
    [
        (
            lambda: LastValue(**BY_DAY, holdout=CrossValidation(folds=3)),
            InputError,
            r"cannot be scored by a cross-validation.*give Backtest\(time='day', horizon=",
        ),
        (
            lambda: Best([Mean(), LastValue(**BY_DAY)], holdout=CrossValidation()),
            InputError,
            "cannot be scored by a cross-validation",
        ),
        (
            lambda: Tuned(NAMED, {"season": choice([1])}, holdout=CrossValidation()),
            InputError,
            "cannot be scored by a cross-validation",
        ),
        (lambda: LastValue(label="y"), ColumnError, "it needs --time, or time= in Python"),
        (lambda: Best([LastValue()], label="y"), ColumnError, "knows no time column"),
        (lambda: LastValue(label="y", time="gone"), ColumnError, "'gone' is missing"),
    ],
)
def test_what_cannot_be_scored_by_time_is_refused_before_any_work(trainer, error, reason):
    with pytest.raises(error, match=reason):
        trainer().check(series(days(3)).schema)


def test_a_holdout_by_a_column_of_another_order_is_refused():
    booked = pa.array(np.arange(20)[::-1])
    table = pa.table({"day": days(20), "y": np.arange(20.0), "booked": booked})
    trainer = LastValue(**BY_DAY, holdout=HoldoutByTime(column="booked"))
    with pytest.raises(InputError, match="has rows that by 'day' are not: give a holdout by that"):
        train(trainer, table)
    same = table.set_column(2, "booked", pa.array(np.arange(20)))
    assert predict(train(trainer, same).model, days(1, "2026-01-25")) == [19.0]


@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_few_rows_are_trained_on_without_a_holdout(count):
    result = train(LastValue(**BY_DAY), series(days(count)))
    assert predict(result.model, days(2, "2026-02-01")) == [count - 1.0] * 2
    assert result.metrics["holdout_rows"] == (count == 3)


def test_a_window_longer_than_the_series_is_skipped():
    trainer = LastValue(label="y", holdout=Backtest(time="day", horizon="28D"))
    outcome = train(trainer, series(days(20)))
    assert isinstance(outcome, Skip)
    assert "too short for the backtest" in outcome.reason


def test_rows_of_one_instant_are_all_trained_on():
    table = series(np.repeat(days(1), 6))
    result = train(LastValue(**BY_DAY), table)
    assert predict(result.model, days(1, "2026-01-06")) == [2.5]
    assert result.metrics["holdout_rows"] == 0


# Steps of time


STARTS = {
    "D": "2025-10-20",
    "h": "2025-10-25T21",  # before clocks are put back
    "W": "2025-10-20",
    "M": "2025-07",
    "month ends": "2025-07-31",
    "B": "2025-10-20",
}


def times_of(kind, count):
    """Return the first times of a series that has one row for each step."""
    start = np.datetime64(STARTS[kind])
    if kind == "B":
        return np.busday_offset(start, np.arange(count))
    if kind == "month ends":
        return (start.astype("M8[M]") + np.arange(1, count + 1)).astype("M8[D]") - 1
    unit = {"W": 7 * np.timedelta64(1, "D")}.get(kind, np.timedelta64(1, kind))
    return start + np.arange(count) * unit


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(sorted(STARTS)),
    st.sampled_from(["", "Europe/Amsterdam", "America/New_York"]),
    st.integers(2, 6),
    st.data(),
)
def test_the_season_before_is_so_many_steps_before(kind, zone, season, data):
    """Of any length of a step, with rows missing, in the order of any clock."""
    known, ahead = 40, 30
    times = pa.array(times_of(kind, known + ahead).astype("M8[us]"))
    if zone:
        times = pc.assume_timezone(times, zone, ambiguous="earliest", nonexistent="latest")
    # Holidays, one at a time, and never at the end.
    missing = data.draw(st.sets(st.integers(2, 30), max_size=3))
    missing = {each for each in missing if each - 1 not in missing and each + 1 not in missing}
    rows = np.array([step for step in range(known) if step not in missing])
    pattern = np.arange(float(season))
    table = pa.table({"day": times.take(pa.array(rows)), "y": pattern[rows % season]})
    result = train(SeasonalNaive(**BY_DAY, season=season), table)
    expected = pattern[np.arange(known, known + ahead) % season].tolist()
    assert predict(result.model, times.slice(known)) == expected
    assert result.metrics["holdout_mae"] == 0


@pytest.mark.parametrize("season", [7, 14])
def test_whole_weeks_count_the_days_of_a_weekend_as_they_did(season):
    times = times_of("B", 60)
    weekdays = ((times - np.datetime64("2025-10-20")).astype(int) % 7).astype(float)
    table = pa.table({"day": times[:40], "y": weekdays[:40]})
    result = train(SeasonalNaive(**BY_DAY, season=season), table)
    assert predict(result.model, times[40:]) == weekdays[40:].tolist()
    assert result.model.scale.unit == "us"


def test_a_forecast_in_business_days_has_none_for_a_weekend():
    table = pa.table({"day": times_of("B", 20), "y": np.tile(np.arange(5.0), 4)})
    model = train(SeasonalNaive(**BY_DAY, season=5), table).model
    assert predict(model, np.array(["2025-11-17", "2025-11-21"], "M8[D]")) == [0.0, 4.0]
    with pytest.raises(InputError, match="'day' is 2025-11-22 in a row, a Saturday or"):
        predict(model, days(7, "2025-11-17"))
    last = train(LastValue(**BY_DAY), table).model
    assert predict(last, days(7, "2025-11-17")) == [4.0] * 7


def test_one_saturday_makes_a_series_one_of_all_days():
    times = np.append(times_of("B", 20), np.datetime64("2025-11-15"))
    table = pa.table({"day": times, "y": np.arange(21.0)})
    result = train(SeasonalNaive(**BY_DAY, season=5), table)
    assert result.model.scale.unit == "us"
    assert result.metrics["holdout_rows"] == 4


@pytest.mark.parametrize(
    ("table", "unit"),
    [
        (pa.table({"day": times_of("B", 5), "y": np.arange(5.0)}), "us"),  # no weekend is seen
        (pa.table({"day": days(12, "2025-10-18"), "y": np.arange(12.0)}), "us"),
        (pa.table({"day": np.arange(12), "y": np.arange(12.0)}), ""),
        (pa.table({"day": times_of("B", 12), "y": np.arange(12.0)}), "business_days"),
    ],
)
def test_business_days_are_seen_by_weekends_without_rows(table, unit):
    result = train(SeasonalNaive(**BY_DAY, season=2), table)
    assert result.model.scale.unit == unit


def test_an_earlier_release_does_not_misread_business_days(tmp_path):
    table = pa.table({"day": times_of("B", 20), "y": np.tile(np.arange(5.0), 4)})
    for season, version in ((5, 2), (7, 1)):
        model = train(SeasonalNaive(**BY_DAY, season=season), table).model
        path = tmp_path / f"{season}.json"
        PlainSerde().write(model, str(path))
        assert json.loads(path.read_text())["format_version"] == version
        again = PlainSerde().read(str(path))
        assert predict(again, times_of("B", 30)[20:]) == predict(model, times_of("B", 30)[20:])


def test_a_row_soon_after_the_last_one_is_ahead_of_it():
    table = series(days(15)[::7])
    model = train(SeasonalNaive(**BY_DAY, season=2), table).model
    assert model.scale.step == 7 * 86_400_000_000
    after = days(3, "2026-01-20")  # the last row is at 2026-01-19
    assert predict(model, after) == predict(model, days(1, "2026-01-26")) * 3


def test_params_of_a_partition_are_for_the_season_before_too():
    table = pa.table({"day": days(21), "y": np.tile(np.arange(7.0), 3)})
    trainer = SeasonalNaive(**BY_DAY, season=2)
    model = train(trainer, table, season=7.0, other=None).model
    assert predict(model, days(7, "2026-01-26")) == list(range(7))
    chosen = train(Best([trainer, Mean()]), table, seasonal_naive={"season": 7})
    assert chosen.candidate == "seasonal_naive"
    assert chosen.metrics["holdout_rmse"] == 0
    with pytest.raises(InputError, match="no parameter 'saeson': it has season alone"):
        train(trainer, table, saeson=7)
    for wrong in (0, 2.5, "7", float("nan")):
        with pytest.raises(InputError, match=f"season is {wrong!r}: give a whole number"):
            train(trainer, table, season=wrong)
    tuned = Tuned(trainer, {"saeson": choice([2, 7])}, trials=2)
    with pytest.raises(InputError, match="no parameter 'saeson'"):
        tuned.check(table.schema)


def test_params_of_a_partition_are_for_statsforecast_too(monkeypatch):
    class Given:
        def __init__(self, season_length, alias=""):
            self.season_length = season_length

        def forecast(self, y, h):
            return {"mean": np.full(h, self.season_length)}

    fake = SimpleNamespace(models=SimpleNamespace(Given=Given))
    monkeypatch.setitem(sys.modules, "statsforecast", fake)
    trainer = StatsForecast("Given", **BY_DAY, season=2, holdout=None)
    table = series(days(20))
    assert train(trainer, table, alias=None).model.values[0] == 2
    assert train(trainer, table, season_length=7).model.values[0] == 7
    with pytest.raises(InputError, match="Given of statsforecast has no parameter 'season'"):
        train(trainer, table, season=7)
    # Before any work: of settings that are searched, and of its own.
    tuned = Tuned(trainer, {"season": choice([2, 7])}, trials=2)
    own = StatsForecast("Given", **BY_DAY, params={"season": 7})
    for wrong in (tuned, own):
        with pytest.raises(InputError, match="Given of statsforecast has no parameter 'season'"):
            wrong.check(table.schema)
    Tuned(trainer, {"season_length": choice([2, 7])}, trials=2).check(table.schema)
    # Classes that know no season pass over one of 1.
    fake.models.Naive = type("Naive", (), {"forecast": lambda self, y, h: {"mean": np.zeros(h)}})
    naive = StatsForecast("Naive", **BY_DAY, holdout=None, params={"season_length": 1})
    naive.check(table.schema)
    assert train(naive, table).model.values[0] == 0
    with pytest.raises(InputError, match="Mean has no parameters, and is given 'x'"):
        Tuned(Mean(label="y"), {"x": choice([2, 7])}).check(table.schema)


def test_an_infinite_time_is_none():
    times = np.arange(20.0)
    times[5] = np.inf
    table = pa.table({"day": times, "y": np.arange(20.0)})
    model = train(SeasonalNaive(**BY_DAY, season=2), table).model
    assert predict(model, np.array([20.0, 21.0])) == [18.0, 19.0]
    with pytest.raises(ColumnError, match="is null or infinite in 1 row without"):
        predict(model, np.array([20.0, np.inf]))


@pytest.mark.slow
@pytest.mark.parametrize("holdout", [HoldoutFraction(), None, HoldoutByTime(column="day")])
def test_statsforecast_alone_forecasts_business_days_and_weeks(holdout):
    labels = np.tile(np.arange(5.0), 12)
    table = pa.table({"day": times_of("B", 60), "y": labels})
    trainer = StatsForecast("SeasonalNaive", **BY_DAY, season=5, horizon=10, holdout=holdout)
    assert predict(train(trainer, table).model, times_of("B", 70)[60:]) == labels[:10].tolist()
