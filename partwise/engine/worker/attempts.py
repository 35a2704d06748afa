"""Attempts at partitions in a child process, until each is settled: retries, files, ledger rows."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace

import pyarrow as pa

from partwise.engine.assignment import Execution
from partwise.engine.limits import memory_limit
from partwise.engine.messages import OpenShard
from partwise.engine.outcome import Outcome, ledger_row, open_content
from partwise.engine.worker.child import ChildPlan, discard_child
from partwise.engine.worker.machine_slots import (
    gpu_variables,
    thread_variables,
    without_gpu_caps,
)
from partwise.engine.worker.scratch import check_scratch
from partwise.engine.worker.segments import SegmentWriter
from partwise.engine.worker.supervisor import (
    Download,
    OnReport,
    Supervisor,
)
from partwise.engine.written_models import ONLY_PLAIN
from partwise.environments.building import BuiltEnvironment
from partwise.runs.bundle import LOG_FILENAME
from partwise.runs.ledger import DAMAGED_MODELS, FAILED_MODELS, LedgerRow

EARLIER_LOG_BYTES = 16 << 10
"""What is kept of the log of an attempt that was not the last."""

_PASSED_OVER = {DAMAGED_MODELS, FAILED_MODELS}


def supervise(
    execution: Execution,
    work_path: str,
    opened: OpenShard,
    *,
    directory: str,
    download: Download,
    is_stopped: Callable[[], bool],
    gpus: Sequence[str] = (),
    packages: BuiltEnvironment,
    on_report: OnReport = lambda *_: False,
    while_waiting: Callable[[], None] = lambda: None,
) -> Supervisor:
    """Return what runs the partitions of a shard, within the limits of an execution.

    `work_path` is the local file with the work, `directory` a folder that children keep files in.
    `gpus` are those of its partitions, where the options say how many a partition has. `packages`
    come before those of this process. `while_waiting` is called now and then while one runs.
    """
    options = execution.options
    environment = thread_variables(options.cpus)
    if options.gpus is not None:
        environment |= gpu_variables(gpus, options.gpus)
    plan = ChildPlan(
        owner=execution.token,
        directory=directory,
        memory_bytes=memory_limit(execution.limits),
        isolation=options.isolation,
        threads=options.cpus,
        environment=environment,
        packages=packages,
        work_name=execution.work_name,
        preloaded=execution.preloaded,
    )
    return Supervisor(
        plan=plan,
        work_path=work_path,
        shard=opened,
        timeout_s=execution.limits.timeout_s,
        download=download,
        is_stopped=is_stopped,
        on_report=on_report,
        while_waiting=while_waiting,
    )


@dataclass(slots=True, kw_only=True)
class Attempts:
    """The attempts at some partitions of one shard."""

    execution: Execution
    shard: int
    """Its number."""
    fingerprints: Mapping[int, str]
    """Of what each partition is made of, by its place in the shard."""
    host: str
    """How the ledger names who does the work."""
    supervisor: Supervisor
    writer: SegmentWriter
    """Takes the row and the files of each that is settled."""
    on_remarks: Callable[[str, Sequence[str]], None]
    """Hears what the log of the run is to say of a partition, by its ID."""
    alone: Callable[[], AbstractContextManager[None]]
    """Waits until no other partition of the run is at work on this machine."""
    describe_trial: Callable[[Outcome], str | None] = lambda _: None
    """What the ledger says of a partition as a trial."""
    _earlier_logs: dict[int, bytes] = field(default_factory=dict)

    def run(self, waiting: Sequence[int]) -> Iterator[LedgerRow]:
        """Run partitions, then those that failed again; yield the row of each that is settled.

        It ends early when the run is stopped.
        """
        starved: dict[int, int] = {}
        yield from self._run(waiting, 1, starved)
        # Last, and together: the whole machine has to wait for them.
        if starved:
            yield from self._run_alone(starved)

    def _run(
        self, waiting: Sequence[int], attempt: int, starved: dict[int, int] | None = None
    ) -> Iterator[LedgerRow]:
        """Run partitions until they are settled, from this attempt on.

        Those that lacked memory are put among the `starved`, with the attempt that is left to them;
        None: they are as others.
        """
        while waiting:
            failed: list[int] = []
            failed_at = 0.0
            for outcome in self._outcomes(waiting, attempt):
                if starved is not None and outcome.is_starved:
                    self._keep_log(outcome)
                    starved[outcome.index] = attempt + 1
                elif self._goes_again(outcome, attempt):
                    self._keep_log(outcome)
                    failed.append(outcome.index)
                    failed_at = time.monotonic()
                else:
                    yield self._settle(outcome, attempt)
            # Failures wait until all others of the shard have run: what failed for want of a
            # service or of memory has the best chance then, and no neighbour waits for it.
            if failed and not self._pause(failed_at, attempt):
                return
            waiting, attempt = failed, attempt + 1

    def _outcomes(self, waiting: Sequence[int], attempt: int) -> Iterator[Outcome]:
        """Yield the outcome of an attempt at each.

        Raises:
            ScratchError: One failed because this machine's disk does, which is not its fault.
        """
        for outcome in self.supervisor.run(list(waiting), attempt):
            if outcome.left or (outcome.model is not None and outcome.model.not_kept):
                name = self.supervisor.shard.partition_ids[outcome.index]
                self.on_remarks(name, _remarks(outcome))
            if outcome.failure is not None:
                check_scratch(self.supervisor.plan.directory, outcome.failure.message)
            yield outcome

    def _run_alone(self, starved: Mapping[int, int]) -> Iterator[LedgerRow]:
        """Run partitions that lacked memory once more, with the machine to themselves.

        The kernel takes the largest process, which need not be the one that takes the most; and a
        process may hold what partitions before have left. Neither is to blame a partition. Nor is
        it known that a SIGKILL was for want of memory, so the retries of any failure are left.
        `starved` has the attempt of each partition.
        """
        plan, limits = self.supervisor.plan, self.execution.limits
        with self.alone():
            discard_child()
            self.supervisor.plan = replace(
                plan,
                memory_bytes=memory_limit(replace(limits, slots_per_host=1)),
                environment=without_gpu_caps(plan.environment),
            )
            for index, attempt in starved.items():
                yield from self._run([index], attempt)

    def _goes_again(self, outcome: Outcome, attempt: int) -> bool:
        """Whether an outcome is a failure with a retry left."""
        failure = outcome.failure
        retries = self.execution.options.max_retries
        return failure is not None and not failure.final and attempt <= retries

    def _keep_log(self, outcome: Outcome) -> None:
        """Keep the log of an attempt that is not the last."""
        self._earlier_logs[outcome.index] = outcome.log[-EARLIER_LOG_BYTES:]

    def _pause(self, failed_at: float, attempt: int) -> bool:
        """Wait until the retries are due; False when the run is stopped meanwhile."""
        # Doubled 1,023 times it is beyond all time, and beyond doubles soon.
        doubled = 2.0 ** min(attempt - 1, 1023)
        due = failed_at + self.execution.options.retry_backoff_s * doubled
        while (now := time.monotonic()) < due:
            if self.supervisor.is_stopped():
                return False
            time.sleep(min(0.05, due - now))
        return not self.supervisor.is_stopped()

    def _settle(self, outcome: Outcome, attempt: int) -> LedgerRow:
        """Put an outcome and its files into the segment."""
        index, model = outcome.index, outcome.model
        opened = self.supervisor.shard
        partition_id = opened.partition_ids[index]
        artifacts = [
            self.writer.add_artifact(partition_id, filename, open_content(content))
            for filename, content in outcome.artifacts.items()
            # An upload that is named like the model gives way: no name stands twice.
            if model is None or filename != model.filename
        ]
        self.supervisor.forget(index)
        if model is not None:
            content = open_content(model.content)
            artifacts.append(
                self.writer.add_artifact(partition_id, model.filename, content, model.serde)
            )
        log = self._earlier_logs.pop(index, b"") + outcome.log
        if log:
            artifacts.append(self.writer.add_artifact(partition_id, LOG_FILENAME, log))
        row = ledger_row(
            outcome,
            tuple(artifacts),
            partition_id=partition_id,
            shard=self.shard,
            generation=self.execution.generation,
            attempts=attempt,
            rows=opened.offsets[index + 1] - opened.offsets[index],
            host=self.host,
            # Where an inference passed a model over, a resume is to ask for it again.
            fingerprint=None
            if self.execution.kind == "infer" and not _PASSED_OVER.isdisjoint(outcome.metrics)
            else self.fingerprints[index],
            trial=self.describe_trial(outcome),
        )
        output = None
        if outcome.rows is not None:
            output = pa.ipc.open_stream(open_content(outcome.rows)).read_all()
        self.writer.add(index, row, output)
        return row


def _remarks(outcome: Outcome) -> list[str]:
    """Return what the log of the run is to say of a partition."""
    remarks = [
        f"left its process changed: {text[:300]}. Another process takes its place after each "
        "partition that does so, which takes time: undo it in the function, or run with "
        "isolation='partition'."
        for text in outcome.left
    ]
    if outcome.model is not None and outcome.model.not_kept:
        remarks.append(f"made a model of which is lost: {outcome.model.not_kept}. {ONLY_PLAIN}")
    return remarks
