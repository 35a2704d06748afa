"""What a study finds in its run, and how it ends there: kept trials, then the summary."""

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

import pyarrow as pa
import pyarrow.compute as pc

from partwise.engine.assignment import Execution
from partwise.engine.worker.segments import SegmentWriter
from partwise.outcomes import PartitionStatus, Stop
from partwise.runs.claim import Claim, Intent
from partwise.runs.completion import Ending, UnfinishedShard, complete_run
from partwise.runs.contents import (
    are_there,
    files_there,
    ledger_segments,
    read_generation,
    read_segments,
)
from partwise.runs.ledger import KEY_PREFIX
from partwise.runs.run import Run
from partwise.runs.trials import TRIAL, Trial, read_trials
from partwise.studies.driver import StudyEnd

_NUMBER = f"{KEY_PREFIX}{TRIAL}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What earlier generations of a run came to, as far as a resume may use it."""

    ledger: pa.Table | None = None
    """Their rows; None: there are none."""
    kept: tuple[Trial, ...] = ()
    """Trials that have ended."""
    again: tuple[Trial, ...] = ()
    """Trials that failed, and run again with the same settings."""

    def numbers(self, trials: int) -> list[int]:
        """Return which trials a study works on that is to have so many, the kept ones included."""
        known = {trial.number for trial in (*self.kept, *self.again)}
        others = (number for number in itertools.count() if number not in known)
        return sorted({*known, *itertools.islice(others, max(0, trials - len(known)))})


def known_trials(claim: Claim, intent: Intent) -> Known:
    """Return the trials of the same code and rows whose files are all there."""
    generations = claim.resumable_generations(intent)
    store, run_id = claim.store, claim.identity.run_id
    paths = ledger_segments(store, run_id) if generations else []
    ledger = read_segments(store, paths).merge(generations)
    if ledger is None:
        return Known()
    ledger = ledger.filter(are_there(ledger, files_there(store, run_id, claim.identity.kind)))
    trials = read_trials(ledger)
    ended = (PartitionStatus.DONE, PartitionStatus.SKIPPED)
    return Known(
        ledger=ledger,
        kept=tuple(trial for trial in trials if trial.status in ended),
        again=tuple(trial for trial in trials if trial.status is PartitionStatus.FAILED),
    )


def keep_trials(execution: Execution, known: Known) -> None:
    """Commit the rows of earlier trials in the generation that has begun.

    Raises:
        StoreError: The store refused.
    """
    numbers = pa.array([trial.number for trial in known.kept], pa.int64())
    if known.ledger is None or not len(numbers):
        return
    writer = SegmentWriter(execution, 0, pa.table({TRIAL: numbers}))
    writer.carry(known.ledger.filter(pc.is_in(known.ledger[_NUMBER], value_set=numbers)))
    writer.commit()


def complete_study(
    claim: Claim,
    end: StudyEnd,
    stopped: Stop | None,
    *,
    started_at: datetime,
    stages: Mapping[str, float],
) -> Run:
    """Write the ledger of a study and its summary, and return the run.

    Raises:
        RunBusyError: Another process took the run over meanwhile.
        IntegrityError: A segment of the ledger is damaged.
    """
    ledger = read_generation(claim.store, claim.identity.run_id, claim.generation).merge()
    committed = set() if ledger is None else set(ledger[_NUMBER].to_pylist())
    # What was thought to be lost may have been committed by a worker out of reach.
    lost = {number: why for number, why in end.lost.items() if number not in committed}
    cut_off = [number for number in end.interrupted if number not in committed]
    if not (committed or lost or cut_off):
        # A ledger has a row: that of the trial that would have been the first.
        cut_off = [0]
    why = "interrupted" if stopped is None else stopped.reason
    unfinished = [
        *(_row(number, PartitionStatus.INTERNAL_ERROR, reason) for number, reason in lost.items()),
        *(_row(number, PartitionStatus.CANCELLED, why) for number in cut_off),
    ]
    ending = Ending(
        partitions=len(committed) + len(unfinished),
        unfinished=tuple(unfinished),
        stopped=stopped,
        rows=end.rows,
        dropped_rows=0,
        started_at=started_at,
        stages=stages,
        remark=lambda _: end.reason and f"No more trials were begun: {end.reason}.",
    )
    return complete_run(claim, ending)


def _row(number: int, status: PartitionStatus, reason: str) -> UnfinishedShard:
    keys = pa.table({TRIAL: pa.array([number], pa.int64())})
    return UnfinishedShard(shard=number, keys=keys, status=status, reason=reason)
