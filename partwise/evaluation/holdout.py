"""Which rows of a partition are held out of training."""

from datetime import date, datetime
from math import isfinite
from typing import Annotated, Any, Literal

import numpy as np
import pyarrow as pa
from pydantic import ConfigDict, Field, field_validator, model_validator
from pydantic.json_schema import SkipJsonSchema

from partwise.errors import ColumnError
from partwise.evaluation.split import Split
from partwise.form_schema import for_forms
from partwise.settings import Settings, kind_field
from partwise.tables.times import check_time_column, is_number, times_of

_DEFAULT_FRACTION = 0.2


class HoldoutFraction(Settings):
    """Hold out rows drawn at random with the partition's seed."""

    model_config = ConfigDict(extra="forbid", frozen=True, title="Random holdout")

    kind: Literal["fraction"] = kind_field("fraction")
    fraction: float = Field(
        default=_DEFAULT_FRACTION,
        kw_only=False,
        gt=0,
        lt=1,
        description="Share of the labelled rows that is held out, rounded to whole rows.",
    )

    @property
    def columns(self) -> tuple[str, ...]:
        """No column is needed."""
        return ()

    def check(self, schema: pa.Schema, empty_columns: frozenset[str]) -> None:
        """Fit any data."""

    def splits(self, table: pa.Table, seed: int) -> list[Split]:
        """Return the one split; none where no row is held out."""
        test = self.mask(table, seed)
        return [Split(train=~test, test=test)] if test.any() else []

    def mask(self, table: pa.Table, seed: int) -> np.ndarray:
        """Return which of the rows are held out, as bools of shape (n,)."""
        n_rows = table.num_rows
        mask = np.zeros(n_rows, dtype=bool)
        # By the partition's seed, so that an export or a resume finds the same rows held out.
        drawn = np.random.default_rng(seed).permutation(n_rows)
        mask[drawn[: round(n_rows * self.fraction)]] = True
        return mask


class HoldoutByTime(Settings):
    """Hold out the latest rows, as they lie in the future of those trained on.

    Rows of one instant stay together, and rows without a time are trained on. The time column is
    not a feature, unless it is named among them.

    Example:
        >>> HoldoutByTime(column="day", start="2026-03-01").start
        '2026-03-01'
        >>> HoldoutByTime(column="day", fraction=0.1).fraction
        0.1
    """

    model_config = ConfigDict(
        extra="forbid", frozen=True, title="Holdout by time", json_schema_extra=for_forms
    )

    kind: Literal["time"] = kind_field("time")
    column: str = Field(
        kw_only=False,
        title="Time column",
        description="A timestamp, a date or a number by which rows are ordered in time.",
    )
    start: str | int | float | SkipJsonSchema[None] = Field(
        default=None,
        description="The first time held out: an ISO 8601 date or time, or a number.",
    )
    fraction: Annotated[float, Field(gt=0, lt=1)] | SkipJsonSchema[None] = Field(
        default=None,
        description="Without a start: at most this share of each partition's rows, the latest, is "
        f"held out ({_DEFAULT_FRACTION} when neither is given).",
    )

    @field_validator("start", mode="before")
    @classmethod
    def _write_iso(cls, start: Any) -> Any:
        return start.isoformat() if isinstance(start, date) else start

    @model_validator(mode="after")
    def _check_settings(self) -> "HoldoutByTime":
        if self.start is not None and self.fraction is not None:
            raise ValueError("give start or fraction, not both")
        if isinstance(self.start, float) and not isfinite(self.start):
            raise ValueError(f"start is {self.start}: give a date, a time or a finite number")
        if isinstance(self.start, str):
            try:
                datetime.fromisoformat(self.start)
            except ValueError:
                raise ValueError(f"start {self.start!r} is not an ISO 8601 date or time") from None
        return self

    @property
    def columns(self) -> tuple[str, ...]:
        """The time column."""
        return (self.column,)

    def splits(self, table: pa.Table, seed: int) -> list[Split]:
        """Return the one split; none where no row is held out."""
        test = self.mask(table, seed)
        return [Split(train=~test, test=test)] if test.any() else []

    def check(self, schema: pa.Schema, empty_columns: frozenset[str]) -> None:
        """Refuse a time column that cannot order rows, or be compared with `start`.

        Raises:
            ColumnError: With the column and its type in its message.
        """
        what = f"The time column {self.column!r} of the holdout"
        kind = check_time_column(self.column, what, schema, empty_columns)
        if self.start is None:
            return
        if isinstance(self.start, str) == is_number(kind):
            wanted = "a number" if is_number(kind) else "an ISO 8601 date or time"
            raise ColumnError(f"{what} is {kind}, so start has to be {wanted}, not {self.start!r}.")
        if isinstance(self.start, str):
            zone_given = datetime.fromisoformat(self.start).tzinfo is not None
            has_zone = pa.types.is_timestamp(kind) and kind.tz is not None
            if zone_given != has_zone:
                change = (
                    "add an offset such as +00:00 to" if has_zone else "leave the offset out of"
                )
                raise ColumnError(f"{what} is {kind}: {change} start={self.start!r}.")
            is_nano = pa.types.is_timestamp(kind) and kind.unit == "ns"
            try:
                _instant(self.start, "ns" if is_nano else "us")
            except pa.ArrowInvalid as error:
                raise ColumnError(
                    f"{what} is {kind}, which holds the years 1678 to 2261, and start is "
                    f"{self.start!r}: give one of these."
                ) from error

    def mask(self, table: pa.Table, seed: int) -> np.ndarray:  # noqa: ARG002 (as HoldoutFraction)
        """Return which of the rows are held out, as bools of shape (n,)."""
        times = times_of(table.column(self.column))
        numbers, present = times.numbers, times.present
        first: float | None
        if self.start is None:
            first = _first_of_last(np.sort(numbers[present]), self.fraction or _DEFAULT_FRACTION)
        elif isinstance(self.start, str):
            first = _instant(self.start, times.unit)
        else:
            first = self.start
        if first is None:
            return np.zeros(table.num_rows, dtype=bool)
        late: np.ndarray = present & (numbers >= first)
        return late


def _instant(start: str, unit: str) -> int:
    """Return a date or time as `times_of` counts those of a unit."""
    return int(pa.scalar(datetime.fromisoformat(start), pa.timestamp(unit)).value)


def _first_of_last(ordered: np.ndarray, fraction: float) -> float | None:
    """Return the smallest time from which on there are at most this share of the rows."""
    n_held_out = round(len(ordered) * fraction)
    at = len(ordered) - n_held_out
    if n_held_out == 0:
        return None
    # The cut falls within an instant, whose rows are then all trained on: at most the share is held
    # out, and no instant is on both sides.
    if at > 0 and ordered[at - 1] == ordered[at]:
        at = int(np.searchsorted(ordered, ordered[at], side="right"))
    return None if at == len(ordered) else ordered[at].item()
