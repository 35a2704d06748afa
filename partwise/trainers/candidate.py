"""What can be scored: a trainer that is fitted on some of a partition's rows, and predicts others.

`Best` and `Tuned` divide a partition's rows into splits once, and give each candidate the same.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from statistics import fmean, median
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from partwise.evaluation import fits_on_all
from partwise.evaluation.intervals import half_widths, quantile_metrics
from partwise.evaluation.predictions import prediction_array, without_number
from partwise.evaluation.scores import Predicted, measure
from partwise.models.composite_models import IntervalModel, LagModel
from partwise.models.plain_models import ForecastModel

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from partwise.choices import FitOn, Task
    from partwise.connector.context import PartitionContext
    from partwise.connector.data_connector import DataConnector
    from partwise.evaluation import Evaluation
    from partwise.evaluation.scores import Metric
    from partwise.evaluation.split import Split
    from partwise.outcomes import Skip


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Fit:
    """A trained model."""

    model: Any
    predictions: Any
    """For the rows that it is scored on, as `prediction_array` takes them; None where there are
    none."""
    rounds: int | None = None
    """The boosting rounds that the model predicts with; None: it has none."""
    quantile_rounds: tuple[int, ...] = ()
    """Those of the models of its quantiles, where it has some."""
    task: Task | None = None
    """None: not known, as of a user's function."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    """What there is to say of the rows that it is scored on, besides the metrics of its task."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    """Looks on while a model is fitted, so that the fit can be given up."""

    every: int
    """The rounds from one look to the next."""
    report: Callable[[int, float], None]
    """Called with a round and the metric of the rows scored on; raises to give the fit up."""


Look = Callable[[int, Callable[[], Any]], None]
"""Called after each round with its number, and with what predicts the rows scored on by then."""


class PreparedRows(Protocol):
    """The labelled rows of one partition, ready to be fitted again and again."""

    @property
    def table(self) -> pa.Table:
        """The rows that have a label, n of them."""

    @property
    def labels(self) -> np.ndarray:
        """Double, shape (n,)."""

    def fit(
        self,
        train: np.ndarray,
        test: np.ndarray | None = None,
        settings: Mapping[str, Any] | None = None,
        look: Look | None = None,
    ) -> Fit | Skip:
        """Train a model, and predict other rows with it.

        Args:
            train: The rows to train on, as bools of shape (n,).
            test: The rows to predict, as bools of shape (n,); None: none.
            settings: Parameters by name, over those of the trainer; `rounds` among them, or a tuple
                of those of the model and of each of its quantiles.
            look: Hears how a fit in rounds goes on, and may raise to give it up.

        Returns:
            The fit; a Skip where there are too few rows to train on.
        """


class Candidate(Protocol):
    """What has models that can be scored: a trainer, or a train function with a label."""

    def prepare(self, data: DataConnector, context: PartitionContext) -> PreparedRows:
        """Return the rows of a partition, once for all fits.

        Raises:
            ColumnError: A column is missing, or its type does not fit.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """How good a candidate is, with one choice of settings."""

    windows: tuple[float, ...]
    """The metric in each window; NaN where it has no value there."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    """Means over the windows of all metrics of the task."""
    rounds: int | None = None
    """The median of the windows' boosting rounds."""
    quantile_rounds: tuple[int, ...] = ()
    """The same of the models of each quantile."""
    last: Fit | None = None
    """That of the last window."""
    reason: str = ""
    """Why it is the worst score there is; empty: it is not, or the metric says so itself."""
    residuals: np.ndarray | None = field(default=None, compare=False)
    """Predictions less labels of all windows; None: of classes they have none."""

    @property
    def value(self) -> float:
        """The mean over the windows in which the metric has a value; NaN: in none."""
        present = [value for value in self.windows if value == value]
        return fmean(present) if present else float("nan")


def score(
    rows: PreparedRows,
    splits: Sequence[Split],
    metric: Metric | None = None,
    *,
    settings: Mapping[str, Any] | None = None,
    season: int = 1,
    on_window: Callable[[int, float], None] | None = None,
    watch: Watch | None = None,
) -> Score | Skip:
    """Score a candidate on each split, with a model of its own for each.

    `metric` None: nothing is compared. `season`: rows after which one repeats. `on_window` is
    called after each split but the last, with its place and the mean so far, and raises to give up.
    `watch` hears the metric while the first model is fitted. A Skip: a split has too few rows.
    """
    values: list[float] = []
    measured: list[Mapping[str, float]] = []
    rounds: list[tuple[int, ...]] = []
    residuals: list[np.ndarray] = []
    last = None
    reason = ""

    def look(done: int, predict: Callable[[], Any]) -> None:
        if watch is not None and metric is not None and done % watch.every == 0:
            watch.report(done, metric(predicted_of(rows, splits[0], predict(), season)))

    for place, split in enumerate(splits):
        is_watched = watch is not None and place == 0
        fit = rows.fit(split.train, split.test, settings, look if is_watched else None)
        if not isinstance(fit, Fit):
            return fit
        predicted = predicted_of(rows, split, fit.predictions, season)
        last = fit
        reason = reason or without_number(predicted.predictions)
        if predicted.predictions.ndim == 1:
            residuals.append(predicted.predictions - predicted.labels)
        if metric is not None:
            values.append(metric(predicted))
        if fit.task is not None:
            found = {**measure(fit.task, predicted), **fit.metrics}
            if isinstance(fit.predictions, Mapping):
                found |= quantile_metrics(predicted.labels, fit.predictions)
            measured.append(found)
        if fit.rounds is not None:
            rounds.append((fit.rounds, *fit.quantile_rounds))
        if on_window is not None and place < len(splits) - 1:
            on_window(place, Score(windows=tuple(values)).value)
    medians = [round(median(each)) for each in zip(*rounds, strict=True)]
    return Score(
        windows=tuple(values),
        metrics=mean_metrics(measured),
        rounds=medians[0] if medians else None,
        quantile_rounds=tuple(medians[1:]),
        last=last,
        reason=reason,
        residuals=np.concatenate(residuals) if residuals else None,
    )


def fit_kept(
    rows: PreparedRows,
    scored: Score,
    fit_on: FitOn,
    evaluation: Evaluation | None,
    settings: Mapping[str, Any] | None = None,
) -> Fit | Skip:
    """Return the model that is kept of a candidate once it is scored.

    Returns:
        The fit of the last window itself, or one of all rows; a Skip where these are too few.
    """
    # A forecast goes on from the last row trained on, which has to be the newest there is.
    is_forecast = scored.last is not None and isinstance(
        scored.last.model, ForecastModel | LagModel
    )
    on_all = fits_on_all(fit_on, evaluation) or (fit_on == "auto" and is_forecast)
    if scored.last is not None and not on_all:
        return scored.last
    settings = dict(settings or {})
    if scored.rounds is not None:
        # Without early stopping, as no rows are left to stop by.
        of_quantiles = scored.quantile_rounds
        settings["rounds"] = (scored.rounds, *of_quantiles) if of_quantiles else scored.rounds
    return rows.fit(np.ones(rows.table.num_rows, dtype=bool), None, settings)


def with_intervals(
    model: Any, scored: Score, levels: Sequence[float]
) -> tuple[Any, dict[str, float]]:
    """Return a model with intervals beside its predictions, and how many rows these are from.

    As it is, where no levels are asked for.
    """
    if not levels:
        return model, {}
    residuals = np.empty(0) if scored.residuals is None else scored.residuals
    widths = half_widths(residuals, levels)
    if unknown := [level for level, width in zip(levels, widths, strict=True) if width is None]:
        logging.getLogger("partwise").warning(
            "%d rows scored are too few for intervals of %s: their bounds are null.",
            len(residuals),
            ", ".join(map(str, unknown)),
        )
    found = IntervalModel(model=model, levels=tuple(levels), half_widths=tuple(widths))
    return found, {"interval_rows": len(residuals)}


def predicted_of(rows: PreparedRows, split: Split, predictions: Any, season: int = 1) -> Predicted:
    """Return the predictions of a fit for the rows of its split, with their labels."""
    labels = rows.labels[split.test]
    return Predicted(
        labels=labels,
        predictions=prediction_array(predictions, len(labels)),
        history=None if split.history is None else rows.labels[split.history],
        season=season,
    )


def mean_metrics(measured: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return the mean of each metric over the windows in which it has a value."""
    names = dict.fromkeys(name for one in measured for name in one)
    return {name: fmean(one[name] for one in measured if name in one) for name in names}
