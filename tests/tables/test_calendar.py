"""Numbers of dates and times, against pandas' calendar."""

from fractions import Fraction

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from partwise.errors import ColumnError
from partwise.tables.calendar import (
    calendar_names,
    calendar_schema,
    check_calendar,
    makeable,
    source_columns,
    with_calendar,
)

SECONDS = st.integers(-62_135_596_800, 253_402_300_799)
"""The years 1 to 9999."""
TYPES = st.sampled_from(
    [
        pa.date32(),
        pa.date64(),
        *(pa.timestamp(unit) for unit in ("s", "ms", "us")),
        pa.timestamp("ns"),
        *(pa.timestamp("us", zone) for zone in ("UTC", "+05:45", "Europe/Berlin")),
        pa.timestamp("s", "America/St_Johns"),
        pa.timestamp("ns", "Pacific/Apia"),
    ]
)
A_DAY = 86_400


@st.composite
def columns(draw):
    kind = draw(TYPES)
    seconds = SECONDS
    if pa.types.is_timestamp(kind) and kind.unit == "ns":
        seconds = st.integers(-9_000_000_000, 9_000_000_000)
    elif pa.types.is_timestamp(kind) and kind.tz is not None:
        # Where Arrow and pandas have tables of zones; of what comes later they know rules.
        seconds = st.integers(-1_000_000_000, 2_100_000_000)
    values = draw(st.lists(st.none() | seconds, max_size=8))
    if pa.types.is_date(kind):
        values = [None if value is None else value // A_DAY for value in values]
        return pa.chunked_array([pa.array(values, pa.int32()).cast(pa.date32())]).cast(kind), values
    stamps = pa.array(values, pa.int64()).cast(pa.timestamp("s", kind.tz)).cast(kind)
    return pa.chunked_array([stamps]), values


def of_pandas(kind: pa.DataType, values: list) -> dict[str, list]:
    """What pandas makes of seconds, or of days of a date, since 1970."""
    unit = np.timedelta64(A_DAY if pa.types.is_date(kind) else 1, "s")
    present = np.array([v for v in values if v is not None], np.int64) * unit
    stamps = pd.DatetimeIndex(np.datetime64("1970-01-01T00:00:00", "s") + present)
    if getattr(kind, "tz", None) is not None:
        zone = kind.tz if "/" in kind.tz else f"UTC{kind.tz}" if kind.tz != "UTC" else "UTC"
        stamps = stamps.tz_localize("UTC").tz_convert(zone).tz_localize(None)
    since = (stamps - pd.Timestamp("1970-01-01").as_unit("s")) // pd.Timedelta(seconds=1)
    return {
        "year": stamps.year,
        "month": stamps.month,
        "day": stamps.day,
        "weekday": stamps.day_of_week,
        "day_of_year": stamps.day_of_year,
        "week": stamps.isocalendar()["week"],
        "epoch_days": np.asarray(since, np.int64) / A_DAY,
        "hour": stamps.hour,
        "minute": stamps.minute,
    }


@given(columns())
def test_they_are_those_of_pandas_in_the_local_time_of_the_column(column_and_values):
    column, values = column_and_values
    names = calendar_names("t", column.type)
    assert ("t@hour" in names) == pa.types.is_timestamp(column.type)
    rows = with_calendar(pa.table({"t": column, "x": range(len(column))}), names)
    assert rows.column_names == ["t", "x", *names]
    assert calendar_schema(rows.select(["t", "x"]).schema, names) == rows.schema
    expected = of_pandas(column.type, values)
    for name in names:
        made = rows.column(name)
        assert made.is_null().to_pylist() == [value is None for value in values]
        np.testing.assert_array_equal(made.drop_null(), expected[name.removeprefix("t@")])


@given(st.lists(st.none() | st.integers(0, A_DAY - 1), max_size=8))
def test_a_time_of_day_has_hours_and_minutes(seconds):
    column = pa.array(seconds, pa.int32()).cast(pa.time32("s"))
    names = calendar_names("t", column.type)
    rows = with_calendar(pa.table({"t": column}), names)
    assert names == ["t@hour", "t@minute"]
    assert rows.column("t@hour").to_pylist() == [
        None if value is None else value // 3600 for value in seconds
    ]
    assert rows.column("t@minute").to_pylist() == [
        None if value is None else value // 60 % 60 for value in seconds
    ]


ROWS = pa.table(
    {
        "day": pa.array([19_000, None], pa.int32()).cast(pa.date32()),
        "day@month": [7, 8],
        "none": pa.nulls(2),
        "note": ["a", "b"],
    }
)


def test_only_what_is_named_and_not_there_is_made():
    rows = with_calendar(ROWS, ["day@month", "note@month", "day@hour", "b@week", "none@hour"])
    assert rows.column_names == [*ROWS.column_names, "none@hour"]
    assert rows.column("day@month").to_pylist() == [7, 8]
    assert rows.column("none@hour").to_pylist() == [None, None]
    assert "day@year" in makeable(ROWS.schema)
    assert not {"day@month", "note@year"} & {*makeable(ROWS.schema)}
    assert source_columns(["day@year", "day@month", "note", "day@week"], ROWS.schema) == [
        "day",
        "day@month",
        "note",
    ]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (["dya"], r"calendar columns 'dya' are missing; there are .* Did you mean 'day'\?"),
        (["note"], r"column 'note' is string: cast it to a date or a timestamp \(of CSV files, "),
        (["day"], "own with names that the calendar of 'day' gives: 'day@month'. Rename them"),
    ],
)
def test_what_has_no_calendar_is_refused(columns, message):
    with pytest.raises(ColumnError, match=message):
        check_calendar(ROWS.schema, columns)


def test_a_time_zone_that_nobody_knows_is_told():
    rows = pa.table({"t": pa.array([0], pa.timestamp("s", "Mars/Olympus"))})
    with pytest.raises(ColumnError, match=r"'t@hour' cannot be made of 't', which is .*Olympus"):
        with_calendar(rows, ["t@hour"])


def test_days_since_1970_are_the_nearest_double_in_every_unit():
    counts = [1_780_000_000_123_456, 253_402_300_799_999_999, -62_135_596_800_000_000, None]
    column = pa.array(counts, pa.timestamp("us", "UTC"))
    expected = [
        None if count is None else float(Fraction(count, A_DAY * 10**6)) for count in counts
    ]
    made = with_calendar(pa.table({"t": column}), ["t@epoch_days"]).column("t@epoch_days")
    assert made.to_pylist() == expected
    finer = pa.array([counts[0] * 1000 + 999, None], pa.timestamp("ns", "UTC"))
    made = with_calendar(pa.table({"t": finer}), ["t@epoch_days"]).column("t@epoch_days")
    assert made.to_pylist() == [expected[0], None]


def test_clocks_at_the_end_of_nanoseconds_do_not_turn_back():
    # The last time stamp of pandas means "for ever" in many tables.
    ends = pa.array([2**63 - 1, 1 - 2**63, 0], pa.timestamp("ns", "Europe/Amsterdam"))
    made = with_calendar(pa.table({"t": ends}), ["t@year", "t@day", "t@hour"])
    assert made.column("t@year").to_pylist() == [2262, 1677, 1970]
    assert made.column("t@day").to_pylist() == [12, 21, 1]
    assert made.column("t@hour").to_pylist() == [1, 0, 1]
