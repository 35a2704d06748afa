from datetime import UTC, date, datetime

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter

from partwise.errors import ColumnError, InputError
from partwise.evaluation import Evaluation, HoldoutByTime, HoldoutFraction

DAYS = [date(2026, 1, 1), date(2026, 1, 2), None, date(2026, 1, 3), date(2026, 1, 3)]


def table(kind, days=DAYS):
    if pa.types.is_timestamp(kind):
        zone = UTC if kind.tz else None
        days = [day and datetime(day.year, day.month, day.day, tzinfo=zone) for day in days]
    elif not pa.types.is_date(kind):
        days = [day and day.day for day in days]
    return pa.table({"day": pa.array(days, kind)})


@given(n_rows=st.integers(1, 200), fraction=st.floats(0.01, 0.99), seed=st.integers(0, 2**31 - 1))
@settings(max_examples=40)
def test_a_fraction_is_drawn_by_the_seed_alone(n_rows, fraction, seed):
    rows = pa.table({"x": np.arange(n_rows)})
    mask = HoldoutFraction(fraction=fraction).mask(rows, seed)
    assert mask.sum() == round(n_rows * fraction)
    np.testing.assert_array_equal(mask, HoldoutFraction(fraction=fraction).mask(rows, seed))
    if n_rows > 100 and 0.2 < fraction < 0.8:
        assert (mask != HoldoutFraction(fraction=fraction).mask(rows, seed + 1)).any()


@pytest.mark.parametrize(
    ("kind", "start"),
    [
        (pa.date32(), "2026-01-02"),
        (pa.date64(), date(2026, 1, 2)),
        (pa.timestamp("s"), "2026-01-01T12:00:00.5"),
        (pa.timestamp("ns"), datetime(2026, 1, 2)),  # noqa: DTZ001
        (pa.timestamp("ms", "Europe/Paris"), "2026-01-02T01:00:00+01:00"),
        (pa.timestamp("us", "UTC"), datetime(2026, 1, 2, tzinfo=UTC)),
        (pa.int16(), 2),
        (pa.float32(), 1.5),
    ],
    ids=str,
)
def test_from_the_start_on_rows_are_held_out(kind, start):
    holdout = HoldoutByTime(column="day", start=start)
    rows = table(kind)
    holdout.check(rows.schema, frozenset())
    assert holdout.mask(rows, 0).tolist() == [False, True, False, True, True]


@given(
    times=st.lists(st.one_of(st.none(), st.integers(-20, 20), st.just(2**60)), max_size=40),
    fraction=st.floats(0.01, 0.99),
)
@settings(max_examples=60)
def test_the_last_rows_are_held_out_and_instants_stay_whole(times, fraction):
    rows = pa.table({"t": pa.array(times, pa.int64())})
    mask = HoldoutByTime(column="t", fraction=fraction).mask(rows, 0)
    present = [time for time in times if time is not None]
    held_out = {time for time, held in zip(times, mask, strict=True) if held}
    trained_on = {time for time, held in zip(times, mask, strict=True) if not held} - {None}
    assert None not in held_out
    assert mask.sum() <= round(len(present) * fraction)
    assert not held_out or not trained_on or min(held_out) > max(trained_on)
    room = round(len(present) * fraction) - mask.sum()
    if trained_on:
        assert present.count(max(trained_on)) > room, "one more instant would have fitted"


def test_nan_and_infinity_are_no_times():
    rows = pa.table({"t": [1.0, float("nan"), 3.0, None, float("inf"), float("-inf")]})
    held_out = HoldoutByTime(column="t", start=0).mask(rows, 0)
    assert held_out.tolist() == [True, False, True, False, False, False]


@pytest.mark.parametrize(
    "times",
    [
        pa.array([1, 2**63], pa.uint64()),
        pa.array([0, 10**13], pa.timestamp("s")),  # the year 318857
        pa.array([0, 10**13], pa.timestamp("s", "Europe/Paris")),
    ],
    ids=lambda times: str(times.type),
)
def test_a_time_beyond_the_numbers_there_are_is_refused(times):
    rows = pa.table({"t": times})
    with pytest.raises(
        ColumnError, match=r"^A time of type .* is out of range: .* Leave such rows"
    ):
        HoldoutByTime(column="t").mask(rows, 0)


@pytest.mark.parametrize(
    ("kind", "settings_", "message"),
    [
        (pa.string(), {}, "'day' of the holdout is string: cast it"),
        (pa.duration("s"), {}, r"is duration\[s\]: cast it"),
        (pa.int64(), {"start": "2026-01-01"}, "start has to be a number, not '2026-01-01'"),
        (pa.date32(), {"start": 3}, "start has to be an ISO 8601 date or time, not 3"),
        (pa.timestamp("us", "UTC"), {"start": "2026-01-01"}, "add an offset such as"),
        (pa.timestamp("us"), {"start": "2026-01-01T00:00+00:00"}, "leave the offset out of"),
        (pa.timestamp("ns"), {"start": "2300-01-01"}, "holds the years 1678 to 2261, and start is"),
    ],
)
def test_a_time_column_that_does_not_fit_is_refused(kind, settings_, message):
    with pytest.raises(ColumnError, match=message):
        HoldoutByTime(column="day", **settings_).check(pa.schema({"day": kind}), frozenset())


def test_a_time_column_has_to_be_there_with_values():
    schema = pa.schema({"day": pa.date32(), "x": pa.int8()})
    with pytest.raises(ColumnError, match="'date' of the holdout is missing; there are 'day', 'x'"):
        HoldoutByTime(column="date").check(schema, frozenset())
    with pytest.raises(ColumnError, match="'day' of the holdout is null in every row"):
        HoldoutByTime(column="day").check(schema, frozenset({"day"}))


@pytest.mark.parametrize(
    ("settings_", "message"),
    [
        ({"start": "2026-01-01", "fraction": 0.1}, "give start or fraction, not both"),
        ({"start": "soon"}, "start 'soon' is not an ISO 8601 date or time"),
        ({"start": float("nan")}, "start is nan: give a date"),
        ({"start": float("inf")}, "start is inf: give a date"),
        ({"fraction": 1.0}, "less than 1"),
        ({"cutoff": 3}, "there is no cutoff"),
    ],
)
def test_settings_that_do_not_fit_are_refused(settings_, message):
    with pytest.raises(InputError, match=message):
        HoldoutByTime(column="day", **settings_)


@pytest.mark.parametrize(
    "holdout",
    [
        HoldoutFraction(fraction=0.3),
        HoldoutByTime(column="day", start=datetime(2026, 1, 1, 3)),  # noqa: DTZ001
        HoldoutByTime(column="day", start=date(2026, 1, 1)),
        HoldoutByTime(column="year", start=2026),
        HoldoutByTime(column="year", start=0.5),
        HoldoutByTime(column="day", fraction=0.5),
    ],
    ids=str,
)
def test_a_document_holds_it(holdout):
    adapter = TypeAdapter(Evaluation)
    assert adapter.validate_json(adapter.dump_json(holdout)) == holdout
