"""Times of rows as whole steps, such as days, counted from the last row trained on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from partwise.errors import ColumnError
from partwise.tables.times import Times, times_of

if TYPE_CHECKING:
    from typing import Literal

_SHORTEST_MONTH = 28 * 86_400_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class StepScale:
    """Where steps are counted from, and how long one is."""

    unit: Literal["us", "months", ""]
    """Of the two others; empty: times are numbers."""
    last: float
    step: float
    zone: str = ""
    """Steps are counted by the clocks of this time zone; empty: times have none."""

    def steps(self, column: pa.ChunkedArray, what: str) -> np.ndarray:
        """Return by how many steps rows are after the last one trained on; integers, shape (n,).

        Args:
            column: Times, shape (n,).
            what: What messages call the column.

        Raises:
            ColumnError: It is null somewhere, or of another kind than in training.
        """
        is_aware = pa.types.is_timestamp(column.type) and column.type.tz is not None
        times = _local_times(column, self.zone)
        if (times.unit == "") != (self.unit == "") or is_aware != bool(self.zone):
            raise ColumnError(f"{what} is {column.type}, and was of another kind in training.")
        if not times.present.all():
            missing = int((~times.present).sum())
            raise ColumnError(f"{what} is null in {missing} rows, which have no place in time.")
        return np.rint((_scaled(times.numbers, self.unit) - self.last) / self.step).astype(np.int64)


def scale_of(column: pa.ChunkedArray) -> StepScale | None:
    """Return the steps in which times of a column go on, from its last one.

    A step is the most frequent distance between neighbours. It is a month, or some, where times are
    28 days apart or more and no multiples of the least distance.

    Args:
        column: Times; those that are null do not count.

    Returns:
        None where there is no time at all.
    """
    zone = column.type.tz or "" if pa.types.is_timestamp(column.type) else ""
    times = _local_times(column, zone)
    distinct = np.unique(times.numbers[times.present])
    if not len(distinct):
        return None
    unit: Literal["us", "months", ""] = "us" if times.unit else ""
    gaps = np.diff(distinct)
    if unit and len(gaps) and gaps.min() >= _SHORTEST_MONTH and (gaps % gaps.min()).any():
        unit = "months"
        distinct = np.unique(_scaled(distinct, unit))
        gaps = np.diff(distinct)
    step = 1.0
    if len(gaps):
        lengths, counts = np.unique(gaps, return_counts=True)
        step = lengths[counts.argmax()].item()
    return StepScale(unit=unit, last=distinct[-1].item(), step=step, zone=zone)


def _local_times(column: pa.ChunkedArray, zone: str) -> Times:
    if zone and pa.types.is_timestamp(column.type) and column.type.tz is not None:
        # As clocks show them: days are then equally long, also those with a change of the clocks.
        column = pc.local_timestamp(column.cast(pa.timestamp(column.type.unit, zone)))
    times = times_of(column)
    if times.unit != "ns":
        return times
    return Times(numbers=times.numbers // 1000, present=times.present, unit="us")


def _scaled(numbers: np.ndarray, unit: str) -> np.ndarray:
    if unit != "months":
        return numbers
    return numbers.astype("datetime64[us]").astype("datetime64[M]").astype(np.int64)
