"""Times of rows as whole steps, such as days, counted from the last row trained on."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from partwise.errors import ColumnError, InputError
from partwise.formatting import counted
from partwise.tables.local_times import local_times
from partwise.tables.times import Times, times_of

if TYPE_CHECKING:
    from typing import Any, Literal

_DAY = 86_400_000_000
_SHORTEST_MONTH = 28 * _DAY


@dataclass(frozen=True, slots=True, kw_only=True)
class StepScale:
    """Where steps are counted from, and how long one is."""

    unit: Literal["us", "months", "business_days", ""]
    """Of the two others; empty: times are numbers. Business days are Mondays to Fridays."""
    last: float
    step: float
    zone: str = ""
    """Steps are counted by the clocks of this time zone; empty: times have none."""
    last_instant: int | None = None
    """Microseconds of UTC, since clocks that are put back show an hour twice; None: months and
    business days do not need it, times have no zone, or the model was kept before 2026-12."""

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON has it, and earlier releases know it."""
        values = asdict(self)
        if self.last_instant is None:
            del values["last_instant"]
        return values

    def steps(self, column: pa.ChunkedArray, what: str) -> np.ndarray:
        """Return by how many steps rows are after the last one trained on; integers, shape (n,).

        ColumnError where a time is null, or of another kind than in training; InputError where
        steps are business days, and one is on a Saturday or Sunday.
        """
        is_aware = pa.types.is_timestamp(column.type) and column.type.tz is not None
        times = _local_times(column, self.zone)
        if (times.unit == "") != (self.unit == "") or is_aware != bool(self.zone):
            raise ColumnError(f"{what} is {column.type}, and was of another kind in training.")
        if not times.present.all():
            missing = int((~times.present).sum())
            raise ColumnError(
                f"{what} is null or infinite in {counted(missing, 'row')} without a place in time."
            )
        if self.unit == "business_days":
            _check_business_days(times.numbers, what)
        after = _scaled(times.numbers, self.unit) - self.last
        steps = np.rint(after / self.step).astype(np.int64)
        is_after = after > 0
        if self.last_instant is not None:
            is_after |= _in_microseconds(column).numbers > self.last_instant
        # A row that is after the last one, by less than half a step, is ahead of it all the same.
        return np.where(is_after, np.maximum(steps, 1), steps)


def scale_of(column: pa.ChunkedArray, *, business_days: bool = False) -> StepScale | None:
    """Return the steps in which times of a column go on, from its last one.

    A step is the most frequent distance between neighbours. It is a month, or some, where times are
    28 days apart or more, and either of one day of the month or no multiples of the least distance.
    Null times do not count; None where there is no time at all.
    """
    zone = _zone_of(column)
    times = _local_times(column, zone)
    distinct = np.unique(times.numbers[times.present])
    if not len(distinct):
        return None
    if business_days:
        last = _scaled(distinct[-1:], "business_days").item()
        return StepScale(unit="business_days", last=last, step=1, zone=zone)
    unit: Literal["us", "months", ""] = "us" if times.unit else ""
    if unit and _are_months(distinct):
        unit = "months"
        distinct = np.unique(_scaled(distinct, unit))
    last_instant = None
    if unit == "us" and zone:
        instants = _in_microseconds(column)
        last_instant = instants.numbers[instants.present].max().item()
    return StepScale(
        unit=unit,
        last=distinct[-1].item(),
        step=_step_of(distinct),
        zone=zone,
        last_instant=last_instant,
    )


def is_of_business_days(column: pa.ChunkedArray) -> bool:
    """Whether times are days, and Mondays to Fridays only, with a weekend between them.

    Null times do not count.
    """
    times = _local_times(column, _zone_of(column))
    if not times.unit:
        return False
    distinct = np.unique(times.numbers[times.present])
    if (np.diff(distinct) % _DAY).any() or _step_of(distinct) != _DAY:
        return False
    weeks, weekdays = _weeks_and_weekdays(distinct)
    return bool(weekdays.max() < 5 and weeks[0] < weeks[-1])


def _step_of(distinct: np.ndarray) -> Any:
    """Return the most frequent distance between ascending times, the least of equally frequent."""
    if len(distinct) < 2:
        return 1.0
    lengths, counts = np.unique(np.diff(distinct), return_counts=True)
    return lengths[counts.argmax()].item()


def _are_months(distinct: np.ndarray) -> bool:
    gaps = np.diff(distinct)
    if not len(gaps) or gaps.min() < _SHORTEST_MONTH:
        return False
    days = distinct.astype("datetime64[us]").astype("datetime64[D]")
    of_month = days - days.astype("datetime64[M]")
    return bool((of_month == of_month[0]).all() or (gaps % gaps.min()).any())


def _weeks_and_weekdays(numbers: np.ndarray) -> Any:
    """Return the weeks of times, counted on, and the days in them, of which 0 is Monday."""
    # 1970-01-01 was a Thursday.
    return np.divmod(numbers // _DAY + 3, 7)


def _check_business_days(numbers: np.ndarray, what: str) -> None:
    is_weekend = _weeks_and_weekdays(numbers)[1] >= 5
    if is_weekend.any():
        day = numbers[is_weekend][:1].astype("datetime64[us]").astype("datetime64[D]")[0]
        raise InputError(
            f"{what} is {day} in a row, a Saturday or Sunday, and the model was trained on Mondays "
            "to Fridays only: leave such rows out."
        )


def _zone_of(column: pa.ChunkedArray) -> str:
    return column.type.tz or "" if pa.types.is_timestamp(column.type) else ""


def _local_times(column: pa.ChunkedArray, zone: str) -> Times:
    if zone and pa.types.is_timestamp(column.type) and column.type.tz is not None:
        # As clocks show them: days are then equally long, also those with a change of the clocks.
        column = local_times(column.cast(pa.timestamp(column.type.unit, zone)))
    return _in_microseconds(column)


def _in_microseconds(column: pa.ChunkedArray) -> Times:
    times = times_of(column)
    if times.unit != "ns":
        return times
    return Times(numbers=times.numbers // 1000, present=times.present, unit="us")


def _scaled(numbers: np.ndarray, unit: str) -> np.ndarray:
    if unit == "business_days":
        weeks, weekdays = _weeks_and_weekdays(numbers)
        return np.asarray(5 * weeks + weekdays)
    if unit != "months":
        return numbers
    return numbers.astype("datetime64[us]").astype("datetime64[M]").astype(np.int64)
