"""Metrics by name, by which candidates and trials are compared.

Formulas: wape, smape, mase and pinball as in Hyndman and Athanasopoulos, Forecasting: Principles
and Practice (3rd ed., sections 5.8 and 5.9), where smape is a fraction of 2, not of 200 percent.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from math import isfinite
from typing import Any

import numpy as np

from partwise.choices import Direction, Task
from partwise.errors import InputError
from partwise.evaluation.metrics import MAXIMIZED, pinball, task_metrics, worst
from partwise.formatting import TOO_LARGE, did_you_mean

_TASKS: dict[str, tuple[Task, ...]] = {
    **dict.fromkeys(("rmse", "mae", "mape", "wape", "smape", "mase", "pinball"), ("regression",)),
    "logloss": ("binary", "multiclass"),
    "accuracy": ("binary", "multiclass"),
    "auc": ("binary",),
}
_PINBALL = re.compile(r"pinball:(?P<quantile>0?\.\d*[1-9]\d*)")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Predicted:
    """Predictions for rows of a window, and what metrics compare them with."""

    labels: np.ndarray
    """Double, shape (n,)."""
    predictions: np.ndarray
    """Double, shape (n,), or (n, classes) for several classes."""
    history: np.ndarray | None = None
    """Labels of the rows trained on in the order of their time, shape (m,); None: they have no
    order."""
    season: int = 1
    """Rows after which a season repeats."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """A number for predictions, which tells better from worse."""

    name: str
    maximized: bool
    function: Callable[[Predicted], Any]
    """Returns NaN where it has no value, as auc of one class."""
    built_in: str
    """The name, if it is one of ours; "" for a function, which may be named like one."""

    @property
    def is_namesake(self) -> bool:
        """Whether it is a function named like one of ours, so that a name does not tell which."""
        return not self.built_in and self.name in _FUNCTIONS

    def __call__(self, predicted: Predicted) -> float:
        """Return the value, or NaN where there is none.

        Where a prediction is NaN or infinite, it is the worst there is, of any metric: the mean
        over all windows is then worst as well.

        Raises:
            InputError: The predictions' shape does not fit, or a function returned no number.
        """
        if not np.isfinite(predicted.predictions).all():
            return worst(self.maximized)
        value = self.function(predicted)
        try:
            if isinstance(value, str | bytes):
                raise TypeError("it is a text, of which float() reads some")
            return float(value)
        except (TypeError, ValueError) as error:
            raise InputError(
                f"The metric {self.name!r} returned {value!r:.60}, which is not a number."
            ) from error
        except OverflowError as error:
            raise InputError(f"The metric {self.name!r} returned {TOO_LARGE}") from error

    def loss(self, value: float) -> float:
        """Return the value such that lower is better; what is not finite is worst."""
        if not isfinite(value):
            return float("inf")
        return -value if self.maximized else value


def find_metric(
    metric: str | Callable[..., Any],
    direction: Direction = "",
    load: Callable[[str], Callable[..., Any]] | None = None,
) -> Metric:
    """Return a metric.

    Args:
        metric: A name: rmse, mae, mape, wape, smape, mase, pinball (of the median; "pinball:0.9" of
            a quantile), logloss, accuracy, auc; or a function of (labels, predictions), or the name
            of one, "package.module:function".
        direction: Which values are better.
        load: Returns the function of a name.

    Raises:
        InputError: There is none of this name.

    Example:
        >>> find_metric("wape").maximized
        False
    """
    function: Callable[[Predicted], Any]
    built_in = ""
    if not isinstance(metric, str):
        name, function = getattr(metric, "__name__", "score"), _of_function(metric)
    elif metric in _FUNCTIONS:
        name, built_in, function = metric, metric, _FUNCTIONS[metric]
    elif match := _PINBALL.fullmatch(metric):
        name, built_in, function = metric, metric, _pinball(float(match["quantile"]))
    elif load is not None and names_function(metric):
        name, function = metric.partition(":")[2], _of_function(load(metric))
    else:
        raise InputError(
            f"There is no metric {metric!r}: give {', '.join(_FUNCTIONS)}, a quantile as "
            '"pinball:0.9", or a function of (labels, predictions).'
            f"{did_you_mean(metric, _FUNCTIONS)}"
        )
    maximized = direction == "maximize" if direction else metric in MAXIMIZED
    return Metric(name=name, maximized=maximized, function=function, built_in=built_in)


def names_function(text: str) -> bool:
    """Tell "package.module:function" from the name of a metric, which may be "pinball:0.9"."""
    return ":" in text and text.rpartition(":")[2].isidentifier()


def check_metric(metric: Metric, task: Task | None, *, is_backtest: bool) -> None:
    """Refuse a metric that a task or an evaluation has no value of.

    A metric that is a function fits anything, and a task may not be known. Rows of a backtest have
    an order.
    """
    tasks = _TASKS.get(metric.built_in.partition(":")[0])
    if tasks is not None and task is not None and task not in tasks:
        fitting = [name for name, its in _TASKS.items() if task in its]
        raise InputError(
            f"The metric {metric.name!r} is none of a {task} model: give {', '.join(fitting)}, or "
            "a function."
        )
    if metric.built_in == "mase" and not is_backtest:
        raise InputError(
            "The metric 'mase' compares with the season before, so that rows need an order in "
            "time: score with Backtest(time=...)."
        )


def measure(task: Task, predicted: Predicted) -> dict[str, float]:
    """Return all metrics of a task that have a value; see `task_metrics`."""
    found = task_metrics(task, predicted.labels, predicted.predictions)
    if task == "regression":
        is_finite = np.isfinite(predicted.predictions).all()
        # Whether there is a value depends on the labels alone.
        asked = predicted if is_finite else replace(predicted, predictions=predicted.labels)
        more = {name: _FUNCTIONS[name](asked) for name in ("wape", "smape", "mase")}
        for name, value in more.items():
            if value == value:
                found[name] = value if is_finite else worst(name in MAXIMIZED)
    return found


def _of_function(function: Callable[..., Any]) -> Callable[[Predicted], Any]:
    return lambda predicted: function(predicted.labels, predicted.predictions)


def _of_task(name: str) -> Callable[[Predicted], float]:
    def function(predicted: Predicted) -> float:
        several = predicted.predictions.ndim > 1
        task: Task = _TASKS[name][0]
        if several and "multiclass" in _TASKS[name]:
            task = "multiclass"
        return task_metrics(task, predicted.labels, predicted.predictions).get(name, float("nan"))

    return function


def _errors(predicted: Predicted) -> np.ndarray:
    """Return predictions less labels, shape (n,)."""
    if predicted.predictions.ndim != 1:
        raise InputError(
            "The metric needs one number for each row, and these predictions have the shape "
            f"{predicted.predictions.shape}."
        )
    # Beyond what a double holds, an error is infinite.
    with np.errstate(over="ignore"):
        return np.asarray(predicted.predictions - predicted.labels)


def _wape(predicted: Predicted) -> float:
    total = float(np.abs(predicted.labels).sum())
    errors = float(np.abs(_errors(predicted)).sum())
    return errors / total if total else float("nan")


def _smape(predicted: Predicted) -> float:
    errors = 2 * np.abs(_errors(predicted))
    sizes = np.abs(predicted.predictions) + np.abs(predicted.labels)
    # Where both are 0 there is no error.
    return float(np.mean(errors / np.where(sizes == 0, 1, sizes)))


def _mase(predicted: Predicted) -> float:
    history = predicted.history
    if history is None or len(history) <= predicted.season:
        return float("nan")
    naive = float(np.mean(np.abs(history[predicted.season :] - history[: -predicted.season])))
    errors = float(np.mean(np.abs(_errors(predicted))))
    return errors / naive if naive else float("nan")


def _pinball(quantile: float) -> Callable[[Predicted], float]:
    return lambda predicted: float(np.mean(pinball(quantile, -_errors(predicted))))


_FUNCTIONS: dict[str, Callable[[Predicted], float]] = {
    **{name: _of_task(name) for name in ("rmse", "mae", "mape")},
    "wape": _wape,
    "smape": _smape,
    "mase": _mase,
    "pinball": _pinball(0.5),
    **{name: _of_task(name) for name in ("logloss", "accuracy", "auc")},
}
