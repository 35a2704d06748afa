"""The driver's side of a study: asks the sampler, hands trials to workers, tells what they came to.

All is decided by one thread, on which trials that end and questions of trials at work wait in line.
"""

import itertools
import logging
import queue
import threading
import time
from collections import Counter, deque
from dataclasses import dataclass, field
from typing import Any

from distributed import Client, Future

from partwise.engine.assignment import Execution
from partwise.engine.cluster_watch import ClusterWatch
from partwise.engine.driver import LOOK_S, Logger
from partwise.engine.worker import request_stop
from partwise.outcomes import PartitionStatus, RunStatus, Stop
from partwise.runs.trials import Trial, TrialRecord
from partwise.shuffle.shared_folder import StagedFile
from partwise.studies.assignment import Question, TrialAssignment, TrialReceipt
from partwise.studies.search import Search, SearchSpec
from partwise.studies.work import MetricError
from partwise.studies.worker import answer, end_study, run_trial

logger = logging.getLogger(__name__)
_NO_METRIC = f"{MetricError.__module__}.{MetricError.__qualname__}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopping:
    """When a study has had enough."""

    trials: int
    """How many there are to be, those of earlier generations included."""
    timeout_s: float | None = None
    """No trial begins after so many seconds."""
    patience: int | None = None
    """No trial begins when so many have ended since the best one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StudySpec:
    """What a study is asked to do."""

    execution: Execution
    rows: StagedFile
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


class StudyDriver:
    """Runs one study on a cluster.

    Args:
        client: Connected to the cluster.
        spec: What the study is asked to do.
        log: Hears of each trial that came to its end.
    """

    def __init__(self, client: Client, spec: StudySpec, log: Logger) -> None:
        self.stopped: Stop | None = None
        self._client = client
        self._spec = spec
        self._log = log
        self._search = Search(spec.search, spec.kept)
        self._again = deque(spec.again)
        taken = {trial.number for trial in (*spec.kept, *spec.again)}
        self._free = (number for number in itertools.count() if number not in taken)
        self._begun = len(spec.kept)
        self._running: dict[int, Future[TrialReceipt | None]] = {}
        self._assigned: dict[int, TrialAssignment] = {}
        self._starts: Counter[int] = Counter()
        self._failed = 0
        self._best: tuple[float, int] | None = None
        self._since_best = 0
        for trial in spec.kept:
            self._rate(trial.number, trial.record)
        self._inbox: queue.SimpleQueue[Question | int | None] = queue.SimpleQueue()
        self._end = StudyEnd()
        self._lock = threading.Lock()

    def __enter__(self) -> "StudyDriver":
        self._client.subscribe_topic(self._spec.execution.token, self._on_event)
        return self

    def __exit__(self, *exception: object) -> None:
        token = self._spec.execution.token
        try:
            self._client.unsubscribe_topic(token)
            self._client.run(end_study, token, on_error="ignore")
        except Exception:
            # The cluster is gone, and with it what would have to be tidied there.
            logger.debug("could not tidy up on the workers", exc_info=True)

    def run(self) -> StudyEnd:
        """Run trials until there are enough, and wait for those at work.

        Raises:
            ClusterError: The cluster is gone, or has had no worker for two minutes.
            InputError: The space cannot be searched.
        """
        began = time.monotonic()
        watch = ClusterWatch(self._client, self._spec.execution.run_id)
        while True:
            while len(self._running) < self._spec.slots and self._may_begin(began):
                self._begin()
            if not self._running:
                return self._end
            try:
                news = self._inbox.get(timeout=LOOK_S)
            except queue.Empty:
                watch.look()
                if self.stopped:
                    self._tell_workers_to_stop()
                continue
            match news:
                case Question():
                    self._answer(news)
                case int():
                    self._receive(news)

    def stop(self, stop: Stop) -> None:
        """End the study, from any thread; the first stop counts.

        Args:
            stop: Why, and how the run ends.
        """
        with self._lock:
            if self.stopped is not None:
                return
            self.stopped = stop
        self._tell_workers_to_stop()
        self._inbox.put(None)

    def _tell_workers_to_stop(self) -> None:
        try:
            self._client.run(request_stop, self._spec.execution.token, on_error="ignore")
        except Exception:
            logger.debug("could not reach the workers to stop them", exc_info=True)

    def _may_begin(self, began: float) -> bool:
        """Whether another trial is to begin; where not, the end of the study says why."""
        stopping = self._spec.stopping
        wanted = min(stopping.trials, self._spec.search.size)
        waiting = bool(self._again)
        if self.stopped is not None or (self._begun >= wanted and not waiting):
            if wanted < stopping.trials and not self._end.reason:
                self._end.reason = f"all {wanted:,} settings of the grid were tried"
            return False
        if stopping.timeout_s is not None and time.monotonic() - began >= stopping.timeout_s:
            self._end.reason = f"the {stopping.timeout_s:g} s of timeout_s were over"
            return False
        if stopping.patience is not None and self._since_best >= stopping.patience:
            self._end.reason = f"{self._since_best} trials in a row were no better than the best"
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
        self._starts[number] += 1
        token, start = self._spec.execution.token, self._starts[number]
        future = self._client.submit(
            run_trial,
            self._assigned[number],
            key=f"trial-{number:05d}-{token}-{start}",
            priority=-number,
            pure=False,
        )
        self._running[number] = future
        future.add_done_callback(lambda _: self._inbox.put(number))

    def _on_event(self, event: tuple[Any, Any]) -> None:
        self._inbox.put(Question(**event[1]))

    def _answer(self, question: Question) -> None:
        gives_up = self._search.is_hopeless(question.number, question.step, question.value)
        try:
            self._client.run(
                answer,
                self._spec.execution.token,
                question.number,
                question.step,
                gives_up=gives_up,
                workers=[question.worker],
                on_error="ignore",
            )
        except Exception:
            # Its worker is gone; the trial begins again on another.
            logger.debug("could not answer a trial", exc_info=True)

    def _receive(self, number: int) -> None:
        """Take the receipt of a trial; begin it again where its worker died."""
        future = self._running.pop(number)
        options = self._spec.execution.options
        try:
            receipt = future.result()
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"[:500]
            self._log.warning("trial %d did not come to its end: %s", number, reason)
            if self._starts[number] < options.worker_attempts and not self.stopped:
                self._submit(number)
                return
            self._end.lost[number] = reason
            receipt = None
        finally:
            future.release()
        assigned = self._assigned.pop(number)
        if receipt is None:
            if number not in self._end.lost:
                self._end.interrupted = (*self._end.interrupted, number)
            self._search.tell(number, assigned.record, PartitionStatus.FAILED)
            self._count_failure(None)
            return
        self._end.rows = receipt.rows
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
            reason = f"{self._failed} trials failed, and the failure budget is {budget}"
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
