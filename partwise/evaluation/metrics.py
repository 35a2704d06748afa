"""How good predictions are."""

from collections.abc import Callable
from typing import Literal

import numpy as np

Task = Literal["regression", "binary", "multiclass"]


def regression_metrics(labels: np.ndarray, predictions: np.ndarray) -> dict[str, float]:
    """Return rmse, mae and, where no label is 0, mape.

    Args:
        labels: Shape (n,).
        predictions: Shape (n,).
    """
    # Beyond what a double holds, a metric is infinite, and so worse than all others.
    with np.errstate(over="ignore"):
        errors = predictions - labels
        metrics = {
            "rmse": float(np.sqrt(np.mean(errors**2))),
            "mae": float(np.mean(np.abs(errors))),
        }
        if np.all(labels != 0):
            metrics["mape"] = float(np.mean(np.abs(errors / labels)))
    return metrics


def binary_metrics(labels: np.ndarray, predictions: np.ndarray) -> dict[str, float]:
    """Return logloss, accuracy and, where both classes are present, auc.

    Args:
        labels: 0 or 1, shape (n,).
        predictions: Probabilities of 1, shape (n,).
    """
    of_label = np.where(labels == 1, predictions, 1 - predictions)
    metrics = {
        "logloss": _mean_logloss(of_label),
        "accuracy": float(np.mean((predictions > 0.5) == (labels == 1))),
    }
    n_ones = int(np.count_nonzero(labels == 1))
    n_zeros = len(labels) - n_ones
    if n_ones and n_zeros:
        _, places, counts = np.unique(predictions, return_inverse=True, return_counts=True)
        # Equal predictions share the mean of their ranks.
        ranks = (np.cumsum(counts) - (counts - 1) / 2)[places]
        wins = float(ranks[labels == 1].sum()) - n_ones * (n_ones + 1) / 2
        metrics["auc"] = wins / (n_ones * n_zeros)
    return metrics


def multiclass_metrics(labels: np.ndarray, predictions: np.ndarray) -> dict[str, float]:
    """Return logloss and accuracy.

    Args:
        labels: Classes from 0 on, shape (n,).
        predictions: Probabilities, shape (n, classes).
    """
    classes = labels.astype(np.int64)
    of_label = predictions[np.arange(len(classes)), classes]
    return {
        "logloss": _mean_logloss(of_label),
        "accuracy": float(np.mean(predictions.argmax(axis=1) == classes)),
    }


def _mean_logloss(probabilities: np.ndarray) -> float:
    return float(-np.mean(np.log(np.clip(probabilities.astype(np.float64), 1e-15, 1))))


METRICS: dict[Task, Callable[[np.ndarray, np.ndarray], dict[str, float]]] = {
    "regression": regression_metrics,
    "binary": binary_metrics,
    "multiclass": multiclass_metrics,
}
"""The metrics of each task, as functions of labels and predictions."""
