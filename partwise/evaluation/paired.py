"""Whether one model is better than another on the same rows, or was lucky.

A metric that is a mean over rows, or grows with one, is tested by a paired t test of each row's
loss: rmse by squared errors. Any other, such as auc or a function, by a paired bootstrap of a fixed
seed. Of two equally good models, one is 2 % better by luck for a third of all keys of 60 rows.
"""

import math
import zlib
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from partwise.evaluation.metrics import pinball
from partwise.evaluation.scores import Metric, Predicted

RESAMPLES = 2_000
"""Of a bootstrap, at most: its confidence is from 0.0005 to 0.9995."""
_FIRST = 200
_UNCLEAR = 0.97
"""A smaller share of the first resamples won by either decides; else it is found out more
exactly."""
_NORMAL_FROM = 1_000
"""Degrees of freedom from which the normal distribution stands for Student's t."""

RowLosses = Callable[[np.ndarray, np.ndarray], np.ndarray]


def confidence(metric: Metric, better: Predicted, worse: Predicted) -> float:
    """Return how sure it is that predictions are better than others of the same rows.

    It is 1 less the chance of such a difference between equally good ones: from 0 to 1, and 0.5
    where they do not differ. NaN where nobody can tell: of one row, or a metric without a value.
    """
    losses = _row_losses(metric)
    if losses is None:
        return _by_bootstrap(metric, better, worse)
    with np.errstate(over="ignore", invalid="ignore"):
        gains = losses(worse.labels, worse.predictions) - losses(better.labels, better.predictions)
    return t_confidence(gains)


def worse_confidence(metric: Metric, now: Predicted, then: float, rows_then: int | None) -> float:
    """Return how sure it is that a metric's value on rows is worse than one of other rows.

    By Student's t of each row's loss, as if losses spread as much then as now. NaN where nobody can
    tell: of one row, or a metric that is no mean over rows.
    """
    name = metric.built_in
    mean_then = _MEANS[name](then) if name in _MEANS else then
    losses = _row_losses(metric)
    count = len(now.labels)
    if losses is None or name == "wape" or count < 2:
        return math.nan
    with np.errstate(over="ignore", invalid="ignore"):
        found = losses(now.labels, now.predictions)
        excess, spread = float(found.mean()) - mean_then, float(found.std(ddof=1))
    if not math.isfinite(excess) or spread <= 1e-12 * abs(excess):
        return math.nan if not math.isfinite(excess) else 0.5 if excess == 0 else float(excess > 0)
    error = spread * math.sqrt(1 / count + (1 / rows_then if rows_then else 0))
    return student_t(excess / error, count - 1)


def t_confidence(gains: np.ndarray) -> float:
    """Return how sure it is that the mean of paired differences is above 0, by Student's t.

    Example:
        >>> round(t_confidence(np.array([1.0, 2.0, 3.0])), 3)
        0.963
    """
    count = len(gains)
    if count < 2 or not np.isfinite(gains).all():
        return math.nan
    mean, spread = float(gains.mean()), float(gains.std(ddof=1))
    if spread <= 1e-12 * abs(mean):
        return 0.5 if mean == 0 else float(mean > 0)
    return student_t(mean / (spread / math.sqrt(count)), count - 1)


def student_t(value: float, degrees: int) -> float:
    """Return the share of Student's t distribution that is below a value.

    Abramowitz and Stegun, Handbook of Mathematical Functions, 26.7.3 and 26.7.4.
    """
    if degrees >= _NORMAL_FROM:
        return 0.5 * math.erfc(-value / math.sqrt(2))
    angle = math.atan2(value, math.sqrt(degrees))
    is_odd = degrees % 2
    # cos^1, cos^3, ... of an odd number of degrees, else cos^0, cos^2, ..., with their factors.
    steps = np.arange(2 + is_odd, degrees - 1, 2)
    factors = np.cumprod((steps - 1) / steps) if len(steps) else np.empty(0)
    cosine = math.cos(angle)
    series = 1 + float((factors * cosine ** (steps - is_odd)).sum())
    if not is_odd:
        within = math.sin(angle) * series
    else:
        within = angle + (math.sin(angle) * cosine * series if degrees > 1 else 0.0)
        within *= 2 / math.pi
    return min(1.0, max(0.0, 0.5 + within / 2))


def _by_bootstrap(metric: Metric, better: Predicted, worse: Predicted) -> float:
    count = len(better.labels)
    # Of the metric alone: the same rows give the same answer in any process.
    generator = np.random.default_rng(zlib.crc32(metric.name.encode()))
    won, tried = 0.0, 0
    for goal in (_FIRST, RESAMPLES):
        while tried < goal:
            rows = generator.integers(0, count, count)
            first, second = (metric(_taken(each, rows)) for each in (better, worse))
            if not (math.isfinite(first) and math.isfinite(second)):
                # As auc where a resample has one class alone.
                first = second = 0.0
            gain = metric.loss(second) - metric.loss(first)
            won += 0.5 if gain == 0 else float(gain > 0)
            tried += 1
        if max(won, tried - won) < _UNCLEAR * tried:
            break
    if count < 2:
        return math.nan
    if won == tried / 2:
        return 0.5
    # Both ways add up to 1: a contest has one of them alone, and takes the other from it.
    return (won + (won < tried / 2)) / (tried + 1)


def _taken(predicted: Predicted, rows: np.ndarray) -> Predicted:
    labels, predictions = predicted.labels[rows], predicted.predictions[rows]
    return replace(predicted, labels=labels, predictions=predictions)


def _row_losses(metric: Metric) -> RowLosses | None:
    """Return what each row adds to a metric; None: it is a function, or no mean over rows."""
    name, _, quantile = metric.built_in.partition(":")
    return _pinball(float(quantile)) if quantile else _ROW_LOSSES.get(name)


def _of_label(labels: np.ndarray, predictions: np.ndarray) -> np.ndarray:
    """Return the probability that was predicted of each row's own class."""
    if predictions.ndim == 1:
        return np.where(labels == 1, predictions, 1 - predictions)
    return np.asarray(predictions[np.arange(len(labels)), labels.astype(np.int64)])


def _is_wrong(labels: np.ndarray, predictions: np.ndarray) -> np.ndarray:
    if predictions.ndim == 1:
        return np.asarray((predictions > 0.5) != (labels == 1), np.float64)
    return np.asarray(predictions.argmax(axis=1) != labels, np.float64)


def _relative(labels: np.ndarray, predictions: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    # Where both are 0 there is no error; and without labels that are not 0, mape has no value.
    return np.asarray(np.abs(predictions - labels) / np.where(sizes == 0, 1, sizes))


def _pinball(quantile: float) -> RowLosses:
    return lambda labels, predictions: pinball(quantile, labels - predictions)


_ROW_LOSSES: dict[str, RowLosses] = {
    "rmse": lambda labels, predictions: (predictions - labels) ** 2,
    # Of the same rows, wape divides the sum of these by the same number.
    **dict.fromkeys(("mae", "wape"), lambda y, predicted: np.abs(predicted - y)),
    "mape": lambda y, predicted: _relative(y, predicted, np.abs(y)),
    "smape": lambda y, predicted: _relative(y, predicted, np.abs(y) + np.abs(predicted)),
    "pinball": _pinball(0.5),
    "logloss": lambda y, predicted: -np.log(np.clip(_of_label(y, predicted), 1e-15, 1)),
    "accuracy": _is_wrong,
}
"""What each row adds to a metric, the less the better."""
_MEANS: dict[str, Callable[[float], float]] = {
    "rmse": lambda value: value * value,
    "smape": lambda value: value / 2,
    "accuracy": lambda value: 1 - value,
}
"""The mean of what rows add, from the value of a metric where that is another one."""
