"""What clocks show, against `zoneinfo`."""

from datetime import UTC, datetime
from zoneinfo import ZoneInfo, available_timezones

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from partwise.tables.calendar import with_calendar
from partwise.tables.local_times import UNITS_A_SECOND, local_times
from partwise.tables.steps import scale_of

ZONES = sorted(zone for zone in available_timezones() if "/" in zone and zone[:5] != "right")
AN_HOUR = 3600


def shown(seconds: int, zone: str) -> int:
    offset = datetime.fromtimestamp(seconds, ZoneInfo(zone)).utcoffset()
    return seconds + int(offset.total_seconds())


def column(seconds, zone: str, unit: str = "s") -> pa.ChunkedArray:
    return pa.chunked_array([pa.array(seconds, pa.int64()).cast(pa.timestamp("s", zone))]).cast(
        pa.timestamp(unit, zone)
    )


@given(
    st.sampled_from(ZONES),
    st.lists(st.none() | st.integers(-2_208_988_800, 250_000_000_000), max_size=20),
    st.sampled_from(["s", "ms", "us"]),
)
def test_clocks_show_what_zoneinfo_says(zone, seconds, unit):
    local = local_times(column(seconds, zone, unit))
    assert local.type == pa.timestamp(unit)
    expected = [None if value is None else shown(value, zone) for value in seconds]
    found = local.cast(pa.timestamp("s")).cast(pa.int64())
    assert found.to_pylist() == expected


@pytest.mark.parametrize(
    "zone", ["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Africa/Casablanca"]
)
def test_each_hour_of_years_after_2037(zone):
    for year in (2037, 2038, 2052, 2086, 2099, 2100, 2500, 2501, 8000):
        first = int(datetime(year, 1, 1, tzinfo=UTC).timestamp())
        seconds = np.arange(first - 86_400, first + 367 * 86_400, AN_HOUR // 2)
        found = local_times(column(seconds, zone)).cast(pa.int64()).to_numpy()
        assert found.tolist() == [shown(value, zone) for value in seconds.tolist()]


def test_instants_before_2038_are_as_arrow_has_them():
    seconds = np.arange(-3_000_000_000, 2_145_916_800, 7_654_321)
    for zone in ZONES[::20]:
        for unit in UNITS_A_SECOND:
            instants = column(seconds, zone, unit)
            assert local_times(instants).equals(pc.local_timestamp(instants))


def test_a_summer_after_2037_has_its_hours_and_steps():
    # Noon of UTC on the 1st of July 2045 and of the years around it.
    noons = [datetime(year, 7, 1, 12, tzinfo=UTC) for year in (2036, 2045)]
    rows = pa.table({"day": pa.array(noons, pa.timestamp("ns", "Europe/Berlin"))})
    made = with_calendar(rows, ["day@hour", "day@epoch_days"])
    assert made.column("day@hour").to_pylist() == [14, 14]
    assert np.allclose(np.array(made.column("day@epoch_days")) % 1, 14 / 24)
    # Midnights of Berlin are a day apart, on both sides of a change of its clocks.
    zone = ZoneInfo("Europe/Berlin")
    days = [datetime(2045, 3, day, tzinfo=zone) for day in range(20, 32)]
    scale = scale_of(pa.chunked_array([pa.array(days, pa.timestamp("us", "Europe/Berlin"))]))
    assert scale.last % 86_400_000_000 == 0


@pytest.mark.parametrize("unit", ["s", "ns"])
def test_rows_of_the_hour_that_clocks_show_twice_are_after_those_before(unit):
    # Clocks of Berlin go back at 01:00 UTC; the last row is at 02:30 of summer.
    begin = int(datetime(2025, 10, 25, 22, 30, tzinfo=UTC).timestamp())
    halves = np.arange(9) * AN_HOUR // 2 + begin
    scale = scale_of(column(halves[:5], "Europe/Berlin", unit))
    known = scale.steps(column(halves[:5], "Europe/Berlin", unit), "The time column")
    assert known.tolist() == [-4, -3, -2, -1, 0]
    after = scale.steps(column(halves[5:], "Europe/Berlin", unit), "The time column")
    assert after.tolist() == [1, 1, 1, 2]


def test_offsets_and_sliced_chunks_stay_themselves():
    late = [2_500_000_000, None, 2_600_000_000]
    fixed = column(late, "+05:45")
    assert local_times(fixed).equals(pc.local_timestamp(fixed))
    whole = column([0, *late, 1], "Europe/Berlin")
    chunks = pa.chunked_array([whole.chunk(0).slice(1, 2), whole.chunk(0).slice(3)])
    expected = local_times(whole).to_pylist()[1:]
    assert local_times(chunks).to_pylist() == expected
    assert local_times(column([], "Europe/Berlin")).to_pylist() == []
