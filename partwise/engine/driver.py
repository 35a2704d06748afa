"""The driver's side of a run: hands shards to workers, follows them, and stops them."""

import logging
import threading
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from distributed import Client, Future, wait

from partwise.engine.assignment import (
    Execution,
    FailureGroup,
    ShardAssignment,
    ShardProgress,
    ShardReceipt,
)
from partwise.engine.cluster_watch import ClusterWatch
from partwise.engine.worker import end_execution, request_stop, run_shard
from partwise.outcomes import PartitionStatus, RunStatus, Stop

LOOK_S = 0.5

Logger = logging.Logger | logging.LoggerAdapter[logging.Logger]
logger = logging.getLogger(__name__)


@dataclass(slots=True)
class Progress:
    """Where a run stands: what its workers have reported so far."""

    partitions: int
    counts: Counter[str] = field(default_factory=Counter)
    kept: int = 0
    failures: dict[str, FailureGroup] = field(default_factory=dict)
    _of_shards: dict[int, dict[str, tuple[Counter[str], int]]] = field(default_factory=dict)

    def add(self, news: ShardProgress) -> None:
        """Add what a worker reported; of several executions of a shard the newest counts."""
        executions = self._of_shards.setdefault(news.shard, {})
        if news.execution not in executions:
            if executions:
                # Its worker died, or is out of reach: what it reported is committed or done again.
                counts, kept = executions[next(reversed(executions))]
                self.counts.subtract(counts)
                self.kept -= kept
            executions[news.execution] = (Counter(), 0)
        elif news.execution != next(reversed(executions)):
            return
        counts, kept = executions[news.execution]
        counts.update(news.counts)
        executions[news.execution] = (counts, kept + news.kept)
        self.counts.update(news.counts)
        self.kept += news.kept
        for group in news.failures:
            known = self.failures.get(group.fingerprint)
            total = group.count + (known.count if known else 0)
            self.failures[group.fingerprint] = replace(known or group, count=total)

    @property
    def finished(self) -> int:
        """Partitions that need no more work."""
        return self.counts.total()

    @property
    def failed(self) -> int:
        """Partitions that failed for good."""
        return self.counts[PartitionStatus.FAILED.value]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardGroup:
    """Shards that one Prefect task run covers."""

    numbers: tuple[int, ...]
    rows: int

    def __str__(self) -> str:
        first, count = self.numbers[0], len(self.numbers)
        shards = f"shard {first}" if count == 1 else f"{count} shards from {first}"
        return f"{shards} ({self.rows:,} rows)"


class ProgressListener(Protocol):
    """Who wants to hear of progress: a terminal's bar, an artifact in the UI."""

    def update(self, progress: Progress, news: ShardProgress) -> None:
        """Take note; called on a thread of the client, so it should be quick."""


class Driver:
    """Runs the shards of one execution on a cluster.

    Args:
        client: Connected to the cluster.
        execution: What the shards have in common.
        assignments: The shards; the largest are started first.
        partitions: How many partitions there are, for progress and the failure budget.
        listeners: Hear of progress.
    """

    def __init__(
        self,
        client: Client,
        execution: Execution,
        assignments: Iterable[ShardAssignment],
        partitions: int,
        listeners: Sequence[ProgressListener] = (),
    ) -> None:
        ranked = sorted(assignments, key=lambda a: (-a.shard.size_bytes, a.number))
        self.order = [assignment.number for assignment in ranked]
        self.progress = Progress(partitions)
        self.stopped: Stop | None = None
        self.lost: dict[int, str] = {}
        """Shards given up, because workers died under them or the store refused: why."""
        self._assignments = {assignment.number: assignment for assignment in ranked}
        self._priority = {number: -rank for rank, number in enumerate(self.order)}
        self._client = client
        self._execution = execution
        self._budget = execution.options.failure_budget(partitions)
        self._listeners = listeners
        self._lock = threading.Lock()
        self._watch = ClusterWatch(client, execution.run_id)

    def __enter__(self) -> "Driver":
        self._client.subscribe_topic(self._execution.token, self._on_event)
        return self

    def __exit__(self, *exception: object) -> None:
        execution = self._execution
        try:
            self._client.unsubscribe_topic(execution.token)
            self._client.run(end_execution, execution.token, on_error="ignore")
        except Exception:
            # The cluster is gone, and with it what would have to be tidied there.
            logger.debug("could not tidy up on the workers", exc_info=True)

    def groups(self, most: int) -> list[ShardGroup]:
        """Divide the shards, largest first, into at most so many groups."""
        size = -(-len(self.order) // max(1, most))
        parts = [self.order[i : i + size] for i in range(0, len(self.order), size)]
        return [
            ShardGroup(numbers=tuple(part), rows=sum(self._assignments[n].shard.rows for n in part))
            for part in parts
        ]

    def run_shards(self, numbers: Sequence[int], log: Logger) -> list[ShardReceipt]:
        """Have shards run, and wait for them; callable from several threads at once.

        A shard whose worker dies is started again, a few times; it goes on from what it committed.

        Args:
            numbers: Those to run.
            log: Hears of each shard that came to its end.

        Raises:
            ClusterError: The cluster is gone, or has had no worker for two minutes.
        """
        receipts: list[ShardReceipt] = []
        starts: Counter[int] = Counter()
        pending = {self._submit(number, starts): number for number in numbers}
        while pending:
            done = self._await(pending)
            for future in done:
                number = pending.pop(future)
                receipt = self._receive(future, number, log)
                future.release()
                if receipt is not None:
                    log.info("%s", receipt)
                    receipts.append(receipt)
                elif starts[number] < self._execution.options.worker_attempts and not self.stopped:
                    pending[self._submit(number, starts)] = number
        return receipts

    def _submit(self, number: int, starts: Counter[int]) -> Future[ShardReceipt]:
        starts[number] += 1
        return self._client.submit(
            run_shard,
            self._assignments[number],
            key=f"shard-{number:05d}-{self._execution.token}-{starts[number]}",
            priority=self._priority[number],
            pure=False,
        )

    def _receive(
        self, future: Future[ShardReceipt], number: int, log: Logger
    ) -> ShardReceipt | None:
        """Return the receipt of a shard, or None when it failed as a whole."""
        try:
            receipt = future.result()
        except Exception as error:
            self.lost[number] = f"{type(error).__name__}: {error}"[:500]
            log.warning("shard %d did not come to its end: %s", number, self.lost[number])
            return None
        self.lost.pop(number, None)
        return receipt

    def _await(self, pending: Mapping[Future[ShardReceipt], int]) -> list[Future[ShardReceipt]]:
        while True:
            try:
                wait(list(pending), timeout=LOOK_S, return_when="FIRST_COMPLETED")
            except TimeoutError:
                self._look_at_cluster()
            except Exception:
                # A shard that failed: its future says why.
                logger.debug("while waiting for shards", exc_info=True)
            done = [future for future in pending if future.done()]
            if done:
                return done

    def _look_at_cluster(self) -> None:
        """Give up on a cluster that went away; repeat a stop for workers that came since."""
        self._watch.look()
        if self.stopped:
            self._tell_workers_to_stop()

    def exceeds_budget(self, failed: int) -> Stop | None:
        """Return how the run ends when so many failures exceed the budget; None: they do not."""
        if self._budget is None or failed <= self._budget:
            return None
        reason = f"{failed} partitions failed, and the failure budget is {self._budget}"
        return Stop(RunStatus.FAILURE, reason)

    def stop(self, stop: Stop) -> None:
        """Have all workers commit what they have and return. The first stop is the one that counts.

        Args:
            stop: Why, and how the run ends.
        """
        with self._lock:
            if self.stopped is not None:
                return
            self.stopped = stop
        self._tell_workers_to_stop()

    def _tell_workers_to_stop(self) -> None:
        try:
            self._client.run(request_stop, self._execution.token, on_error="ignore")
        except Exception:
            logger.debug("could not reach the workers to stop them", exc_info=True)

    def _on_event(self, event: tuple[Any, Any]) -> None:
        news = ShardProgress.from_message(event[1])
        progress = self.progress
        with self._lock:
            progress.add(news)
            exceeded = self.exceeds_budget(progress.failed)
        for listener in self._listeners:
            listener.update(progress, news)
        if exceeded and self.stopped is None:
            # Not on the client's own thread, which would wait for itself.
            threading.Thread(target=self.stop, args=(exceeded,), daemon=True).start()
