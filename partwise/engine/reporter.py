"""Progress reports: what a worker sends the driver while it works on a shard, and that it does."""

import contextlib
import re
import secrets
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from partwise.engine.assignment import (
    FailureGroup,
    Remark,
    ShardAssignment,
    ShardProgress,
)
from partwise.engine.host import Host
from partwise.outcomes import PartitionStatus
from partwise.runs.ledger import LedgerRow

PROGRESS_INTERVAL_S = 0.25
"""At most this often a worker reports its progress."""
BEAT_S = 5.0
"""So often it says what it is at, when there is no progress."""
LOOK_S = 1.0
"""So often it looks whether another partition runs than it said last."""

AtWork = tuple[str, float, int] | None
"""What a shard is at, as a clause, since how many seconds, and the place of the partition that
runs; None: there is nothing to say."""


class Reporter:
    """Reports progress to the driver: a few times a second at most, and every few seconds at least.

    What is sent every few seconds is the heartbeat of the shard: a driver that does not hear it for
    a while has others do the work. The worker's loop sends it, so that it does not stop while a
    function computes; nor is it sent when the shard's own thread hangs in the kernel.
    """

    def __init__(self, host: Host, assignment: ShardAssignment) -> None:
        self._host = host
        self._topic = assignment.execution.token
        self._shard = assignment.number
        self._execution = secrets.token_hex(4)
        self._next = 0.0
        self._is_awaited = False
        self._lock = threading.Lock()
        self._kinds: set[str] = set()
        self._stage, self._stage_began = "", time.monotonic()
        self._partition: Callable[[], AtWork] = lambda: None
        self._name_of: Callable[[str], str] = str
        self._beats = False
        self._thread = threading.get_native_id()
        self._sleep = ""
        self._said = -1
        self._clear()

    def name_partitions(self, name_of: Callable[[str], str]) -> None:
        """Have partitions be reported by name; `name_of` gives the name of a partition_id."""
        self._name_of = name_of

    @contextmanager
    def beating(self) -> Iterator[None]:
        """Send heartbeats about what this thread does, meanwhile."""
        self._beats = True
        self._beat()
        self._host.call_later(LOOK_S, self._look)
        try:
            yield
        finally:
            self._beats = False

    def begin(self, stage: str, partition: Callable[[], AtWork] = lambda: None) -> None:
        """Note what the shard is at.

        `stage` is a clause: "it reads its rows". Where there is a partition at work, that is shown
        in its place.
        """
        self._stage, self._stage_began = stage, time.monotonic()
        self._partition = partition

    def _beat(self) -> None:
        """Send a heartbeat, unless the thread of the shard hangs; called by the host."""
        if not self._beats:
            return
        sleep = _deep_sleep(self._thread)
        # Silent only where it has slept since the last beat without a break: short ones are usual.
        if not sleep or sleep != self._sleep:
            self._send()
        self._sleep = sleep
        self._host.call_later(BEAT_S, self._beat)

    def _look(self) -> None:
        """Say that another partition runs, where no outcome does; called by the host."""
        if not self._beats:
            return
        at_work = self._partition()
        is_new = at_work is not None and at_work[2] != self._said
        # As a heartbeat, it is not sent for a thread that hangs.
        if is_new and time.monotonic() > self._next and not _deep_sleep(self._thread):
            self._send()
        self._host.call_later(LOOK_S, self._look)

    def _clear(self) -> None:
        self._counts: Counter[str] = Counter()
        self._failures: dict[str, FailureGroup] = {}
        self._kept = 0
        self._remarks: list[Remark] = []

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
                sample=self._name_of(row.partition_id),
                count=1,
            )
        )

    def add_remarks(self, partition_id: str, texts: Sequence[str]) -> None:
        """Note what is to be said of a partition; of each kind, the first of this shard."""
        with self._lock:
            for text in texts:
                # Threads and processes have numbers in their names.
                kind = re.sub(r"\d+", "#", text)
                if kind not in self._kinds:
                    self._kinds.add(kind)
                    sample = self._name_of(partition_id)
                    self._remarks.append(Remark(kind=kind, text=text, sample=sample))

    def keep(self, counts: Counter[str], kept: int) -> None:
        """Count partitions that need no work: committed before, or kept by a resume."""
        with self._lock:
            self._counts.update(counts)
            self._kept += kept

    def report(self) -> None:
        """Send what has come together; called by the shard's thread and by the host's."""
        with self._lock:
            self._is_awaited = False
            if not self._counts and not self._failures and not self._remarks:
                return
        self._send()

    def _send(self) -> None:
        stage = self._stage, time.monotonic() - self._stage_began, -1
        doing, since_s, place = self._partition() or stage
        with self._lock:
            progress = ShardProgress(
                shard=self._shard,
                execution=self._execution,
                counts=dict(self._counts),
                kept=self._kept,
                failures=tuple(self._failures.values()),
                remarks=tuple(self._remarks),
                worker=self._host.address,
                doing=doing,
                since_s=since_s,
                place=place,
            )
            self._clear()
            self._said = place
            self._next = time.monotonic() + PROGRESS_INTERVAL_S
        # A driver out of reach is no reason to stop: what counts is on the store.
        with contextlib.suppress(OSError):
            self._host.log_event(self._topic, progress.to_message())


def _deep_sleep(thread: int) -> str:
    """Tell one sleep of a thread in the kernel from another; empty: it does not sleep so.

    In such a sleep (state D) a thread cannot even be killed: a disk or a network file system does
    not answer. One that goes on and sleeps again has switched in between.
    """
    try:
        lines = Path(f"/proc/self/task/{thread}/status").read_text().splitlines()
    except OSError:
        return ""
    values = dict(line.partition(":")[::2] for line in lines)
    is_deep = values.get("State", "").strip().startswith("D")
    return values.get("voluntary_ctxt_switches", "").strip() if is_deep else ""
