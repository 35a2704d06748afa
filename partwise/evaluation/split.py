"""A partition's rows, divided into those trained on and those that a model is scored on."""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Split:
    """One window of a backtest, one fold, or a holdout."""

    train: np.ndarray
    """Which rows are trained on, as bools of shape (n,)."""
    test: np.ndarray
    """Which rows are scored on, as bools of shape (n,). A row may be in neither."""
    history: np.ndarray | None = None
    """Places of the rows trained on, in the order of their time; None: they have none."""
