"""Windows at the end of a partition's time, each scored by a model of what was before it."""

import re
from math import inf
from typing import Annotated, Any, Literal

import pyarrow as pa
from pydantic import ConfigDict, Field, field_validator
from pydantic.json_schema import SkipJsonSchema

from partwise.errors import ColumnError
from partwise.evaluation.split import Split
from partwise.form_schema import for_forms
from partwise.outcomes import Skip
from partwise.settings import Settings, kind_field
from partwise.tables.times import Times, check_time_column, in_order, is_number, times_of

TooShort = Literal["skip", "fewer"]
"""What becomes of a partition that is too short for its windows or folds."""

_SECOND = 1_000_000
_UNITS = {
    "W": 7 * 86_400 * _SECOND,
    "D": 86_400 * _SECOND,
    "h": 3_600 * _SECOND,
    "min": 60 * _SECOND,
    "s": _SECOND,
    "ms": 1_000,
    "us": 1,
}
_PERIOD = re.compile(rf"(?P<count>\d+(\.\d+)?)\s*(?P<unit>{'|'.join(_UNITS)})")

Period = str | int | float
"""A stretch of time: text such as "28D" or "12h" of instants, or a number where times are such."""


class Backtest(Settings):
    """Score on the last windows of each partition's time, with models of the rows before each.

    The last window ends with the partition's last row, and each one before it `step` earlier. A
    window's model has seen no row of the window or after it: rows without a time, which may lie
    there, are in neither. Windows without rows, or without rows before them, do not count.

    Example:
        >>> Backtest(time="date", horizon="28D", windows=3).windows
        3
    """

    model_config = ConfigDict(
        extra="forbid", frozen=True, title="Backtest", json_schema_extra=for_forms
    )

    kind: Literal["backtest"] = kind_field("backtest")
    time: str = Field(
        kw_only=False,
        title="Time column",
        description="A timestamp, a date or a number by which rows are ordered in time.",
    )
    horizon: Period = Field(
        kw_only=False,
        description='Length of a window: text such as "28D", "12h" or "30min" where times are dates'
        " or timestamps, a number where they are numbers.",
    )
    windows: int = Field(default=1, ge=1, description="How many, at most.")
    step: Period | SkipJsonSchema[None] = Field(
        default=None,
        description="From one window to the next; a horizon where nothing is given.",
    )
    too_short: TooShort = Field(
        default="skip",
        description='What becomes of a partition with fewer windows: "skip" it, or use "fewer".',
    )
    season: Annotated[int, Field(ge=1)] = Field(
        default=1,
        description="Rows after which a season repeats; what mase compares with.",
    )

    @field_validator("horizon", "step")
    @classmethod
    def _check_period(cls, period: Any) -> Any:
        if period is None:
            return None
        length = _microseconds(period) if isinstance(period, str) else period
        if not length > 0:
            raise ValueError(f"{period!r} is not longer than nothing")
        if length == inf:
            raise ValueError(f"{period!r} has no end: give a finite number")
        return period

    @property
    def columns(self) -> tuple[str, ...]:
        """The time column."""
        return (self.time,)

    def check(self, schema: pa.Schema, empty_columns: frozenset[str]) -> None:
        """Refuse a time column that cannot order rows, or of another kind than the horizon.

        Raises:
            ColumnError: With the column and its type in its message.
        """
        what = f"The time column {self.time!r} of the backtest"
        kind = check_time_column(self.time, what, schema, empty_columns)
        for name, period in (("horizon", self.horizon), ("step", self.step)):
            if period is not None and isinstance(period, str) == is_number(kind):
                wanted = "a number" if is_number(kind) else 'text such as "28D"'
                raise ColumnError(f"{what} is {kind}, so {name} has to be {wanted}, not {period!r}")

    def splits(self, table: pa.Table, seed: int) -> list[Split] | Skip:  # noqa: ARG002 (others do)
        """Return a split for each window, the earliest first; a Skip where there are too few."""
        times = times_of(table.column(self.time))
        found = [
            split for place in range(self.windows) if (split := self._split(table, times, place))
        ]
        if not found or (len(found) < self.windows and self.too_short == "skip"):
            return Skip(
                f"too short for the backtest: {len(found)} of {self.windows} windows of "
                f"{self.horizon} have rows and rows before them"
            )
        return found[::-1]

    def _split(self, table: pa.Table, times: Times, place: int) -> Split | None:
        """Return the window so many steps before the last; None where it has no rows."""
        if not times.present.any():
            return None
        horizon, step = (self._length(each, times) for each in (self.horizon, self.step))
        last = times.numbers[times.present].max()
        # As Python numbers: far windows of narrow integers would wrap around.
        end = last.item() - place * (step or horizon)
        test = times.present & (times.numbers <= end) & (times.numbers > end - horizon)
        train = times.present & (times.numbers <= end - horizon)
        if not (test.any() and train.any()):
            return None
        return Split(train=train, test=test, history=in_order(table.column(self.time), train))

    def _length(self, period: Period | None, times: Times) -> Any:
        if not isinstance(period, str):
            return period
        length = _microseconds(period)
        return length * 1000 if times.unit == "ns" else length


def _microseconds(period: str) -> int:
    """Return the length of a period in words.

    Raises:
        ValueError: It has none, as months do, or no end.
    """
    match = _PERIOD.fullmatch(period.strip())
    if match is None:
        raise ValueError(f'{period!r} is not a length of time: write "28D", "12h" or "30min"')
    length = float(match["count"]) * _UNITS[match["unit"]]
    if length == inf:
        raise ValueError(f"{period[:40]!r} has no end: give a finite length")
    return round(length)
