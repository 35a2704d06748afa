"""How good predictions are."""

from collections.abc import Callable

import numpy as np

from partwise.choices import Task
from partwise.errors import InputError

MAXIMIZED = ("accuracy", "auc")
"""Metrics of which more is better, where nobody says otherwise."""


def default_metric(task: Task) -> str:
    """Return the metric that models of a task are compared by, where nobody names one."""
    return "rmse" if task == "regression" else "logloss"


def regression_metrics(labels: np.ndarray, predictions: np.ndarray) -> dict[str, float]:
    """Return rmse, mae and, where no label is 0, mape."""
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
    """Return logloss, accuracy and, where both classes are present, auc, of probabilities of 1.

    Raises:
        InputError: A label is neither 0 nor 1.
    """
    others = (labels != 0) & (labels != 1)
    if others.any():
        raise InputError(
            f"One prediction a row is of two classes, 0 and 1, and {labels[others][0]:g} is among "
            "the labels: predict a probability for each class."
        )
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
    """Return logloss and accuracy of probabilities of the shape (n, classes).

    Raises:
        InputError: A label is none of the classes.
    """
    classes = labels.astype(np.int64)
    if len(classes) and not (classes.min() >= 0 and classes.max() < predictions.shape[1]):
        wrong = classes.min() if classes.min() < 0 else classes.max()
        raise InputError(
            f"The model predicts {predictions.shape[1]} classes, counted from 0, and the class "
            f"{wrong} is among the labels: a model predicts all classes of its run."
        )
    of_label = predictions[np.arange(len(classes)), classes]
    return {
        "logloss": _mean_logloss(of_label),
        "accuracy": float(np.mean(predictions.argmax(axis=1) == classes)),
    }


def _mean_logloss(probabilities: np.ndarray) -> float:
    # Else a single probability of 0 would make it infinite, however good all others are.
    return float(-np.mean(np.log(np.clip(probabilities.astype(np.float64), 1e-15, 1))))


def pinball(quantile: float, errors: np.ndarray) -> np.ndarray:
    """Return the pinball loss of each row, of labels less predictions of a quantile."""
    return np.asarray(np.maximum(quantile * errors, (quantile - 1) * errors))


METRICS: dict[Task, Callable[[np.ndarray, np.ndarray], dict[str, float]]] = {
    "regression": regression_metrics,
    "binary": binary_metrics,
    "multiclass": multiclass_metrics,
}
"""The metrics of each task, as functions of labels and predictions."""


def task_metrics(task: Task, labels: np.ndarray, predictions: np.ndarray) -> dict[str, float]:
    """Return all metrics of a task; the worst there are where a prediction is not a finite number.

    Raises:
        InputError: The predictions' shape, or a label, does not fit the task.
    """
    if (predictions.ndim == 2) != (task == "multiclass"):
        wanted = "a probability for each class" if task == "multiclass" else "one number"
        raise InputError(
            f"A {task} model predicts {wanted} for each row, and these predictions have the shape "
            f"{predictions.shape}."
        )
    if np.isfinite(predictions).all():
        return METRICS[task](labels, predictions)
    # Which of them have a value, the labels alone decide.
    names = METRICS[task](labels, np.zeros_like(predictions))
    return {name: worst(name in MAXIMIZED) for name in names}


def worst(maximized: bool) -> float:
    """Return the score that any other is better than."""
    return -float("inf") if maximized else float("inf")
