"""The map of `find_portfolio`: many settings, scored on one partition."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from partwise.outcomes import Result, Skip

if TYPE_CHECKING:
    from partwise.connector.context import PartitionContext
    from partwise.connector.data_connector import DataConnector
    from partwise.trainers.choosing.tuned import Tuned


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoredSettings:
    """Score settings on a partition, the same ones on each."""

    tuned: Tuned
    """The trainer with its settings, and how they are scored; it draws none of its own."""

    def __call__(self, data: DataConnector, context: PartitionContext) -> Result | Skip:
        """Score all settings.

        A row for each: setting, its place; score, null where it has none; seconds; and reason, why
        it has none.
        """
        study = self.tuned.study_of(data, context)
        if isinstance(study, Skip):
            return study
        if study.best is None:
            return study.nothing()
        tried = study.tried
        table = pa.table(
            {
                "setting": pa.array([each.number for each in tried], pa.int32()),
                "score": pa.array([each.value for each in tried], pa.float64()),
                "seconds": pa.array([each.seconds for each in tried], pa.float64()),
                "reason": pa.array([each.reason or None for each in tried], pa.string()),
            }
        )
        metrics = {"trials": len(tried), "trials_failed": study.count("failed", "skipped")}
        return Result(table, {**metrics, "trial_seconds": study.seconds})
