"""Budgets: how much searching all partitions of a run may do together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from pydantic import ConfigDict, Field, model_validator
from pydantic.json_schema import SkipJsonSchema  # noqa: TC002 (pydantic reads it)

from partwise.errors import InputError
from partwise.form_schema import FormSettings
from partwise.formatting import counted

if TYPE_CHECKING:
    from partwise.connector.context import Share


class Budget(FormSettings):
    """What all partitions may spend together: divided by their rows, and by what trials bring.

    Example:
        >>> Budget(total_trials=20_000).patience
        10
    """

    model_config = ConfigDict(title="Budget")

    total_trials: Annotated[int, Field(ge=1)] | SkipJsonSchema[None] = Field(
        default=None,
        title="Trials in all",
        description="Each partition has one, with the trainer's own settings; the others are "
        "divided by rows.",
    )
    total_seconds: Annotated[float, Field(gt=0)] | SkipJsonSchema[None] = Field(
        default=None,
        title="Seconds in all",
        description="Of all partitions one after another, divided by rows; what one leaves, those "
        "after it in its process have. Which trials there are depends on the machine then.",
    )
    patience: int = Field(
        default=10,
        ge=1,
        description="After so many trials in a row that brought nothing, a partition leaves the "
        "rest of its share.",
    )

    @model_validator(mode="after")
    def _check_totals(self) -> Budget:
        if (self.total_trials is None) == (self.total_seconds is None):
            raise ValueError("a budget has either total_trials or total_seconds")
        return self

    def check_partitions(self, partitions: int) -> None:
        """Refuse a budget that does not reach.

        Raises:
            InputError: There are more partitions than trials.
        """
        if self.total_trials is not None and self.total_trials < partitions:
            raise InputError(
                f"A budget of {counted(self.total_trials, 'trial')} is less than one for each of "
                f"{partitions:,} partitions: give more, or train without tuning."
            )

    def trials_of(self, share: Share | None) -> int | None:
        """Return how many trials a partition has; None: as many as its time allows."""
        if self.total_trials is None:
            return None
        if share is None:
            return self.total_trials
        # Rounded down, so that all together never spend more.
        return 1 + int((self.total_trials - share.partitions) * share.rows)

    def seconds_of(self, share: Share | None, left: float = 0.0) -> float | None:
        """Return how long a partition may try; None: that is not limited.

        What partitions before it have left is below 0 where they took more.
        """
        if self.total_seconds is None:
            return None
        return max(0.0, self.total_seconds * (1.0 if share is None else share.rows) + left)


class Left:
    """What partitions of a run have left of their seconds, for those that this process trains next.

    The partitions of one process come one after another, so that one which stops since trials bring
    nothing any more leaves its time to others, and all together stay within the budget but for the
    last trial of each. Nothing is handed on between processes, nor from run to run.
    """

    def __init__(self) -> None:
        self._left: dict[str, float] = {}

    def of(self, run_id: str) -> float:
        """Return how many seconds there are."""
        return self._left.get(run_id, 0.0)

    def settle(self, run_id: str, allowed: float, spent: float) -> None:
        """Take note of what a partition was allowed, all that was left included, and spent."""
        self._left = {run_id: allowed - spent}
