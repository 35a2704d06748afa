from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter

from partwise.errors import ColumnError, InputError
from partwise.evaluation import Backtest, Evaluation, HoldoutByTime
from partwise.outcomes import Skip

UNITS = {"W": timedelta(weeks=1), "D": timedelta(days=1), "h": timedelta(hours=1)}
UNITS |= {"min": timedelta(minutes=1), "s": timedelta(seconds=1)}
KINDS = [
    *(pa.date32(), pa.date64(), pa.timestamp("s"), pa.timestamp("ms"), pa.timestamp("us")),
    *(pa.timestamp("ns"), pa.timestamp("us", "UTC"), pa.timestamp("ns", "Europe/Amsterdam")),
]
FIRST = datetime(2026, 3, 27, tzinfo=UTC)


def windows_of(times, horizon, step, windows):
    """Say which rows are in which window, row by row: (train, test) as sets of places."""
    present = {place: time for place, time in enumerate(times) if time is not None}
    found = []
    for number in range(windows):
        end = max(present.values(), default=None)
        if end is None:
            break
        end -= number * step
        test = {place for place, time in present.items() if end - horizon < time <= end}
        train = {place for place, time in present.items() if time <= end - horizon}
        if train and test:
            found.insert(0, (train, test))
    return found


def places(split):
    return set(np.flatnonzero(split.train).tolist()), set(np.flatnonzero(split.test).tolist())


def check_windows(backtest, column, times, horizon, step):
    """Compare the splits of a backtest with the model's, and look for leakage."""
    table = pa.table({"t": column})
    backtest.check(table.schema, frozenset())
    expected = windows_of(times, horizon, step, backtest.windows)
    splits = backtest.splits(table, seed=0)
    if not expected or (len(expected) < backtest.windows and backtest.too_short == "skip"):
        assert isinstance(splits, Skip)
        assert f"{len(expected)} of {backtest.windows} windows" in splits.reason
        return
    assert [places(split) for split in splits] == expected
    for split in splits:
        trained = [times[place] for place in np.flatnonzero(split.train)]
        scored = [times[place] for place in np.flatnonzero(split.test)]
        assert max(trained) < min(scored)
        ordered = [times[place] for place in split.history]
        assert ordered == sorted(trained)
        pairs = list(zip(ordered, split.history.tolist(), strict=True))
        assert pairs == sorted(pairs), "rows of one instant stay in their order"


@settings(max_examples=150, deadline=None)
@given(
    hours=st.lists(st.one_of(st.none(), st.integers(0, 400)), max_size=30),
    kind=st.sampled_from(KINDS),
    horizon=st.tuples(st.integers(1, 5), st.sampled_from(["D", "h", "W", "min"])),
    step=st.one_of(st.none(), st.tuples(st.integers(1, 5), st.sampled_from(["D", "h"]))),
    windows=st.integers(1, 5),
    too_short=st.sampled_from(["skip", "fewer"]),
)
def test_windows_end_with_the_last_row_and_see_nothing_of_themselves(
    hours, kind, horizon, step, windows, too_short
):
    days_only = pa.types.is_date(kind)
    times = [None if hour is None else FIRST + timedelta(hours=hour) for hour in hours]
    if days_only:
        times = [time and time.replace(hour=0) for time in times]
    naive = [time and time.replace(tzinfo=None) for time in times]
    column = pa.array([time and time.date() for time in times] if days_only else naive, kind)
    if not days_only and kind.tz:
        column = pa.array(times, kind)
    backtest = Backtest(
        time="t",
        horizon="".join(map(str, horizon)),
        step=None if step is None else "".join(map(str, step)),
        windows=windows,
        too_short=too_short,
    )
    length = horizon[0] * UNITS[horizon[1]]
    every = length if step is None else step[0] * UNITS[step[1]]
    check_windows(backtest, column, times, length, every)


@settings(max_examples=100, deadline=None)
@given(
    data=st.data(),
    kind=st.sampled_from([pa.int8(), pa.uint8(), pa.int64(), pa.float64()]),
    horizon=st.integers(1, 90),
    windows=st.integers(1, 4),
)
def test_numbers_are_times_up_to_the_ends_of_their_type(data, kind, horizon, windows):
    low, high = {
        "int8": (-128, 127),
        "uint8": (0, 255),
        "int64": (-(2**62), 2**62),
        "double": (-(2**40), 2**40),
    }[str(kind)]
    near = st.integers(0, 120).map(lambda more: low + more)
    far = st.integers(0, 120).map(lambda less: high - less)
    times = data.draw(
        st.lists(st.one_of(st.none(), near, far, st.integers(low, high)), max_size=20)
    )
    backtest = Backtest(time="t", horizon=horizon, windows=windows, too_short="fewer")
    check_windows(backtest, pa.array(times, kind), times, horizon, horizon)


def test_neighbouring_nanoseconds_are_different_times():
    column = pa.array([2**60, 2**60 + 1, 2**60 + 1000, 2**60 + 1001], pa.timestamp("ns"))
    (split,) = Backtest(time="t", horizon="1us").splits(pa.table({"t": column}), 0)
    assert places(split) == ({0, 1}, {2, 3})


def test_a_day_is_24_hours_where_clocks_change():
    zone = ZoneInfo("Europe/Amsterdam")
    noons = [datetime(2026, 3, day, 12, tzinfo=zone) for day in (28, 29, 30)]
    table = pa.table({"t": pa.array(noons, pa.timestamp("s", "Europe/Amsterdam"))})
    # The night to the 29th is an hour shorter.
    (split,) = Backtest(time="t", horizon="47h").splits(table, 0)
    assert places(split) == ({0}, {1, 2})
    assert isinstance(Backtest(time="t", horizon="2D").splits(table, 0), Skip)


def test_nan_is_no_time():
    table = pa.table({"t": [1.0, float("nan"), 2.0, None, 3.0]})
    (split,) = Backtest(time="t", horizon=1).splits(table, 0)
    assert places(split) == ({0, 2}, {4})


@pytest.mark.parametrize(
    "table",
    [
        pa.table({"t": pa.array([], pa.int64())}),
        pa.table({"t": pa.array([None, None], pa.date32())}),
    ],
)
def test_without_times_there_is_no_window(table):
    horizon = 1 if pa.types.is_integer(table["t"].type) else "1D"
    assert isinstance(Backtest(time="t", horizon=horizon).splits(table, 0), Skip)


@pytest.mark.parametrize(
    ("settings", "column", "reason"),
    [
        ({"time": "u", "horizon": 1}, pa.array([1]), "'u'.*missing"),
        ({"time": "t", "horizon": "1D"}, pa.array([1]), "horizon has to be a number"),
        ({"time": "t", "horizon": 1}, pa.array([date(2026, 1, 1)]), "horizon has to be text"),
        ({"time": "t", "horizon": "1D", "step": 2}, pa.array([date(2026, 1, 1)]), "step has to"),
        ({"time": "t", "horizon": 1}, pa.array(["2026-01-01"]), "is string: cast it"),
        ({"time": "t", "horizon": 1}, pa.array([True]), "is bool: cast it"),
    ],
)
def test_a_column_that_does_not_order_rows_is_refused(settings, column, reason):
    with pytest.raises(ColumnError, match=reason):
        Backtest(**settings).check(pa.schema([("t", column.type)]), frozenset())


def test_a_column_of_nulls_is_refused():
    with pytest.raises(ColumnError, match="null in every row"):
        Backtest(time="t", horizon=1).check(pa.schema([("t", pa.int64())]), frozenset({"t"}))


@pytest.mark.parametrize(
    "settings",
    [{"horizon": "28"}, {"horizon": "1M"}, {"horizon": 0}, {"horizon": "0D"}, {"horizon": -1},
     {"horizon": float("nan")}, {"horizon": 1, "windows": 0}, {"horizon": 1, "step": "x"},
     {"horizon": float("inf")}, {"horizon": 1, "step": float("inf")},
     {"horizon": f"{'9' * 400}D"}],
)  # fmt: skip
def test_periods_without_a_length_are_refused(settings):
    with pytest.raises(InputError):
        Backtest(time="t", **settings)


def test_settings_come_back_from_json():
    for evaluation in (Backtest(time="t", horizon="2D", step="1D"), HoldoutByTime(column="t")):
        written = evaluation.model_dump(mode="json")
        assert TypeAdapter(Evaluation).validate_python(written) == evaluation
