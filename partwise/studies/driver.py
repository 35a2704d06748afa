"""The driver's side of a study: asks the sampler, hands trials to workers, tells what they came to.

All is decided by one thread, on which trials that end and questions of trials at work wait in line.
"""

import itertools
import queue
import threading
import time
from collections import Counter, deque
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from partwise.cluster_calls import is_cut_off, rejoin, result_of
from partwise.engine.assignment import Execution
from partwise.engine.driver.cluster_watch import LOOK_S, ClusterWatch, Logger
from partwise.engine.failures import storable_start
from partwise.errors import ClusterError, ScratchError
from partwise.formatting import counted, duration
from partwise.outcomes import PartitionStatus, RunStatus, Stop
from partwise.runs.trials import Trial, TrialRecord
from partwise.runs.unfinished import Standing
from partwise.shuffle.shared_folder import StagedFile
from partwise.studies.assignment import Question, TrialAssignment, TrialReceipt
from partwise.studies.search import Search, SearchSpec
from partwise.studies.trials import Trials
from partwise.studies.work import MetricError

if TYPE_CHECKING:
    from distributed import Client

_NO_METRIC = f"{MetricError.__module__}.{MetricError.__qualname__}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopping:
    """When a study has had enough."""

    trials: int
    """How many there are to be, those of earlier generations included."""
    max_duration_s: float | None = None
    """No trial begins after so many seconds."""
    patience: int | None = None
    """No trial begins when so many have ended since the best one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StudySpec:
    """What a study is asked to do."""

    execution: Execution
    rows: StagedFile | None
    """As its workers read them; None: ranks of gangs do."""
    fingerprint: str
    """Of the rows."""
    search: SearchSpec
    stopping: Stopping
    slots: int
    """Trials that run at once."""
    kept: tuple[Trial, ...] = ()
    """Of earlier generations: these have ended."""
    again: tuple[Trial, ...] = ()
    """Of earlier generations: these failed, and run again with the same settings."""


@dataclass(slots=True)
class StudyEnd:
    """How a study ended."""

    reason: str = ""
    """Why no more trials were begun, where fewer ran than were asked for."""
    rows: int = 0
    """Of each trial; 0: none has ended."""
    lost: dict[int, str] = field(default_factory=dict)
    """Trials given up, because workers died under them or the store refused: why."""
    interrupted: tuple[int, ...] = ()
    """Trials that were at work when the study was stopped."""


@dataclass(frozen=True, slots=True)
class _Ended:
    """A trial that has come to its end, or did not."""

    number: int
    future: Any


class StudyDriver:
    """Runs one study on a cluster."""

    def __init__(
        self, client: "Client", spec: StudySpec, trials: Trials, watch: ClusterWatch, log: Logger
    ) -> None:
        self.stopped: Stop | None = None
        self.cause: BaseException | None = None
        """What was raised here, so that the study could not go on."""
        self._client = client
        self._spec = spec
        self._trials = trials
        self._watch = watch
        self._log = log
        self._search = Search(spec.search, spec.kept, spec.again)
        self._again = deque(spec.again)
        known = (*spec.kept, *spec.again)
        taken = {trial.number for trial in known}
        self._most = spec.search.most(known)
        self._free = (number for number in itertools.count() if number not in taken)
        self._begun = len(spec.kept)
        self._running: set[int] = set()
        self._assigned: dict[int, TrialAssignment] = {}
        self._starts: Counter[int] = Counter()
        self._failures: Counter[int] = Counter()
        """How often each trial failed as a whole."""
        self._submitted: dict[int, datetime] = {}
        self._over_at = float("inf")
        self._failed = 0
        self._counts = Counter(trial.status.value for trial in spec.kept)
        self._best: tuple[float, int] | None = None
        self._since_best = 0
        # As if they had just ended: patience counts the trials of all generations.
        for trial in spec.kept:
            self._rate(trial.number, trial.record)
        self._inbox: queue.SimpleQueue[Question | _Ended | None] = queue.SimpleQueue()
        self._hopeless: set[int] = set()
        self._end = StudyEnd()
        self._lock = threading.Lock()

    def __enter__(self) -> "StudyDriver":
        self._trials.open(self._inbox.put)
        return self

    def __exit__(self, *exception: object) -> None:
        self._trials.close()

    def run(self) -> StudyEnd:
        """Run trials until there are enough, and wait for those at work.

        Where the space, the sampler or the pruner raises an error, the study is stopped.

        Raises:
            ClusterError: The cluster is gone, or has had no worker for two minutes.
        """
        began = time.monotonic()
        while True:
            try:
                while len(self._running) < self._spec.slots and self._may_begin(began):
                    self._begin()
                if not self._running:
                    return self._end
                if time.monotonic() > self._over_at:
                    # What hangs is left to itself: all that it may still write has its own token.
                    self._end.interrupted = (*self._end.interrupted, *self._running)
                    return self._end
                self._take_news()
            except ClusterError:
                raise
            except Exception as error:
                self.cause = self.cause or error
                reason = f"it could not go on: {type(error).__name__}: {error}"
                self.stop(Stop(RunStatus.FAILURE, storable_start(reason, 500).rstrip(".")))

    def _take_news(self) -> None:
        """Wait for what is next in line, and see to it."""
        try:
            news = self._inbox.get(timeout=LOOK_S)
        except queue.Empty:
            self._watch.look()
            if self.stopped:
                self._trials.stop(self.stopped)
            return
        match news:
            case Question():
                self._answer(news)
            case _Ended():
                self._receive(news.number, news.future)

    def longest(self) -> str:
        """Return a sentence about the trial that has run for longest; empty: there is none."""
        running = [(self._submitted[number], number) for number in list(self._running)]
        if not running:
            return ""
        began, number = min(running)
        others = f", and {len(running) - 1} others" if len(running) > 1 else ""
        seconds = (datetime.now(UTC) - began).total_seconds()
        return f"trial {number} runs since {duration(seconds)}{others}"

    def standing(self) -> Standing:
        """Return where the generation stands."""
        return Standing(
            generation=self._spec.execution.generation,
            counts=dict(self._counts),
            kept=len(self._spec.kept),
            running=len(self._running),
            begun={number: (1, 0, self._submitted[number]) for number in list(self._running)},
        )

    def stop(self, stop: Stop, within_s: float = float("inf")) -> None:
        """End the study, from any thread; the first stop counts.

        Trials that have not come to their end `within_s` seconds are given up.
        """
        with self._lock:
            self._over_at = min(self._over_at, time.monotonic() + within_s)
            if self.stopped is not None:
                return
            self.stopped = stop
        self._trials.stop(stop)
        # Wakes the thread that waits for news.
        self._inbox.put(None)

    def _may_begin(self, began: float) -> bool:
        """Whether another trial is to begin; where not, the end of the study says why."""
        stopping = self._spec.stopping
        wanted = min(stopping.trials, self._most)
        waiting = bool(self._again)
        if self.stopped is not None or (self._begun >= wanted and not waiting):
            if wanted < stopping.trials and self._begun >= wanted and not self._end.reason:
                size = self._spec.search.size
                self._end.reason = f"all {size:,} settings of the grid were tried"
            return False
        if (
            stopping.max_duration_s is not None
            and time.monotonic() - began >= stopping.max_duration_s
        ):
            self._end.reason = f"the {stopping.max_duration_s:g} s of max_duration_s were over"
            return False
        if stopping.patience is not None and self._since_best >= stopping.patience:
            tried = counted(self._since_best, "trial")
            self._end.reason = f"{tried} in a row came no better than the best"
            return False
        return True

    def _begin(self) -> None:
        if self._again:
            trial = self._again.popleft()
            number, record = trial.number, trial.record
        else:
            number = next(self._free)
            record = self._search.ask(number)
        self._begun += 1
        self._assigned[number] = TrialAssignment(
            execution=self._spec.execution,
            rows=self._spec.rows,
            number=number,
            record=record,
            fingerprint=self._spec.fingerprint,
            asks=self._spec.search.pruner != "none",
        )
        self._submit(number)

    def _submit(self, number: int) -> None:
        self._watch.look()
        self._starts[number] += 1
        self._submitted[number] = datetime.now(UTC)
        future = self._trials.submit(self._assigned[number], self._starts[number])
        # Only now: of one that could not be submitted no end would come.
        self._running.add(number)
        # Called on another thread, which only leaves word: one alone decides.
        future.add_done_callback(lambda _: self._inbox.put(_Ended(number, future)))

    def _answer(self, question: Question) -> None:
        # What a trial tells after that is not taken note of: how much it is, is chance.
        if question.number not in self._hopeless and self._search.is_hopeless(
            question.number, question.step, question.value
        ):
            self._hopeless.add(question.number)
        self._trials.answer(question, gives_up=question.number in self._hopeless)

    def _receive(self, number: int, future: Any) -> None:
        """Take the receipt of a trial; begin it again where its worker died."""
        self._running.discard(number)
        receipt: TrialReceipt | None = None
        try:
            # Its worker may be stopped just now, with the receipt in its memory.
            receipt = result_of(future)
        except ScratchError as error:
            # No trial is to blame, and others would meet the same.
            self._log.warning("trial %d did not come to its end: %s", number, error)
            self.stop(Stop(RunStatus.FAILURE, str(error)))
        except Exception as error:
            if is_cut_off(error):
                rejoin(self._client, self._watch.look, lambda: self.stopped)
            else:
                self._failures[number] += 1
            reason = storable_start(f"{type(error).__name__}: {error}".removesuffix(": "), 500)
            most = self._spec.execution.options.max_shard_starts
            if self._failures[number] < most and not self.stopped:
                self._log.info("trial %d is begun again: %s", number, reason)
                self._submit(number)
                return
            self._log.warning("trial %d did not come to its end: %s", number, reason)
            self._end.lost[number] = reason
        assigned = self._assigned.pop(number)
        if receipt is None:
            status = PartitionStatus.INTERNAL_ERROR
            if number not in self._end.lost:
                status = PartitionStatus.CANCELLED
                self._end.interrupted = (*self._end.interrupted, number)
            self._counts[status.value] += 1
            self._search.tell(number, assigned.record, PartitionStatus.FAILED)
            self._count_failure(None)
            return
        self._end.rows = receipt.rows
        self._counts[receipt.status.value] += 1
        self._search.tell(number, receipt.record, receipt.status)
        self._rate(number, receipt.record)
        self._log.info("%s", self._describe(receipt))
        if receipt.status is PartitionStatus.FAILED:
            self._count_failure(receipt)

    def _rate(self, number: int, record: TrialRecord) -> None:
        """Count the trials since the best one."""
        self._since_best += 1
        if record.value is not None and (self._best is None or record.loss < self._best[0]):
            self._best = (record.loss, number)
            self._since_best = 0

    def _count_failure(self, receipt: TrialReceipt | None) -> None:
        """Stop the study where the failure budget is exceeded, or no trial can have a score."""
        self._failed += 1
        budget = self._spec.execution.options.failure_budget(self._spec.stopping.trials)
        if budget is not None and self._failed > budget:
            reason = f"{counted(self._failed, 'trial')} failed, and the failure budget is {budget}"
            self.stop(Stop(RunStatus.FAILURE, reason))
        if receipt is not None and receipt.error_type == _NO_METRIC and self._best is None:
            # All others would come to the same, perhaps after hours.
            self.stop(Stop(RunStatus.FAILURE, receipt.reason.rstrip(".")))

    def _describe(self, receipt: TrialReceipt) -> str:
        record = receipt.record
        value = receipt.reason if record.value is None else f"{record.metric} {record.value:.6g}"
        best = ""
        if self._best is not None:
            sign = -1 if record.maximized else 1
            best = f"; the best is {sign * self._best[0]:.6g} of trial {self._best[1]}"
        status = "" if receipt.status is PartitionStatus.DONE else f"{receipt.status.value}, "
        return f"trial {receipt.number}: {status}{value} in {receipt.seconds:.1f} s{best}"
