"""What became of a partition, and of a run."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal


class PartitionStatus(StrEnum):
    """What became of one partition."""

    PENDING = "PENDING"
    RUNNING = "RUNNING"
    DONE = "DONE"
    SKIPPED = "SKIPPED"
    """The user's function declined it, by `Skip` or by returning None where a model was due."""
    FAILED = "FAILED"
    """The user's function raised, ran out of its time or memory, or killed its process."""
    INTERNAL_ERROR = "INTERNAL_ERROR"
    """The worker or its host died, or the store refused; the user's function is not to blame."""
    CANCELLED = "CANCELLED"


HAVE_NO_END = (PartitionStatus.PENDING, PartitionStatus.RUNNING)
"""Those of partitions that have no outcome yet."""

WRONG = (PartitionStatus.FAILED, PartitionStatus.INTERNAL_ERROR)
"""Those of partitions that went wrong."""


class RunStatus(StrEnum):
    """What became of a run."""

    IN_PROGRESS = "IN_PROGRESS"
    SUCCESS = "SUCCESS"
    """Every partition is DONE or SKIPPED, and at least one is DONE."""
    SKIPPED = "SKIPPED"
    """Every partition was skipped: nothing was made, and nothing failed."""
    PARTIAL_FAILURE = "PARTIAL_FAILURE"
    FAILURE = "FAILURE"
    """No partition is DONE although some failed, or the failure budget was exceeded."""
    CANCELLED = "CANCELLED"


@dataclass(frozen=True, slots=True)
class Stop:
    """Why a run ended before all of its partitions were worked on, and with which status."""

    status: Literal[RunStatus.CANCELLED, RunStatus.FAILURE]
    reason: str
    """As it stands in the summary's sentence and in the ledger rows of what was not worked on."""


CANCELLED = Stop(RunStatus.CANCELLED, "cancelled")
"""Somebody cancelled the run."""


@dataclass(frozen=True, slots=True)
class Result:
    """A model together with numbers about it.

    Example:
        >>> Result(booster, metrics={"rmse": 3.2})  # doctest: +SKIP
    """

    model: Any
    metrics: Mapping[str, float] = field(default_factory=dict)
    """Each becomes a column of `run.partitions`."""
    candidate: str = ""
    """Which of several candidates the model is of; empty: there was but one."""


@dataclass(frozen=True, slots=True)
class Skip:
    """Decline a partition: it is SKIPPED, which is not a failure.

    Example:
        >>> Skip("too few rows")
        Skip(reason='too few rows')
    """

    reason: str
