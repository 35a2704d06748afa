"""What a candidate comes to on a partition: settings, a score, and in the end a model."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from partwise.outcomes import Result, Skip
from partwise.trainers.candidate import (
    Candidate,
    PreparedRows,
    Score,
    fit_kept,
    score,
    with_intervals,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from partwise.choices import FitOn
    from partwise.connector.context import PartitionContext
    from partwise.connector.data_connector import DataConnector
    from partwise.evaluation import Evaluation
    from partwise.evaluation.scores import Metric
    from partwise.evaluation.split import Split


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What every candidate for a partition is asked alike."""

    splits: Sequence[Split]
    metric: Metric
    season: int = 1
    """Rows after which a season repeats."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """A candidate with the settings that it is best with."""

    rows: PreparedRows
    score: Score
    settings: Mapping[str, Any] = field(default_factory=dict)
    artifacts: Mapping[str, bytes] = field(default_factory=dict)
    """Files that say how it was found, such as a table of trials."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    """Numbers about the search."""


@runtime_checkable
class Chooser(Protocol):
    """A candidate that has a way of its own to find its settings."""

    def choose(
        self, data: DataConnector, context: PartitionContext, question: Question
    ) -> Choice | Skip:
        """Find the settings with the best score."""


def candidate_name(candidate: Any) -> str:
    """Return how a trainer or function, or the name of one, is called among candidates.

    Example:
        >>> candidate_name("shop.models:fit")
        'fit'
    """
    if isinstance(candidate, str):
        return candidate.rpartition(":")[2]
    own = (getattr(candidate, name, "") for name in ("candidate_name", "kind", "__name__"))
    return next((name for name in own if name), type(candidate).__name__)


def choose(
    candidate: Candidate | Chooser,
    data: DataConnector,
    context: PartitionContext,
    question: Question,
) -> Choice | Skip:
    """Score a candidate, with the settings that it finds or has.

    Returns:
        The choice; a Skip where a split has too few rows for it.
    """
    if isinstance(candidate, Chooser):
        return candidate.choose(data, context, question)
    rows = candidate.prepare(data, context)
    scored = score(rows, question.splits, question.metric, season=question.season)
    if isinstance(scored, Skip):
        return scored
    return Choice(rows=rows, score=scored)


def conclude(
    choice: Choice,
    fit_on: FitOn,
    evaluation: Evaluation,
    question: Question,
    intervals: Sequence[float] = (),
) -> Result | Skip:
    """Return the model that is kept of a choice, with its metrics."""
    kept = fit_kept(choice.rows, choice.score, fit_on, evaluation, choice.settings)
    if isinstance(kept, Skip):
        return kept
    metrics: dict[str, float] = {
        "holdout_rows": int(sum(split.test.sum() for split in question.splits)),
        **{f"holdout_{name}": value for name, value in choice.score.metrics.items()},
    }
    metrics[f"holdout_{question.metric.name}"] = choice.score.value
    if kept.rounds is not None:
        metrics["rounds"] = kept.rounds
    model, of_intervals = with_intervals(kept.model, choice.score, intervals)
    return Result(model, {**metrics, **of_intervals, **choice.metrics})
