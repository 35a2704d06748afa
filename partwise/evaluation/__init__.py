"""How models are scored: on which rows that they were not trained on, and by which metric."""

from partwise.choices import FitOn
from partwise.errors import InputError
from partwise.evaluation.backtest import Backtest
from partwise.evaluation.cross_validation import CrossValidation
from partwise.evaluation.holdout import HoldoutByTime, HoldoutFraction

__all__ = [
    "Evaluation",
    "Backtest",
    "CrossValidation",
    "HoldoutByTime",
    "HoldoutFraction",
    "FitOn",
    "by_time",
    "fits_on_all",
]

Evaluation = HoldoutFraction | HoldoutByTime | Backtest | CrossValidation
"""Rows to score on. No discriminator: Prefect's forms have tabs for a plain union only.

Each has `columns`, those that it looks at; `check` for the schema; and `splits(table, seed)`, which
returns splits, or a Skip for too short a partition.
"""


def fits_on_all(fit_on: FitOn, evaluation: Evaluation | None) -> bool:
    """Whether the kept model is trained on all rows, also on those that it was scored on."""
    if fit_on == "auto":
        return isinstance(evaluation, Backtest | CrossValidation)
    return fit_on == "all"


def by_time(evaluation: Evaluation, column: str) -> Evaluation:
    """Return an evaluation that holds out the latest rows, as forecasts are of rows to come.

    Of a share of the rows, drawn at random, only the share counts. Folds are refused: they are
    predicted from rows after them too.
    """
    if isinstance(evaluation, CrossValidation):
        raise InputError(
            "A forecast by time cannot be scored by a cross-validation, whose folds are predicted "
            f"from rows after them too: give Backtest(time={column!r}, horizon=...)."
        )
    if isinstance(evaluation, HoldoutFraction):
        return HoldoutByTime(column=column, fraction=evaluation.fraction)
    return evaluation
