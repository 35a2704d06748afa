"""What the driver of a study hands a worker, and what comes back: small frozen values only."""

import threading
from dataclasses import dataclass
from typing import Any

from partwise.engine.assignment import Execution
from partwise.outcomes import PartitionStatus
from partwise.runs.ledger import LedgerRow
from partwise.runs.trials import TrialRecord
from partwise.shuffle.shared_folder import StagedFile

BEGUN = "begun"
"""In a message of a worker's: the number of the trial that it has begun."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialAssignment:
    """One trial, for one worker."""

    execution: Execution
    rows: StagedFile | None
    """Pickled `SourceFragments`; None: ranks of a gang have the rows."""
    number: int
    record: TrialRecord
    """What it is to try."""
    fingerprint: str
    """Of the rows."""
    asks: bool
    """Whether a pruner looks at what the trial reports."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialReceipt:
    """What became of a trial; its row is in the ledger."""

    number: int
    status: PartitionStatus
    record: TrialRecord
    seconds: float
    rows: int
    reason: str
    """Why it has no model; empty: it has one."""
    error_type: str | None = None

    @classmethod
    def of_row(cls, row: LedgerRow) -> "TrialReceipt":
        """Return what the row of a trial says of it."""
        return cls(
            number=row.shard,
            status=PartitionStatus(row.status),
            record=TrialRecord.from_json(row.trial or ""),
            seconds=row.seconds or 0.0,
            rows=row.rows or 0,
            reason=row.error_message or row.reason or "",
            error_type=row.error_type,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What a worker asks the driver when its trial reports: is it to be given up?"""

    worker: str
    """Its address."""
    number: int
    step: int
    value: float
    settled: threading.Event | None = None
    """Set once the study has taken note of it, where who asks waits in the driver."""

    def to_message(self) -> dict[str, Any]:
        """Return it as plain values, as Dask's events want it."""
        names = ("worker", "number", "step", "value")
        return {name: getattr(self, name) for name in names}
