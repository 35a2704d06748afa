"""What a child process does in a trial: train with the settings, and see that it has a score."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from partwise.choices import Direction, FitOn
from partwise.connector.context import PartitionContext
from partwise.connector.data_connector import DataConnector
from partwise.engine.outcome import Produced
from partwise.engine.works import StoredModel, TrainWork
from partwise.errors import InputError, TrialPruned
from partwise.evaluation import Evaluation
from partwise.evaluation.scores import find_metric
from partwise.outcomes import PartitionStatus, Result, Skip
from partwise.trainers import resolve_trainer
from partwise.trainers.candidate import Watch, score
from partwise.trainers.choosing.choice import Choice, Question, conclude
from partwise.trainers.ready.boosting import BoostingTrainer

MOST_REPORTS = 25
"""Of a fit: the worker asks the driver each time, which takes longer than a boosting round."""


class MetricError(InputError):
    """The metric that the study goes by is not among those of a trial."""

    final = True


class ScoreError(InputError):
    """The metric of a trial is NaN or infinite."""

    final = True


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoredTrainer:
    """A built-in trainer as a train function: it scores itself, with the settings of the trial."""

    trainer: BoostingTrainer
    evaluation: Evaluation
    metric: str | Callable[..., Any]
    direction: Direction
    fit_on: FitOn

    def __call__(self, data: DataConnector, context: PartitionContext) -> Result | Skip:
        """Score the settings of `context.params`, and train the model that is kept of them."""
        metric = find_metric(self.metric, self.direction, resolve_trainer)
        rows = self.trainer.prepare(data, context)
        splits = self.evaluation.splits(rows.table, context.seed)
        if isinstance(splits, Skip):
            return splits
        rounds = int(context.params.get("rounds") or self.trainer.rounds)

        def report(step: int, value: float) -> None:
            context.report(step=step, metric=value)

        watch = Watch(every=max(1, -(-rounds // MOST_REPORTS)), report=report)
        season = getattr(self.evaluation, "season", 1)
        question = Question(splits=splits, metric=metric, season=season)
        scored = score(
            rows,
            splits,
            metric,
            season=season,
            on_window=report,
            # The steps of a trial are either rounds or windows.
            watch=watch if len(splits) == 1 else None,
        )
        if isinstance(scored, Skip):
            return scored
        choice, intervals = Choice(rows=rows, score=scored), self.trainer.intervals
        return conclude(choice, self.fit_on, self.evaluation, question, intervals)

    def label_classes(self, schema: pa.Schema) -> tuple[str, pa.Array] | None:
        """Return the label and its classes, which the trainer names; None: it names none."""
        return self.trainer.label_classes(schema)

    def calendar_zones(self, schema: pa.Schema) -> dict[str, str]:
        """Return the time zones of the columns of which calendar features are made, by name."""
        return self.trainer.calendar_zones(schema)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialWork:
    """Train the model of a trial."""

    train: TrainWork
    metric: str
    """The name of what the study goes by, among the metrics that training returns."""

    def __call__(
        self,
        data: DataConnector,
        context: PartitionContext,
        models: Sequence[StoredModel],
        directory: str,
    ) -> Produced:
        """Run one trial.

        Raises:
            MetricError: It has no such metric.
            ScoreError: That is NaN or infinite.
        """
        try:
            produced = self.train(data, context, models, directory)
        except TrialPruned as pruned:
            return Produced(status=PartitionStatus.SKIPPED, reason=str(pruned))
        if produced.status is not PartitionStatus.DONE:
            return produced
        check_score(produced.metrics, self.metric)
        return produced


def check_score(metrics: Mapping[str, float], name: str) -> None:
    """Refuse the metrics of a trial that has no score.

    Raises:
        MetricError: The one that the study goes by is not among them.
        ScoreError: It is NaN or infinite.
    """
    value = metrics.get(name)
    if value is None:
        has = ", ".join(metrics) or "none"
        raise MetricError(
            f"The study goes by the metric {name!r}, and the trainer returned {has}: "
            "return Result(model, metrics={...}) with it, or pass metric= the name of another."
        )
    if not math.isfinite(value):
        raise ScoreError(f"The metric {name!r} of the trial is {value}.")
