"""What the clocks of a time zone show.

2026-11-25: Arrow reads of a zone's file only its table of changes, which ends with 2037, and not
the rule behind it: from 2038 on it knows no summer time. Up to there it and `zoneinfo` agree on all
zones; from there on offsets are those of `zoneinfo`, looked up once for each year.
"""

from datetime import UTC, datetime
from functools import lru_cache
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

UNITS_A_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
"""How many of Arrow's units of time make a second."""

_TABLES_END = int(datetime(2038, 1, 1, tzinfo=UTC).timestamp())
_LAST_TABLE = 2100
"""Morocco's lists its months of fasting up to 2087; each zone has a rule for what comes later."""
_CYCLE = 400
"""After so many years all dates fall on the same weekdays: 146,097 days are whole weeks."""
_CYCLE_S = 146_097 * 86_400
_A_DAY = 86_400


def local_times(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return instants as the clocks of their time zone show them: timestamps without a zone.

    Of the same unit; microseconds where nanoseconds would end, in 1677 or 2262. ArrowInvalid where
    this machine does not know the zone.
    """
    if column.type.unit == "ns" and _ends(column):
        column = _in_microseconds(column)
    local = pc.local_timestamp(column)
    kind = column.type
    a_second = UNITS_A_SECOND[kind.unit]
    instants = column.cast(pa.int64())
    latest = pc.max(instants).as_py()
    if latest is None or latest < _TABLES_END * a_second:
        return local
    try:
        zone = ZoneInfo(kind.tz)
    except (ZoneInfoNotFoundError, ValueError):  # such as +05:45, which has no summer
        return local
    numbers = instants.fill_null(0).to_numpy()
    # A copy: what Arrow shows to numpy cannot be written to.
    shown = np.array(local.cast(pa.int64()).fill_null(0).to_numpy())
    late = np.flatnonzero(numbers >= _TABLES_END * a_second)
    shown[late] = numbers[late] + _offsets(zone, numbers[late] // a_second) * a_second
    array = pa.array(shown, mask=np.asarray(column.is_null()))
    return pa.chunked_array([array.cast(pa.timestamp(kind.unit))])


def _ends(column: pa.ChunkedArray) -> bool:
    """Whether what clocks show may be beyond the nanoseconds that there are."""
    bounds = pc.min_max(column.cast(pa.int64())).as_py()
    most = 2**63 - _A_DAY * UNITS_A_SECOND["ns"]
    return bounds["min"] is not None and (bounds["min"] < -most or bounds["max"] > most)


def _in_microseconds(column: pa.ChunkedArray) -> pa.ChunkedArray:
    counts = column.cast(pa.int64()).fill_null(0).to_numpy() // 1000
    array = pa.array(counts, mask=np.asarray(column.is_null()))
    return pa.chunked_array([array.cast(pa.timestamp("us", column.type.tz))])


def _offsets(zone: ZoneInfo, seconds: np.ndarray) -> np.ndarray:
    """Return by how many seconds clocks are ahead of UTC.

    `seconds` are since 1970, none before 2038.
    """
    years = seconds.astype("datetime64[s]").astype("datetime64[Y]").astype(np.int64) + 1970
    offsets = np.zeros_like(seconds)
    for year in np.unique(years).tolist():
        cycles = max(0, (year - _LAST_TABLE) // _CYCLE)
        begins, ahead = _changes(zone, year - cycles * _CYCLE)
        rows = np.flatnonzero(years == year)
        within = seconds[rows] - cycles * _CYCLE_S
        offsets[rows] = ahead[np.searchsorted(begins, within, side="right") - 1]
    return offsets


@lru_cache(maxsize=4096)
def _changes(zone: ZoneInfo, year: int) -> tuple[np.ndarray, np.ndarray]:
    """Return from which instants of a year clocks are ahead of UTC by how much, both in s."""
    first, end = (int(datetime(each, 1, 1, tzinfo=UTC).timestamp()) for each in (year, year + 1))
    begins, ahead = [first], [_offset(zone, first)]
    # zoneinfo tells an offset, but not when it changes: looked for by days, then by halves.
    for day in range(first + _A_DAY, end + 1, _A_DAY):
        if (offset := _offset(zone, day)) == ahead[-1]:
            continue
        before, after = day - _A_DAY, day
        while after - before > 1:
            middle = (before + after) // 2
            before, after = (before, middle) if _offset(zone, middle) == offset else (middle, after)
        begins.append(after)
        ahead.append(offset)
    return np.array(begins), np.array(ahead)


def _offset(zone: ZoneInfo, seconds: int) -> int:
    offset = datetime.fromtimestamp(seconds, zone).utcoffset()
    return 0 if offset is None else int(offset.total_seconds())
