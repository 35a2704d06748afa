"""The driver's side of a gang: runs it, begins again where that is allowed, and says who failed."""

import contextlib
import pickle
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from partwise.cluster_calls import rejoin
from partwise.engine.driver.cluster_watch import LOOK_S, ClusterWatch
from partwise.engine.scaling import ClusterWorker, cluster_workers
from partwise.errors import ClusterError, StoreError
from partwise.gangs.attempt import Attempt, AttemptEnd
from partwise.gangs.errors import GangFailedError
from partwise.gangs.events import GangEvent, GangListener
from partwise.gangs.placement import replace_lost
from partwise.gangs.resume_point import begin_attempt
from partwise.gangs.spec import GangSpec, RankEnd
from partwise.gangs.verdict import choose_guilty, is_consequence
from partwise.outcomes import PartitionStatus, Stop
from partwise.runs.bundle import LOG_FILENAME, StoredArtifact
from partwise.runs.documents import run_path

if TYPE_CHECKING:
    from distributed import Client


def run_gang(
    client: "Client", spec: GangSpec, listener: GangListener | None = None
) -> list[RankEnd]:
    """Run a gang to its end; see `GangDriver.run`."""
    # None: an attempt looks at the silence of its own workers, and others are not its concern.
    with ClusterWatch(client, spec.run_id, None) as watch:
        return GangDriver(client, spec, watch, listener).run()


class GangDriver:
    """Runs one gang on a cluster.

    `workers` says which there are to begin again on, in the place of lost ones; None: all.
    """

    def __init__(
        self,
        client: "Client",
        spec: GangSpec,
        watch: ClusterWatch,
        listener: GangListener | None = None,
        workers: Callable[[], list[ClusterWorker]] | None = None,
    ) -> None:
        self.stopped: Stop | None = None
        self._client = client
        self._spec = spec
        self._watch = watch
        self._listener = listener
        self._workers = workers or (lambda: cluster_workers(client))
        self._attempt: Attempt | None = None
        self._news = threading.Event()

    def stop(self, stop: Stop) -> None:
        """End the gang, from another thread than that of `run`. The first stop counts."""
        self.stopped = self.stopped or stop
        self._news.set()
        if self._attempt is not None:
            self._attempt.wake()

    def run(self) -> list[RankEnd]:
        """Run the ranks, and wait until all have ended; begin again as often as the spec allows.

        Returns:
            How each rank ended, in their order: all are DONE or SKIPPED.

        Raises:
            GangFailedError: A rank failed, or the gang was stopped; nothing of it counts. Its cause
                is what the rank that is to blame raised.
            ClusterError: A slot stayed busy for too long, or the cluster is gone.
            InputError: What the gang is to go on from is not there.
        """
        spec = self._spec
        number = 1
        while True:
            begun = begin_attempt(spec, number)
            self._attempt = Attempt(
                self._client, self._watch, begun, number, lambda: self.stopped, self._listen
            )
            ended = self._attempt.run()
            if ended.is_success:
                return ended.ends
            failed = self._fail(ended, number)
            if self.stopped or number > spec.options.max_retries or _is_final(failed):
                raise failed from failed.__cause__
            self._listen(GangEvent(kind="restart", attempt=number + 1, error=str(failed)))
            rejoin(self._client, self._watch.look, lambda: self.stopped)
            spec = self._with_workers(spec, ended, number)
            self._discard(ended.ends)
            number += 1

    def longest(self) -> str:
        """Return a sentence about what the gang waits for; empty: it has not begun."""
        return "" if self._attempt is None else self._attempt.longest()

    def _listen(self, event: GangEvent) -> None:
        if self._listener is not None:
            self._listener.update(event)

    def _fail(self, ended: AttemptEnd, number: int) -> GangFailedError:
        """Return the error that says how the gang failed."""
        guilty = choose_guilty(ended.ends, ended.order)
        ends = [replace(end, artifacts=_logs(end)) for end in ended.ends]
        attempts = f", in attempt {number}" if number > 1 else ""
        name = f"The gang of the run {self._spec.run_id!r}"
        if ended.reason or guilty is None or guilty.failure is None:
            reason = ended.reason or "it did not come together"
            # The first rank that is ended may take others along, before these are ended too.
            ends = [_without_consequence(end, reason) for end in ends]
            return GangFailedError(
                f"{name} was ended{attempts}: {reason}.", ends, None, self.stopped
            )
        # Of more lines, often a piece of its log, the rest stands in the failure of the rank.
        first, *more = guilty.failure.message.splitlines() or [""]
        message = f"{first} ... {more[-1]}" if more else first
        failed = GangFailedError(
            f"{name} failed on rank {guilty.rank} of {len(ends)}{attempts}: "
            f"{guilty.failure.error_type}: {message}",
            [
                end
                if end.rank == guilty.rank
                else _without_consequence(end, f"rank {guilty.rank} had failed")
                for end in ends
            ],
            guilty.rank,
        )
        failed.__cause__ = _error_of(guilty.rank, ended)
        return failed

    def _discard(self, ends: list[RankEnd]) -> None:
        """Delete the bundles of an attempt that counts for nothing; no ledger refers to them."""
        for bundle in {artifact.bundle for end in ends for artifact in end.artifacts}:
            # What stays is left to `partwise runs gc`.
            with contextlib.suppress(StoreError):
                self._spec.store.delete(run_path(self._spec.run_id, bundle))

    def _with_workers(self, spec: GangSpec, ended: AttemptEnd, number: int) -> GangSpec:
        """Return the gang with other workers in the place of lost ones, once there are some.

        Raises:
            GangFailedError: The gang was stopped meanwhile.
            ClusterError: No others came in time.
        """
        if not ended.lost:
            return spec
        deadline = time.monotonic() + spec.options.join_timeout_s
        while not self.stopped:
            workers = [
                worker
                for worker in self._workers()
                if worker.address not in ended.lost
                or self._watch.is_another(worker.address, ended.began)
            ]
            nodes = replace_lost(spec.nodes, ended.lost, workers)
            if nodes is not None:
                return replace(spec, nodes=nodes)
            if time.monotonic() >= deadline:
                raise ClusterError(
                    f"The gang of the run {spec.run_id!r} lost workers, and no others came in "
                    f"their place within {spec.options.join_timeout_s:g} s: "
                    f"{', '.join(sorted(ended.lost))}."
                )
            self._news.wait(LOOK_S)
        ended.reason = self.stopped.reason
        raise self._fail(ended, number)


def _logs(end: RankEnd) -> tuple[StoredArtifact, ...]:
    return tuple(artifact for artifact in end.artifacts if artifact.filename == LOG_FILENAME)


def _without_consequence(end: RankEnd, reason: str) -> RankEnd:
    """Return the end of a rank that died of another one as that of one that was ended.

    What it raised tells nobody anything, and stands in its log.
    """
    if end.failure is None or not is_consequence(end.failure.summary):
        return end
    return replace(end, status=PartitionStatus.CANCELLED, failure=None, reason=reason)


def _is_final(failed: GangFailedError) -> bool:
    """Whether another attempt would come to the same."""
    failures = [end.failure for end in failed.ends if end.rank == failed.rank]
    return any(failure is not None and failure.final for failure in failures)


def _error_of(rank: int, ended: AttemptEnd) -> BaseException | None:
    """Return what a rank raised, as it was; None where there is nothing but text."""
    if rank in ended.node_errors:
        return ended.node_errors[rank]
    with contextlib.suppress(Exception):
        error = pickle.loads(ended.errors[rank])  # noqa: S301 (the caller's own code)
        return error if isinstance(error, BaseException) else None
    return None
