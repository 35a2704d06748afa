"""Progress reports: what a worker sends the driver while it works on a shard."""

import contextlib
import re
import secrets
import threading
import time
from collections import Counter
from dataclasses import replace

from partwise.engine.assignment import (
    FailureGroup,
    LeftoverKind,
    ShardAssignment,
    ShardProgress,
)
from partwise.engine.host import Host
from partwise.outcomes import PartitionStatus
from partwise.runs.ledger import LedgerRow

PROGRESS_INTERVAL_S = 0.25
"""At most this often a worker reports its progress."""


class Reporter:
    """Reports progress to the driver, a few times a second at most."""

    def __init__(self, host: Host, assignment: ShardAssignment) -> None:
        self._host = host
        self._topic = assignment.execution.token
        self._shard = assignment.number
        self._execution = secrets.token_hex(4)
        self._next = 0.0
        self._is_awaited = False
        self._lock = threading.Lock()
        self._kinds: set[str] = set()
        self._clear()

    def _clear(self) -> None:
        self._counts: Counter[str] = Counter()
        self._failures: dict[str, FailureGroup] = {}
        self._kept = 0
        self._leftovers: list[LeftoverKind] = []

    def add(self, row: LedgerRow) -> None:
        """Count an outcome, and report it now or soon."""
        with self._lock:
            self._counts[row.status] += 1
            if row.status == PartitionStatus.FAILED:
                self._add_failure(row)
        wait_s = self._next - time.monotonic()
        if wait_s <= 0:
            self.report()
        elif not self._is_awaited:
            # The next partition may take an hour, and a failure budget waits for this news.
            self._is_awaited = True
            self._host.call_later(wait_s, self.report)

    def _add_failure(self, row: LedgerRow) -> None:
        fingerprint = row.error_fingerprint or ""
        known = self._failures.get(fingerprint)
        self._failures[fingerprint] = (
            replace(known, count=known.count + 1)
            if known
            else FailureGroup(
                fingerprint=fingerprint,
                error_type=row.error_type or "",
                message=(row.error_message or "")[:300],
                sample=row.partition_id,
                count=1,
            )
        )

    def add_leftovers(self, partition_id: str, left: list[str]) -> None:
        """Note what a partition left in its process; of each kind, the first of this shard."""
        with self._lock:
            for text in left:
                # Threads and processes have numbers in their names.
                kind = re.sub(r"\d+", "#", text)
                if kind not in self._kinds:
                    self._kinds.add(kind)
                    self._leftovers.append(LeftoverKind(kind=kind, text=text, sample=partition_id))

    def keep(self, counts: Counter[str], kept: int) -> None:
        """Count partitions that need no work: committed before, or kept by a resume."""
        with self._lock:
            self._counts.update(counts)
            self._kept += kept

    def report(self) -> None:
        """Send what has come together; called by the shard's thread and by the host's."""
        with self._lock:
            self._is_awaited = False
            if not self._counts and not self._failures and not self._leftovers:
                return
            progress = ShardProgress(
                shard=self._shard,
                execution=self._execution,
                counts=dict(self._counts),
                kept=self._kept,
                failures=tuple(self._failures.values()),
                leftovers=tuple(self._leftovers),
            )
            self._clear()
            self._next = time.monotonic() + PROGRESS_INTERVAL_S
        # A driver out of reach is no reason to stop: what counts is on the store.
        with contextlib.suppress(OSError):
            self._host.log_event(self._topic, progress.to_message())
