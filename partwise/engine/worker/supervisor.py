"""Runs the partitions of a shard in a child process and sees to it that each gets one outcome.

Limits are enforced from here, outside the process that runs the user's code. When the child dies or
is killed, the partition that its mark names is the culprit; those before it have sent outcomes, and
those after it go to the next child.
"""

import contextlib
import secrets
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from partwise.engine.failures import Failure, fingerprint_failure
from partwise.engine.messages import (
    Artifact,
    ArtifactFound,
    ArtifactMissing,
    ArtifactRequest,
    Idle,
    Message,
    OpenShard,
    Report,
    ReportAnswer,
    RunPartitions,
)
from partwise.engine.outcome import Content, Outcome
from partwise.engine.worker.child import (
    START_TIMEOUT_S,
    ChildPlan,
    ChildProcess,
    borrow_child,
    discard_child,
)
from partwise.errors import ClusterError, PartwiseError
from partwise.outcomes import PartitionStatus

POLL_S = 0.05
GATHER_S = 0.002
"""After an outcome of less work than this, the next ones are let come for as long. In the socket
they outlive the child: what has come counts, whatever becomes of it meanwhile."""
FEWEST_GATHERED = 100
"""So many partitions take that long at least: of fewer the last would be waited for in vain."""
HELD_UP_S = 1.0
"""A look at a child that comes so late says that this process was stopped meanwhile."""
MOST_PROCESSES = 1_000
"""Processes that a partition may have at one time."""
BARREN_STARTS = 3
"""Children that may die in a row without finishing a partition or naming a culprit."""

HELD_BYTES = 32 << 20
"""Uploads that this process keeps in memory until their partitions have ended; others are files."""

Download = Callable[[int, str, str | None], bytes]
OnReport = Callable[[int, float], bool]
"""Called with a step and a number that the function at work reports; True: it is to give up."""


@dataclass(frozen=True, slots=True)
class _Verdict:
    """Why a child is ended, or was found dead."""

    error_type: str
    message: str
    reason: str
    final: bool
    is_starved: bool = False
    """Whether it may have been for want of memory."""


@dataclass(slots=True)
class Supervisor:
    """Runs partitions of one opened shard; one instance per execution of a shard."""

    plan: ChildPlan
    work_path: str
    shard: OpenShard
    timeout_s: float | None
    download: Download
    is_stopped: Callable[[], bool]
    on_report: OnReport
    while_waiting: Callable[[], None]
    """Called now and then while a partition runs."""
    _artifacts: dict[int, dict[str, Content]] = field(default_factory=dict)
    """What partitions have uploaded, which their next attempts may ask for."""
    _held_bytes: int = 0
    """Of those that are in memory."""
    _peaks: dict[int, int] = field(default_factory=dict)
    _child: ChildProcess | None = None
    _held_up: dict[int, float] = field(default_factory=dict)
    """Seconds of a partition for which this process was stopped, and perhaps the child as well."""

    def at_work(self) -> tuple[int, float] | None:
        """Return which partition runs, by its index, and for how many seconds; on any thread."""
        index, seconds = (-1, 0.0) if self._child is None else self._child.running()
        if not 0 <= index < len(self.shard.partition_ids):
            return None
        return index, seconds

    def run(self, indices: list[int], attempt: int) -> Iterator[Outcome]:
        """Yield the outcome of each partition in turn; ends early when the run is stopped.

        Raises:
            ClusterError: Children die here without running anything.
        """
        waiting = deque(indices)
        barren = 0
        while waiting and not self.is_stopped():
            child, obstacle = self._ready_child()
            if obstacle is not None:
                yield from (self._unusable(index, obstacle) for index in waiting)
                return
            before = len(waiting)
            try:
                child.connection.send(RunPartitions(indices=list(waiting), attempt=attempt))
            except OSError:
                # It died between two partitions: nobody is to blame, and the next one goes on.
                discard_child()
            else:
                yield from self._listen(child, waiting)
            barren = 0 if len(waiting) < before else barren + 1
            if barren > BARREN_STARTS:
                discard_child()
                raise ClusterError(
                    f"{barren} child processes in a row died without running a partition "
                    f"({child.describe_end()})."
                )

    def _ready_child(self) -> tuple[ChildProcess, Failure | None]:
        child = borrow_child(self.plan)
        if child.work_path != self.work_path:
            obstacle = child.open_work(self.work_path)
            if obstacle is not None:
                discard_child()
                return child, obstacle
        # Where it is gone already, that shows as soon as it is sent what to run.
        with contextlib.suppress(OSError):
            child.connection.send(self.shard)
        self._child = child
        return child, None

    def _listen(self, child: ChildProcess, waiting: deque[int]) -> Iterator[Outcome]:
        """Take what the child sends until it is idle or gone; what is finished leaves `waiting`."""
        # Messages first, limits second: an outcome that is on its way settles its partition,
        # even if the child dies, or is found too late or too large, a moment later. The look at the
        # process costs reads in /proc, so it is taken by the clock and not after each message.
        next_look = time.monotonic() + POLL_S
        gather_s = 0.0
        while True:
            verdict = None
            began = time.monotonic()
            try:
                message = child.connection.receive(POLL_S, gather_s)
            except EOFError:
                verdict, message = self._describe_death(child), None
            self._note_hold_up(child, time.monotonic() - began)
            gather_s = 0.0
            match message:
                case Outcome():
                    # In the order of the list that was sent, so it is of the first that waits.
                    waiting.popleft()
                    if len(waiting) >= FEWEST_GATHERED and message.seconds < GATHER_S:
                        gather_s = GATHER_S
                    yield self._complete(message)
                    if message.retired:
                        discard_child()
                        return
                case Idle(libraries=libraries):
                    child.learn(libraries)
                    return
                case _:
                    self._serve(child, message)
            now = time.monotonic()
            if verdict is None and now >= next_look:
                next_look = now + POLL_S
                verdict = self._look(child)
                # What runs is not waited for: without an outcome it counts as not done.
                if self.is_stopped():
                    yield from self._end(child, waiting)
                    return
                if verdict is None:
                    self.while_waiting()
            if verdict is not None:
                yield from self._bury(child, waiting, verdict)
                return

    def _note_hold_up(self, child: ChildProcess, waited_s: float) -> None:
        """Note that this process was stopped while it waited, for its partition to have that time.

        What stopped it (a suspended machine, SIGSTOP to all) is not the fault of the partition.
        """
        if waited_s > POLL_S + HELD_UP_S:
            index, _ = child.running()
            self._held_up[index] = self._held_up.get(index, 0.0) + waited_s - POLL_S

    def _serve(self, child: ChildProcess, message: Message | None) -> None:
        """Keep what a function uploads, and answer what it asks for."""
        match message:
            case Artifact(index=index, filename=filename, content=content):
                held = self._artifacts.setdefault(index, {})
                self._remove([held.pop(filename, b"")])
                held[filename] = self._keep(content)
            case ArtifactRequest():
                self._answer(child, message)
            case Report(question=question, step=step, value=value):
                gives_up = self.on_report(step, value)
                with contextlib.suppress(OSError):
                    child.connection.send(ReportAnswer(question=question, gives_up=gives_up))

    def _keep(self, content: Content) -> Content:
        """Return content where it is when the child that sent it is gone."""
        # Those of many partitions that wait for another attempt may fill the memory.
        if isinstance(content, bytes) and self._held_bytes + len(content) <= HELD_BYTES:
            self._held_bytes += len(content)
            return content
        path = Path(self.plan.directory, f"upload-{secrets.token_hex(6)}")
        if isinstance(content, str):
            return str(Path(content).rename(path))
        try:
            path.write_bytes(content)
        except OSError:  # the disk is full
            path.unlink(missing_ok=True)
            self._held_bytes += len(content)
            return content
        return str(path)

    def forget(self, index: int) -> None:
        """Keep nothing more of what a partition uploaded: it has no other attempt."""
        self._remove(self._artifacts.pop(index, {}).values())

    def _remove(self, contents: Iterable[Content]) -> None:
        for content in contents:
            if isinstance(content, bytes):
                self._held_bytes -= len(content)
            else:
                Path(content).unlink(missing_ok=True)

    def _complete(self, outcome: Outcome) -> Outcome:
        """Put together what the child sent of an attempt, and what is known of it here."""
        index = outcome.index
        artifacts = self._artifacts.get(index, {})
        peak = self._peaks.get(index)
        # Of most small partitions nothing is known here, and a copy takes a while.
        if not artifacts and peak is None:
            return outcome
        artifacts = {**artifacts, **outcome.artifacts}
        return replace(outcome, artifacts=artifacts, peak_memory_bytes=peak)

    def _answer(self, child: ChildProcess, request: ArtifactRequest) -> None:
        index, filename, run_id = request.index, request.filename, request.run_id
        reply: ArtifactFound | ArtifactMissing
        try:
            content = self._artifacts.get(index, {}).get(filename) if run_id is None else None
            if isinstance(content, str):
                content = Path(content).read_bytes()
            if content is None:
                content = self.download(index, filename, run_id)
        except (PartwiseError, LookupError, OSError) as error:
            reply = ArtifactMissing(question=request.question, message=str(error))
        else:
            path = Path(self.plan.directory, f"download-{secrets.token_hex(6)}")
            path.write_bytes(content)
            reply = ArtifactFound(question=request.question, path=str(path))
        with contextlib.suppress(OSError):
            child.connection.send(reply)

    def _look(self, child: ChildProcess) -> _Verdict | None:
        """Check a child from outside: does it live, and is it within its limits?"""
        if child.has_ended():
            return self._describe_death(child)
        child.bound_log()
        index, _ = child.running()
        if index < 0:
            return None
        family = child.family()
        memory = child.memory_bytes(family, self.plan.memory_bytes)
        self._peaks[index] = max(memory, self._peaks.get(index, 0))
        verdict = self._judge(child, memory, len(family))
        if verdict is None:
            return None
        # It may have gone on to the next partition since: hold it still and read again.
        child.pause()
        if child.running()[0] != index or self._judge(child, memory, len(family)) is None:
            child.resume()
            return None
        return verdict

    def _judge(self, child: ChildProcess, memory: int, processes: int) -> _Verdict | None:
        """Return which limit a partition exceeds; None: it keeps within all."""
        if memory > self.plan.memory_bytes:
            return _Verdict(
                "MemoryLimitExceeded",
                f"It used {memory >> 20} MiB of memory; the limit (memory_bytes) is "
                f"{self.plan.memory_bytes >> 20} MiB.",
                "memory limit",
                # Yet it has one more attempt, as it is starved: alone on its machine.
                final=True,
                is_starved=True,
            )
        if processes > MOST_PROCESSES:
            return _Verdict(
                "ProcessLimitExceeded",
                f"It had {processes:,} processes at one time; a partition may have "
                f"{MOST_PROCESSES:,}.",
                "process limit",
                final=True,
            )
        if self.timeout_s is None:
            return None
        index, seconds = child.running()
        held_up = self._held_up.get(index, 0.0)
        if seconds - held_up > self.timeout_s:
            return _Verdict(
                "PartitionTimeout",
                f"It was stopped after the {self.timeout_s:g} s that timeout_s allows.",
                "timed out",
                final=True,
            )
        longest = max(self.timeout_s, START_TIMEOUT_S)
        if child.preparing_s() - held_up > longest:
            return _Verdict(
                "PartitionTimeout",
                f"It was stopped since what its function imports took more than {longest:g} s.",
                "timed out",
                final=True,
            )
        return None

    def _describe_death(self, child: ChildProcess) -> _Verdict:
        # The end of the connection is seen a moment before the end of the process.
        deadline = time.monotonic() + 1.0
        while not child.has_ended() and time.monotonic() < deadline:
            time.sleep(0.005)
        end = child.describe_end() if child.has_ended() else "it closed its connection"
        return _Verdict(
            "ProcessDied",
            f"Its process ended: {end}.",
            f"died: {end}",
            final=False,
            # As the kernel ends the largest process of a machine that is out of memory.
            is_starved=child.was_killed(),
        )

    def _bury(
        self, child: ChildProcess, waiting: deque[int], verdict: _Verdict
    ) -> Iterator[Outcome]:
        """End a child; take what it had still sent, then blame the partition at work, if any."""
        # Before the kill, as they are of the partition at work.
        index, seconds = child.running()
        log = child.read_log()
        yield from self._end(child, waiting)
        # The mark may name a partition whose outcome has just been received, and then nobody is to
        # blame. Nobody is either when the child died between two partitions, or before the first.
        if waiting and waiting[0] == index:
            waiting.popleft()
            yield Outcome(
                index=index,
                status=PartitionStatus.FAILED,
                reason=verdict.reason,
                seconds=seconds,
                log=log + f"\n{verdict.message}\n".encode(),
                failure=Failure(
                    error_type=verdict.error_type,
                    message=verdict.message,
                    fingerprint=fingerprint_failure(verdict.error_type, verdict.reason),
                    final=verdict.final,
                ),
                artifacts=self._artifacts.get(index, {}),
                peak_memory_bytes=self._peaks.get(index),
                is_starved=verdict.is_starved,
            )

    def _end(self, child: ChildProcess, waiting: deque[int]) -> Iterator[Outcome]:
        """End a child, and take what it had still sent, without a wait."""
        # The kill before the messages: afterwards nothing can be added, so these are all there are.
        child.kill()
        with contextlib.suppress(EOFError):
            while (message := child.connection.receive(0)) is not None:
                if isinstance(message, Outcome):
                    waiting.popleft()
                    yield self._complete(message)
                elif not isinstance(message, ArtifactRequest):
                    # Nobody is there for an answer, for which a store may be waited for.
                    self._serve(child, message)
        discard_child()
        self._child = None

    def _unusable(self, index: int, failure: Failure) -> Outcome:
        message = f"The function could not be loaded on the worker: {failure.message}"
        return Outcome(
            index=index,
            status=PartitionStatus.FAILED,
            reason="not loadable",
            log=failure.traceback.encode(),
            # Another attempt would load the same bytes.
            failure=replace(failure, message=message, final=True, traceback=""),
        )
