"""What became of an attempt at a partition: from what its function made to its row of the ledger.

The work returns `Produced`. Its process sends an `Outcome` of it, which the supervising process
completes with what is known from outside, and of which `ledger_row` makes the row. A column of the
ledger that the work fills stands in `partwise.runs.ledger` and here, and nowhere between.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import pyarrow as pa

from partwise.engine.failures import Failure
from partwise.models.serdes import ModelSerde
from partwise.outcomes import PartitionStatus
from partwise.runs.bundle import StoredArtifact
from partwise.runs.ledger import LedgerRow

Content = bytes | str
"""The content of a file: bytes, or the path of a file with them when they are many."""

INLINE_BYTES = 1 << 20
"""Larger contents travel as files."""


def open_content(content: Content) -> bytes:
    """Return content that a child enclosed: itself, or a file that is read and removed."""
    if isinstance(content, bytes):
        return content
    path = Path(content)
    data = path.read_bytes()
    path.unlink()
    return data


@dataclass(frozen=True, slots=True, kw_only=True)
class Produced:
    """What the work on one partition came to."""

    status: PartitionStatus
    reason: str = ""
    metrics: Mapping[str, float] = field(default_factory=dict)
    model: "WrittenModel | None" = None
    reader: ModelSerde | None = None
    """What reads the model back, to see in a dry run that it can be read; None: that is not due."""
    rows: pa.Table | None = None
    """Output rows, key columns first."""
    files: Mapping[str, bytes] = field(default_factory=dict)
    """Artifacts of partwise's own beside the model."""
    candidate: str = ""
    """Which of several candidates the model is of; empty: there was but one."""


@dataclass(frozen=True, slots=True)
class WrittenModel:
    """The model that a partition's function returned, as its serde wrote it."""

    filename: str
    content: Content
    serde: str
    not_kept: str = ""
    """Names of attributes that a function set on it and its file does not hold; empty: none."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What an attempt at a partition came to.

    Also a message from the child, hence not `kw_only`: see `partwise.engine.messages`.
    """

    index: int
    status: PartitionStatus
    reason: str
    metrics: Mapping[str, float] = field(default_factory=dict)
    failure: Failure | None = None
    """Of a FAILED one; its traceback is in the log."""
    model: WrittenModel | None = None
    rows: Content | None = None
    """Output rows, as an Arrow IPC stream."""
    candidate: str = ""
    seconds: float = 0.0
    log: bytes = b""
    left: list[str] = field(default_factory=list)
    """What it left in the process and cannot be put back, in words."""
    retired: bool = False
    """Whether the child should be replaced: for that reason, or it holds on to too much memory."""
    artifacts: Mapping[str, Content] = field(default_factory=dict)
    """What it uploaded, by filename. The child sends small files beside a model along; the others,
    and what follows, are known outside it only."""
    peak_memory_bytes: int | None = None
    is_starved: bool = False
    """Whether it may have failed for want of memory: over its limit, killed by the kernel, or since
    its GPU had none left."""


def ledger_row(
    outcome: Outcome,
    artifacts: tuple[StoredArtifact, ...],
    *,
    partition_id: str,
    shard: int,
    generation: int,
    attempts: int,
    rows: int,
    host: str,
    fingerprint: str | None,
    trial: str | None,
) -> LedgerRow:
    """Return the row of a partition: which it is, who worked on it, and what that came to."""
    # In one go: a row of the place alone, copied with the rest, took three times as long.
    row = LedgerRow(
        partition_id=partition_id,
        shard=shard,
        generation=generation,
        attempts=attempts,
        rows=rows,
        host=host,
        fingerprint=fingerprint,
        trial=trial,
        status=outcome.status.value,
        seconds=outcome.seconds,
        peak_memory_bytes=outcome.peak_memory_bytes,
        reason=outcome.reason or None,
        candidate=outcome.candidate or None,
        metrics=outcome.metrics,
        artifacts=artifacts,
    )
    return row if outcome.failure is None else with_failure(row, outcome.failure)


def with_failure(row: LedgerRow, failure: Failure) -> LedgerRow:
    """Return a row that says of which failure it is."""
    return replace(
        row,
        error_type=failure.error_type,
        error_message=failure.message,
        error_fingerprint=failure.fingerprint,
    )
