"""Trials that are a gang each: ranks train one model together, with the settings of the trial.

The driver follows each gang on a thread of its own, and commits its row when all ranks have ended.
"""

import queue
import secrets
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pydantic import ValidationError

from partwise.engine.assignment import Execution, work_file
from partwise.engine.driver.cluster_watch import ClusterWatch, Logger
from partwise.engine.driver.payload import pack_work
from partwise.engine.failures import Failure, describe_error
from partwise.engine.outcome import with_failure
from partwise.engine.scaling import ClusterWorker, ScalingConfig, cluster_workers
from partwise.engine.worker.segments import SegmentWriter
from partwise.errors import ClusterError, InputError, PartwiseError
from partwise.gangs.driver import GangDriver
from partwise.gangs.errors import GangFailedError
from partwise.gangs.events import GangEvent
from partwise.gangs.options import GangOptions
from partwise.gangs.placement import Placement, replace_lost
from partwise.gangs.spec import GangSpec, RankEnd
from partwise.gangs.work import GangPayload, RankSource, TrainRankWork
from partwise.mistakes import describe_mistakes
from partwise.models.serdes import ModelSerde
from partwise.outcomes import PartitionStatus, RunStatus, Stop
from partwise.runs.bundle import LOG_FILENAME, StoredArtifact
from partwise.runs.documents import execution_token
from partwise.runs.ledger import LedgerRow
from partwise.runs.trials import TRIAL, TRIAL_KEY
from partwise.shuffle.shared_folder import SharedFolder
from partwise.sources.descriptions import Source
from partwise.studies.assignment import Question, TrialAssignment, TrialReceipt
from partwise.studies.trials import Ask
from partwise.studies.work import check_score
from partwise.tables.keys.partition_keys import partition_id, plain_seed
from partwise.trainers.ranks.boosting import DistributedBoosting

if TYPE_CHECKING:
    from distributed import Client

GRACE_S = 5.0
"""Between SIGTERM and SIGKILL: a trial that is given up has nothing to keep."""
WAIT_S = 60.0
"""So long a trial waits for another worker in the place of a lost one."""
_GIVEN_UP = "the study gave it up"


@dataclass(frozen=True, kw_only=True)
class GangPlan:
    """How the trials of a study are trained by gangs."""

    function: Callable[..., Any]
    """A trainer of one model on all ranks, or a function of a rank's context."""
    serde: ModelSerde | None
    scaling: ScalingConfig
    sources: Mapping[str, Source]
    """The rows by name: "train" and those of the eval sets."""


def with_settings(function: Callable[..., Any], settings: Mapping[str, Any]) -> Callable[..., Any]:
    """Return a trainer with the settings of a trial; a function finds them in its context."""
    if not isinstance(function, DistributedBoosting):
        return function
    params = {name: value for name, value in settings.items() if name != "rounds"}
    given = {**function.model_dump(), "params": {**function.params, **params}}
    given["rounds"] = settings.get("rounds", function.rounds)
    try:
        return type(function).model_validate(given)
    except ValidationError as error:
        raise InputError(
            f"The trainer cannot have the settings {dict(settings)}: {describe_mistakes(error)}"
        ) from None


@dataclass(kw_only=True)
class _Gang:
    """A trial at work."""

    assignment: TrialAssignment
    driver: GangDriver | None = None
    told: int = 0
    """Steps that the study was asked about."""
    given_up: bool = False
    stop: Stop | None = None


class GangTrials:
    """Runs each trial as a gang."""

    def __init__(
        self,
        client: "Client",
        watch: ClusterWatch,
        plan: GangPlan,
        placements: Sequence[Placement],
        sources: Mapping[str, RankSource],
        folder: SharedFolder,
        execution: Execution,
        log: Logger,
    ) -> None:
        self._client, self._watch = client, watch
        self._plan, self._sources = plan, sources
        self._folder, self._execution, self._log = folder, execution, log
        self._places: queue.SimpleQueue[Placement] = queue.SimpleQueue()
        for placement in placements:
            self._places.put(placement)
        self._pool = ThreadPoolExecutor(len(placements), thread_name_prefix="partwise-trial")
        self._gangs: dict[int, _Gang] = {}
        self._busy: set[str] = set()
        self._lock = threading.Lock()
        self._ask: Ask = lambda _: None
        self._stopped: Stop | None = None

    def open(self, ask: Ask) -> None:
        """Have what gangs tell of their steps handed on."""
        self._ask = ask

    def submit(self, assignment: TrialAssignment, start: int) -> "Future[TrialReceipt | None]":  # noqa: ARG002
        """Begin the gang of a trial."""
        gang = self._gangs[assignment.number] = _Gang(assignment=assignment)
        return self._pool.submit(self._run, gang)

    def answer(self, question: Question, *, gives_up: bool) -> None:
        """End the gang of a trial that is given up; and go on with one that waits to be settled."""
        gang = self._gangs.get(question.number)
        if gang is not None and gives_up and not gang.given_up:
            gang.given_up = True
            self._end(gang, Stop(RunStatus.CANCELLED, _GIVEN_UP))
        # Last: whoever waits for this looks then whether the trial was given up.
        if question.settled is not None:
            question.settled.set()

    def stop(self, stop: Stop) -> None:
        """Have all gangs end."""
        self._stopped = self._stopped or stop
        for gang in list(self._gangs.values()):
            self._end(gang, stop)

    def close(self) -> None:
        """Wait until all gangs have ended."""
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _end(self, gang: _Gang, stop: Stop) -> None:
        with self._lock:
            gang.stop = gang.stop or stop
            if gang.driver is not None:
                gang.driver.stop(stop)

    def _run(self, gang: _Gang) -> TrialReceipt | None:
        # There is one: the pool has no more threads than there are places.
        placement = self._places.get()
        try:
            placement = self._mended(placement)
            return self._run_on(gang, placement)
        finally:
            with self._lock:
                self._busy -= {node.worker for node in placement.nodes}
            self._places.put(placement)

    def _mended(self, placement: Placement) -> Placement:
        """Return where a gang works, with other workers in the place of those that are gone."""
        deadline = time.monotonic() + WAIT_S
        while True:
            # The cluster is asked under the lock: two trials must not take the same spare worker.
            with self._lock:
                there = cluster_workers(self._client)
                lost = {node.worker for node in placement.nodes} - {w.address for w in there}
                free = [worker for worker in there if worker.address not in self._busy]
                nodes = replace_lost(placement.nodes, lost, free)
                if nodes is not None:
                    self._busy |= {node.worker for node in nodes}
                    return replace(placement, nodes=nodes)
            if self._stopped:
                # As `_run_on` sees.
                return placement
            if time.monotonic() >= deadline:
                raise ClusterError(
                    f"Workers of a trial are gone ({', '.join(sorted(lost))}), and no others came "
                    f"in their place within {WAIT_S:g} s."
                )
            time.sleep(0.5)

    def _run_on(self, gang: _Gang, placement: Placement) -> TrialReceipt | None:
        began = time.monotonic()
        try:
            spec = self._specify(gang.assignment, placement)
        except InputError as error:
            # Settings that the trainer cannot have, of a space that goes too far.
            return self._commit(gang, (), error, time.monotonic() - began)
        own = {node.worker for node in placement.nodes}

        def workers() -> list[ClusterWorker]:
            # Else it would wait for a worker until the trial of another gang has ended there, and
            # not take the one that a nanny begins in the place of its own.
            with self._lock:
                others = self._busy - own
            return [each for each in cluster_workers(self._client) if each.address not in others]

        listener = _Listener(self, gang)
        driver = GangDriver(self._client, spec, self._watch, listener, workers)
        # Both under the lock of `_end`: a stop finds the driver, or is found here.
        with self._lock:
            gang.driver = driver
            stop = gang.stop or self._stopped
        if stop is not None:
            return None
        failed: GangFailedError | None = None
        try:
            ends: Sequence[RankEnd] = driver.run()
            self._settle(gang, ends[0].steps)
        except GangFailedError as error:
            ends, failed = error.ends, error
        if self._stopped is not None or (failed and failed.stopped and not gang.given_up):
            return None
        return self._commit(gang, ends, failed, time.monotonic() - began)

    def _specify(self, assignment: TrialAssignment, placement: Placement) -> GangSpec:
        execution, record = self._execution, assignment.record
        # Of this trial alone: what else a bundle's name has, node and attempt, others have as well.
        token = execution_token(execution.generation, secrets.token_hex(4))
        function = with_settings(self._plan.function, record.settings)
        payload = GangPayload(
            work=TrainRankWork(function=function, serde=self._plan.serde),
            sources=self._sources,
            params=record.settings,
            watched=record.metric if assignment.asks else "",
        )
        content = pack_work(payload, f"The trial {assignment.number}")
        options = execution.options
        return GangSpec(
            token=token,
            run_id=execution.run_id,
            generation=execution.generation,
            store=execution.store,
            nodes=placement.nodes,
            payload=self._folder.write(work_file(token), content),
            modules=execution.preloaded.modules,
            threads=placement.threads,
            gpus=placement.gpus,
            seed=plain_seed(execution.seed),
            options=GangOptions(
                timeout_s=options.timeout_s,
                grace_s=GRACE_S,
                max_retries=options.max_retries,
                silence_s=options.silence_s,
            ),
            # They stand in the run by its generation alone: another trial would go on from them.
            keeps_checkpoints=False,
        )

    def tell(self, gang: _Gang, event: GangEvent) -> None:
        """Take note of what happens in a gang."""
        if event.kind == "steps":
            self._tell(gang, event.steps)
        elif event.kind == "restart":
            # What another attempt says again, the study knows.
            gang.told = 0
            self._log.warning("trial %d: %s", gang.assignment.number, event)

    def _tell(self, gang: _Gang, steps: Sequence[tuple[int, float]]) -> None:
        for step, value in steps:
            number = gang.assignment.number
            self._ask(Question(worker="", number=number, step=step, value=value))
        gang.told += len(steps)

    def _settle(self, gang: _Gang, steps: Sequence[tuple[int, float]]) -> None:
        """Wait until the study has heard of all steps, of which some may still be on their way.

        So whether a trial is given up depends on what it reported, not on how fast that was heard.
        """
        if not gang.assignment.asks or not steps:
            return
        self._tell(gang, steps[gang.told :])
        step, value = steps[-1]
        settled = threading.Event()
        number = gang.assignment.number
        self._ask(Question(worker="", number=number, step=step, value=value, settled=settled))
        while not settled.wait(1.0) and self._stopped is None:
            pass

    def _commit(
        self, gang: _Gang, ends: Sequence[RankEnd], failed: PartwiseError | None, seconds: float
    ) -> TrialReceipt:
        """Write the row of a trial, and return what became of it."""
        assignment, execution = gang.assignment, self._execution
        number, record = assignment.number, assignment.record
        name = partition_id(number, TRIAL_KEY)
        status, failure, reason = _verdict(ends, failed, record.metric, given_up=gang.given_up)
        first = ends[0] if ends else None
        metrics = dict(first.metrics) if first else {}
        record = replace(
            record,
            value=metrics[record.metric] if status is PartitionStatus.DONE else None,
            pruned=gang.given_up,
            reports=first.steps if first else (),
        )
        peaks = [end.peak_memory_bytes for end in ends if end.peak_memory_bytes]
        row = LedgerRow(
            partition_id=name,
            shard=number,
            generation=execution.generation,
            status=status.value,
            attempts=max((end.attempt for end in ends), default=1),
            rows=sum(end.rows or 0 for end in ends),
            seconds=seconds,
            peak_memory_bytes=max(peaks, default=None),
            host=", ".join(dict.fromkeys(end.host for end in ends)),
            reason=reason or None,
            fingerprint=assignment.fingerprint,
            metrics=metrics,
            trial=record.to_json(),
            artifacts=tuple(
                artifact
                for end in ends
                for artifact in _named(end, with_model=status is PartitionStatus.DONE)
            ),
        )
        row = row if failure is None else with_failure(row, failure)
        keys = pa.table({TRIAL: pa.array([number], pa.int64())})
        writer = SegmentWriter(execution, number, keys)
        writer.add(0, row)
        writer.commit()
        return TrialReceipt.of_row(row)


@dataclass(frozen=True, slots=True)
class _Listener:
    trials: GangTrials
    gang: _Gang

    def update(self, event: GangEvent) -> None:
        self.trials.tell(self.gang, event)


def _verdict(
    ends: Sequence[RankEnd], failed: PartwiseError | None, metric: str, *, given_up: bool
) -> tuple[PartitionStatus, Failure | None, str]:
    """Return what became of a trial, and why."""
    # First, since the ranks of a trial that is given up are ended, which is a failure of its gang.
    if given_up:
        return PartitionStatus.SKIPPED, None, _GIVEN_UP
    if failed is not None:
        rank = failed.rank if isinstance(failed, GangFailedError) else None
        failures = [end.failure for end in ends if end.rank == rank]
        return PartitionStatus.FAILED, next(iter(failures), None) or describe_error(failed), ""
    if ends[0].status is PartitionStatus.SKIPPED:
        return PartitionStatus.SKIPPED, None, ends[0].reason
    try:
        check_score(ends[0].metrics, metric)
    except InputError as error:
        return PartitionStatus.FAILED, describe_error(error), ""
    return PartitionStatus.DONE, None, ""


def _named(end: RankEnd, *, with_model: bool) -> list[StoredArtifact]:
    """Return the files of a rank as those of a trial: the log of another rank has its number."""
    kept = []
    for artifact in end.artifacts:
        if artifact.filename == LOG_FILENAME:
            name = LOG_FILENAME if end.rank == 0 else f"rank-{end.rank}-{LOG_FILENAME}"
            kept.append(replace(artifact, filename=name))
        elif with_model:
            kept.append(artifact)
    return kept
