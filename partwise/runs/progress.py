"""How far a run is: counts of its partitions by status, at the cost of a few small files."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from partwise.formatting import duration
from partwise.outcomes import HAVE_NO_END, PartitionStatus, RunStatus
from partwise.runs.unfinished import Standing

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
        return sum(n for status, n in self.counts.items() if status not in HAVE_NO_END)

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


def in_order(counts: Mapping[str, int]) -> dict[str, int]:
    """Return counts without zeros, in the order of the statuses."""
    return {each.value: n for each in PartitionStatus if (n := counts.get(each.value, 0)) > 0}


def with_pending(counts: Mapping[str, int], total: int | None) -> dict[str, int]:
    """Return counts with those that have no row yet, in the order of the statuses."""
    left = max(0, (total or 0) - sum(counts.values()))
    return in_order({**counts, _PENDING: counts.get(_PENDING, 0) + left})


def told_counts(standing: Standing, total: int | None) -> dict[str, int]:
    """Return the counts that a process told, with those that have not ended."""
    counts = in_order(standing.counts)
    left = max(0, (total or 0) - sum(counts.values()))
    return with_pending({**counts, _RUNNING: min(left, standing.running)}, total)
