"""Intervals in which labels lie as often as is asked for, by how far off predictions were."""

import re
from collections.abc import Mapping, Sequence
from fractions import Fraction
from math import ceil

import numpy as np

from partwise.evaluation.metrics import pinball

_QUANTILE = re.compile(r"prediction_q(?P<percent>\d+(\.\d+)?)")


def half_widths(residuals: np.ndarray, levels: Sequence[float]) -> list[float | None]:
    """Return how far from a prediction the bounds of its intervals are.

    Of n rows that a model was not trained on, the label of another row of their kind is within the
    k-th least residual with a probability of k / (n + 1) at least: split conformal prediction, as
    in Lei et al., Distribution-Free Predictive Inference for Regression (2018).

    Args:
        residuals: Predictions less labels, shape (n,).
        levels: Such as 0.9 for intervals in which nine of ten labels lie.

    Returns:
        For each level; None where there are too few rows to know.
    """
    ordered = np.sort(np.abs(residuals))
    # Of decimal fractions: 0.55 * 20 is above 11 in binary ones.
    ranks = [ceil(Fraction(str(level)) * (len(ordered) + 1)) for level in levels]
    found = [float(ordered[k - 1]) if k <= len(ordered) else float("nan") for k in ranks]
    return [width if np.isfinite(width) else None for width in found]


def quantile_metrics(labels: np.ndarray, columns: Mapping[str, np.ndarray]) -> dict[str, float]:
    """Return the pinball loss of each column of a quantile, such as pinball_q10."""
    found = {}
    for name, values in columns.items():
        if match := _QUANTILE.fullmatch(name):
            losses = pinball(float(match["percent"]) / 100, labels - values)
            found[f"pinball_{name.removeprefix('prediction_')}"] = float(np.mean(losses))
    return found
