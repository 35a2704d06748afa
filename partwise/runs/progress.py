"""How far a run is: counts of its partitions by status, at the cost of a few small files."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from partwise.formatting import duration
from partwise.outcomes import HAVE_NO_END, PartitionStatus, RunStatus
from partwise.runs.ledger import status_counts
from partwise.runs.unfinished import read_standing

if TYPE_CHECKING:
    # A run says how far it is by this module.
    from partwise.runs.run import Run

_PENDING, _RUNNING = HAVE_NO_END


@dataclass(frozen=True, slots=True, kw_only=True)
class RunProgress:
    """How far the newest generation of a run is.

    While it works, this is what its process says every two seconds: what has ended there counts,
    also where it is not written to the store yet, which `Run.partitions` still shows as RUNNING.
    Where a worker dies, what it had not written counts no more. Where no process works on the run,
    as far as this machine can know, or it has not said anything, what is written counts.
    """

    status: RunStatus
    generation: int
    """0: its rows are being loaded."""
    counts: Mapping[str, int]
    """Partitions by status; all of `total` while it is known."""
    total: int | None
    """None: its rows are being loaded."""
    kept: int
    """Of those that have ended, the ones that a resume found done."""
    since: datetime
    """When the generation was begun, or its run claimed."""
    heard_at: datetime | None
    """When its process said so, by its own clock; None: it did not, or has ended."""
    has_process: bool
    """Whether a process works on the run. One that died on another machine counts until a resume
    finds out."""

    @property
    def finished(self) -> int:
        """Partitions that have an outcome."""
        return _ended(self.counts)

    @property
    def left(self) -> timedelta | None:
        """What is left if the others take as long as those so far; None: nobody knows."""
        worked = self.finished - self.kept
        if self.heard_at is None or self.total is None or worked <= 0:
            return None
        # What has ended may be counted twice for a moment, where a worker has died.
        left = max(0, self.total - self.finished)
        return max(timedelta(0), self.heard_at - self.since) / worked * left

    def __str__(self) -> str:
        if not self.generation:
            return f"{self.status.value}: its rows are loaded since {self.since:%H:%M:%S} UTC"
        of_all = "" if self.total is None else f" of {self.total:,}"
        parts = [f"{n:,} {status}" for status, n in self.counts.items()]
        text = f"{self.status.value}: {self.finished:,}{of_all} ({', '.join(parts) or 'none'})"
        if self.left is not None and self.status is RunStatus.IN_PROGRESS:
            text += f", about {duration(self.left.total_seconds())} left"
        if not self.has_process and self.status is RunStatus.IN_PROGRESS:
            text += "; no process works on it"
        return text


@dataclass(frozen=True, slots=True, kw_only=True)
class AtWork:
    """A generation that was begun and has not ended: at work, or its process died."""

    generation: int
    since: datetime
    committed: int
    """Partitions, those that it kept included."""
    partitions: int | None
    """How many there are; None: a release before version 2 of the format began it."""

    def __str__(self) -> str:
        since = f"{self.since:%Y-%m-%d %H:%M} UTC"
        total = "" if self.partitions is None else f" of {self.partitions:,}"
        return f"generation {self.generation} at work since {since}, {self.committed:,}{total}"


def how_far(run: "Run") -> AtWork | None:
    """Return how far the newest generation of a run is; None: it has ended, or none was begun."""
    if run.generation == 0 or run.summary is not None:
        return None
    document = run.read_generation_document()
    return AtWork(
        generation=run.generation,
        since=document.started_at,
        committed=_ended(status_counts(run.newest.ledger)),
        partitions=document.partitions,
    )


def read_progress(run: "Run", *, has_process: bool) -> RunProgress:
    """Return how far a run is that was opened just now.

    `has_process`: whether a process worked on it before it was opened.
    """
    begun = run.read_generation_document() if run.generation else None
    total = None if begun is None else begun.partitions
    counts: Mapping[str, int] = {}
    standing, kept = None, 0
    if run.summary is not None:
        counts, kept = run.summary.counts, run.summary.kept
        total = sum(counts.values())
    elif begun is not None:
        standing = read_standing(run.store, run.run_id, run.generation)
        if standing is None:
            counts = status_counts(run.newest.ledger)
        else:
            left = max(0, (total or 0) - sum(standing.counts.values()))
            counts = {**standing.counts, _RUNNING: min(left, standing.running)}
            kept = standing.kept
    pending = counts.get(_PENDING, 0) + max(0, (total or 0) - sum(counts.values()))
    counts = {**counts, _PENDING: pending}
    return RunProgress(
        status=run.status,
        generation=run.generation,
        # Without zeros, in the order of the statuses.
        counts={each.value: n for each in PartitionStatus if (n := counts.get(each.value, 0)) > 0},
        total=total,
        kept=kept,
        since=run.document.created_at if begun is None else begun.started_at,
        heard_at=None if standing is None else standing.at,
        has_process=has_process and run.summary is None,
    )


def began_in(ledger: pa.Table, generation: int) -> int:
    """Return how many partitions a generation made an attempt at."""
    ours = pc.equal(ledger["generation"], generation)
    return int(pc.sum(pc.and_(ours, pc.greater(ledger["attempts"], 0))).as_py() or 0)


def _ended(counts: Mapping[str, int]) -> int:
    return sum(count for status, count in counts.items() if status not in HAVE_NO_END)
