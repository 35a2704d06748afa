"""The driver's side of a run: hands shards to workers, follows them, and stops them."""

import contextlib
import itertools
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Protocol

from partwise.cluster_calls import (
    ANSWER_S,
    Ends,
    ask_workers,
    forget_topic,
    in_time,
    is_cut_off,
    rejoin,
    result_of,
)
from partwise.engine.assignment import (
    Execution,
    FailureGroup,
    ShardAssignment,
    ShardProgress,
    ShardReceipt,
)
from partwise.engine.driver.cluster_watch import LOOK_S, ClusterWatch, Logger
from partwise.engine.failures import storable_start
from partwise.engine.reporter import BEAT_S
from partwise.engine.worker.tasks import end_execution, request_stop, run_shard
from partwise.errors import ScratchError, UnkeptModelError
from partwise.formatting import counted, duration
from partwise.outcomes import PartitionStatus, RunStatus, Stop
from partwise.runs.unfinished import Standing

if TYPE_CHECKING:
    from distributed import Client, Future

REPEAT_S = 2.0
"""So often workers are asked again to stop, since others may have come."""
FAREWELL_S = 1.0
"""For so long a run that was stopped waits for workers to tidy up."""

ENDS_RUN = f"{UnkeptModelError.__module__}.{UnkeptModelError.__qualname__}"
"""The failure that every partition of a run would come to."""


@dataclass(slots=True)
class Progress:
    """Where a run stands: what its workers have reported so far."""

    partitions: int
    counts: Counter[str] = field(default_factory=Counter)
    kept: int = 0
    latest: dict[int, tuple[ShardProgress, float]] = field(default_factory=dict)
    """What was heard of each shard at last, and when."""
    begun: dict[int, int] = field(default_factory=dict)
    """How many of a shard's partitions were begun, in the order of their keys, by any execution."""
    _of_shards: dict[int, dict[str, tuple[Counter[str], int]]] = field(default_factory=dict)

    def add(self, news: ShardProgress, now: float = 0.0) -> None:
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
        self.latest[news.shard] = news, now
        self.begun[news.shard] = max(self.begun.get(news.shard, 0), news.place + 1)
        counts, kept = executions[news.execution]
        counts.update(news.counts)
        executions[news.execution] = (counts, kept + news.kept)
        self.counts.update(news.counts)
        self.kept += news.kept

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
        return f"{shards} ({counted(self.rows, 'row')})"


class ProgressListener(Protocol):
    """Who wants to hear of progress: a terminal's bar, an artifact in the UI."""

    def update(self, progress: Progress, news: ShardProgress) -> None:
        """Take note; called on a thread of the client, so it should be quick."""


class Driver:
    """Runs the shards of one execution on a cluster.

    The largest of the `assignments` are started first; `partitions` count for progress and the
    failure budget.
    """

    def __init__(
        self,
        client: "Client",
        execution: Execution,
        assignments: Iterable[ShardAssignment],
        partitions: int,
        watch: ClusterWatch,
        listeners: Sequence[ProgressListener] = (),
    ) -> None:
        # The largest first: so a run with 8 shards for each worker took at most 4 % longer than in
        # the best possible order.
        ranked = sorted(assignments, key=lambda a: (-a.shard.size_bytes, a.number))
        self.order = [assignment.number for assignment in ranked]
        self.progress = Progress(partitions)
        self.stopped: Stop | None = None
        self.lost: dict[int, str] = {}
        """Shards given up, because workers died under them or the store refused: why."""
        self._assignments = {assignment.number: assignment for assignment in ranked}
        # Task runs of Prefect submit their groups at the same time: so the order holds for all.
        self._priority = {number: -rank for rank, number in enumerate(self.order)}
        self._client = client
        self._execution = execution
        self._budget = execution.options.failure_budget(partitions)
        self._listeners = listeners
        self._lock = threading.Lock()
        self._watch = watch
        self._open = set(self.order)
        self._whole: set[int] = set()
        self._submitted = itertools.count(1)
        self._failures: Counter[int] = Counter()
        """How often each shard failed as a whole."""
        self._failed_on: dict[int, set[str]] = {}
        """Workers under which a shard failed as a whole."""
        self._over_at = float("inf")

    def __enter__(self) -> "Driver":
        # Before any shard is sent: the counts of the first are said once, too.
        self._client.subscribe_topic(self._execution.token, self._on_event)
        return self

    def __exit__(self, *exception: object) -> None:
        execution = self._execution
        limit_s = FAREWELL_S if self.stopped or exception[0] else ANSWER_S
        # Ends the thread of `tell_to_stop`, which would else go on after the run.
        self._over_at = 0.0
        # Where the cluster is gone, so is what would have to be tidied there.
        with contextlib.suppress(Exception):
            self._client.unsubscribe_topic(execution.token)
            in_time(limit_s, ask_workers, self._client, end_execution, execution.token)
            forget_topic(self._client, execution.token)

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
        So are all of them, any number of times, when the connection to the scheduler was lost.

        Raises:
            ClusterError: The cluster is gone, or has had no worker for two minutes.
        """
        receipts: list[ShardReceipt] = []
        ends: Ends[ShardReceipt] = Ends()
        pending = {self._submit(number, ends): number for number in numbers}
        while pending:
            done = self._await(ends, pending.values())
            if not done:
                # What hangs is left to itself: all that it may still write bears its own token.
                self._client.cancel(list(pending), reason="the run was stopped")
                break
            for future in done:
                number = pending.pop(future)
                receipt = self._receive(future, number, log)
                future.release()
                if receipt is not None:
                    self._open.discard(number)
                    if receipt.complete:
                        with self._lock:
                            self._whole.add(number)
                    log.info("%s", receipt)
                    receipts.append(receipt)
                elif self._may_begin(number):
                    pending[self._submit(number, ends)] = number
                else:
                    self._open.discard(number)
        return receipts

    def _may_begin(self, number: int) -> bool:
        """Whether a shard is begun again that has not come to its end."""
        most = self._execution.options.max_shard_starts
        return self._failures[number] < most and not self.stopped

    def _submit(self, number: int, ends: Ends[ShardReceipt]) -> "Future[ShardReceipt]":
        # One that is cut off from the store is soon free for what it cannot do.
        self._watch.look()
        self._client.subscribe_topic(self._execution.token, self._on_event)
        failed_on = self._failed_on.get(number, set())
        others = sorted(self._watch.workers().keys() - failed_on) if failed_on else []
        future: Future[ShardReceipt] = self._client.submit(
            run_shard,
            self._assignments[number],
            workers=others or None,
            allow_other_workers=bool(others),
            # A new key for each start: Dask would give the old one's result, or error, again.
            key=f"shard-{number:05d}-{self._execution.token}-{next(self._submitted)}",
            priority=self._priority[number],
            pure=False,
        )
        # Once more, as the first wish may be lost with a connection that is closed before this
        # task is sent. One that is closed later takes the task along, which is then sent again.
        self._client.subscribe_topic(self._execution.token, self._on_event)
        ends.follow(future)
        return future

    def _receive(
        self, future: "Future[ShardReceipt]", number: int, log: Logger
    ) -> ShardReceipt | None:
        """Return the receipt of a shard, or None when it failed as a whole or was lost.

        Raises:
            ClusterError: It was lost with the scheduler, which does not come back.
        """
        try:
            # Its worker may be stopped just now, with the receipt in its memory.
            receipt = result_of(future)
        except ScratchError as error:
            # No partition is to blame, and others would meet the same.
            log.warning("shard %d did not come to its end: %s", number, error)
            self.stop(Stop(RunStatus.FAILURE, str(error)))
            return None
        except Exception as error:
            # Until it is begun again nothing is heard of it, and its worker is not to blame.
            heard = self.progress.latest.pop(number, None)
            if is_cut_off(error):
                rejoin(self._client, self._watch.look, lambda: self.stopped)
                log.info("shard %d was lost with the connection to the scheduler", number)
                return None
            self._failures[number] += 1
            reason = f"{type(error).__name__}: {error}".removesuffix(": ")
            self.lost[number] = storable_start(reason, 500)
            if heard is not None:
                self._failed_on.setdefault(number, set()).add(heard[0].worker)
            if self._may_begin(number):
                # Nothing is lost: what it committed stands, and the rest is done once more.
                log.info("shard %d is begun again: %s", number, self.lost[number])
            else:
                log.warning("shard %d did not come to its end: %s", number, self.lost[number])
            return None
        self.lost.pop(number, None)
        return receipt

    def _await(
        self, ends: Ends[ShardReceipt], pending: Iterable[int]
    ) -> "list[Future[ShardReceipt]]":
        """Return those that came to their end; none when the run is over without them."""
        while time.monotonic() < self._over_at:
            if done := ends.next(LOOK_S):
                return done
            self._watch.look()
            self._look_for_silence(pending)
        return []

    def _look_for_silence(self, numbers: Iterable[int]) -> None:
        """Have others take over shards whose thread hangs though their worker is there."""
        # Between two beats nothing is heard of a shard that is well, either.
        limit_s = self._execution.options.silence_s + BEAT_S
        for number in numbers:
            news, heard_at = self.progress.latest.get(number, (None, 0.0))
            silent_s = self._watch.clock() - heard_at
            if news is not None and silent_s > limit_s:
                # Where the worker has died, the shard waits for another one: this does nothing, and
                # must do nothing to one that was begun at its address since.
                if not self._watch.is_another(news.worker, time.monotonic() - silent_s):
                    self._watch.let_go(news.worker, silent_s)
                # Else it would be let go again at each look, until its next execution is heard of.
                self.progress.latest.pop(number, None)

    def longest(self) -> str:
        """Return a sentence about the shard that has been at one thing for longest."""
        now = self._watch.clock()
        with self._lock:
            latest = [each for number, each in self.progress.latest.items() if number in self._open]
        if not latest:
            return f"{counted(len(self._open), 'shard')} did not begin yet" if self._open else ""
        news, heard_at = max(latest, key=lambda each: each[0].since_s - each[1])
        unheard_s = now - heard_at
        silence = f", and nothing is heard of it for {duration(unheard_s)}"
        return (
            f"shard {news.shard}: {news.doing} since {duration(news.since_s + unheard_s)} on the "
            f"worker {news.worker}{silence if unheard_s > 3 * BEAT_S else ''}"
        )

    def standing(self) -> Standing:
        """Return where the generation stands."""
        now, at = self._watch.clock(), datetime.now(UTC)
        with self._lock:
            begun = {}
            running = 0
            # Of a shard that is whole, each partition has its row.
            for number in self.progress.begun.keys() - self._whole:
                news, heard_at = self.progress.latest.get(number, (None, now))
                place, since = -1, at
                if news is not None and number in self._open:
                    place = news.place
                    since = at - timedelta(seconds=news.since_s + now - heard_at)
                running += place >= 0
                begun[number] = (self.progress.begun[number], place, since)
            return Standing(
                generation=self._execution.generation,
                at=at,
                counts=dict(self.progress.counts),
                kept=self.progress.kept,
                running=running,
                begun=begun,
            )

    def _ends_with(self, failures: Iterable[FailureGroup]) -> Stop | None:
        """Return how the run ends with a failure that every partition would come to."""
        if any(failure.error_type == ENDS_RUN for failure in failures):
            # The failure itself says of which type it is, and what to pass.
            return Stop(RunStatus.FAILURE, "a model of this kind cannot be kept")
        return None

    def exceeds_budget(self, failed: int) -> Stop | None:
        """Return how the run ends when so many failures exceed the budget; None: they do not."""
        if self._budget is None or failed <= self._budget:
            return None
        reason = f"{counted(failed, 'partition')} failed, and the failure budget is {self._budget}"
        return Stop(RunStatus.FAILURE, reason)

    def stop(self, stop: Stop, within_s: float = float("inf")) -> None:
        """Have all workers commit what they have and return. The first stop is the one that counts.

        Shards that have not come to their end `within_s` seconds are given up.
        """
        with self._lock:
            self._over_at = min(self._over_at, time.monotonic() + within_s)
            if self.stopped is not None:
                return
            self.stopped = stop
        token = self._execution.token
        tell_to_stop(self._client, token, lambda: time.monotonic() > self._over_at)

    def _on_event(self, event: tuple[Any, Any]) -> None:
        news = ShardProgress.from_message(event[1])
        progress = self.progress
        with self._lock:
            progress.add(news, self._watch.clock())
            stop = self._ends_with(news.failures) or self.exceeds_budget(progress.failed)
        for listener in self._listeners:
            listener.update(progress, news)
        # Without the lock, which `stop` takes as well.
        if stop:
            self.stop(stop)


def tell_to_stop(client: "Client", token: str, is_over: Callable[[], bool]) -> None:
    """Have all workers stop an execution, those included that come later; returns at once.

    `is_over`: nobody need know any more.
    """

    def tell() -> None:
        while not is_over():
            with contextlib.suppress(Exception):
                ask_workers(client, request_stop, token, limit_s=REPEAT_S)
            time.sleep(REPEAT_S)

    # On a thread of its own, as a worker that hangs never answers.
    threading.Thread(target=tell, daemon=True, name="partwise-stop").start()
