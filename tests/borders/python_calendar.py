"""What Python's clocks and calendar show of a time."""

import datetime as dt
from collections.abc import Callable
from fractions import Fraction
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa

from tests.borders.exact_values import EPOCH, nanoseconds


def shown_by_clocks(value: Any, data_type: pa.DataType) -> tuple[Any, Any, Fraction]:
    """The date and time that clocks show, and the days since 1970 by these clocks."""
    if isinstance(value, dt.date) and not isinstance(value, dt.datetime):
        return value, None, Fraction(value.toordinal() - 719_163)
    ns = nanoseconds(value)
    if isinstance(value, dt.time) or pa.types.is_time(data_type):
        return EPOCH.date(), (EPOCH + dt.timedelta(microseconds=ns // 1000)).time(), Fraction(0)
    zone = getattr(data_type, "tz", None)
    if zone is not None and zone != "UTC":
        seconds = ns // 10**9
        tz = (
            ZoneInfo(zone)
            if zone[0] not in "+-"
            else dt.timezone(dt.timedelta(hours=5, minutes=30))
        )
        # Python has no year 0 and 10000 in which clocks may be.
        inner = max(EPOCH + dt.timedelta(seconds=seconds), dt.datetime(1, 1, 3))  # noqa: DTZ001
        inner = min(inner, dt.datetime(9999, 12, 29))  # noqa: DTZ001
        offset = inner.replace(tzinfo=dt.UTC).astimezone(tz).utcoffset()
        ns += (offset or dt.timedelta()) // dt.timedelta(seconds=1) * 10**9
    # To the microsecond.
    days = Fraction(ns // 1000, 86_400 * 10**6)
    ordinal = 719_163 + ns // (86_400 * 10**9)
    moment = (EPOCH + dt.timedelta(microseconds=ns % (86_400 * 10**9) // 1000)).time()
    if not 1 <= ordinal <= dt.date.max.toordinal():
        return None, moment, days
    return dt.date.fromordinal(ordinal), moment, days


def _of_date(name: str) -> Callable[[Any, Any, Any], Any]:
    takes: dict[str, Callable[[dt.date], int]] = {
        "year": lambda day: day.year,
        "month": lambda day: day.month,
        "day": lambda day: day.day,
        "weekday": dt.date.weekday,
        "day_of_year": lambda day: day.timetuple().tm_yday,
        "week": lambda day: day.isocalendar().week,
    }
    return lambda day, _moment, _days: takes[name](day)


CALENDAR: dict[str, Callable[[Any, Any, Any], Any]] = {
    **{name: _of_date(name) for name in ("year", "month", "day", "weekday", "day_of_year", "week")},
    "epoch_days": lambda _day, _moment, days: float(days),
    "hour": lambda _day, moment, _days: moment.hour,
    "minute": lambda _day, moment, _days: moment.minute,
}
