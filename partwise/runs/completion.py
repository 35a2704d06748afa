"""Ending a run: one ledger of all partitions, outputs without doubles, the summary last."""

import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.compute as pc

from partwise.errors import IntegrityError
from partwise.formatting import counted
from partwise.outcomes import PartitionStatus, RunStatus, Stop
from partwise.runs.claim import Claim
from partwise.runs.contents import read_generation, refuse_removed
from partwise.runs.documents import (
    SummaryDocument,
    ledger_file,
    run_path,
    sha256_of,
    summary_file,
)
from partwise.runs.kinds import KINDS
from partwise.runs.ledger import (
    LedgerRow,
    merge,
    segment_table,
    skip_reasons,
    status_counts,
    write_table,
)
from partwise.runs.outputs import rewrite_partial_files, unreferenced_outputs
from partwise.runs.progress import began_in
from partwise.runs.run import Run
from partwise.runs.view import seen_of
from partwise.store.seen import remember
from partwise.tables.keys.partition_keys import KeyColumn, partition_ids


@dataclass(frozen=True, slots=True, kw_only=True)
class UnfinishedShard:
    """A shard of which not every partition has a committed row."""

    shard: int
    keys: pa.Table
    """Normalized keys of all its partitions."""
    status: PartitionStatus
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """How an execution came to its end, as far as the driver knows."""

    partitions: int
    """How many there are, by the shards' own count."""
    unfinished: tuple[UnfinishedShard, ...]
    stopped: Stop | None
    """None: it was not, all partitions were worked on."""
    rows: int
    dropped_rows: int
    started_at: datetime
    stages: Mapping[str, float]
    remark: Callable[[pa.Table], str] | None = None
    """Called with the ledger, gives a sentence for the summary."""


def complete_run(claim: Claim, ending: Ending) -> Run:
    """Write the consolidated ledger and the summary of the current generation.

    Raises:
        RunBusyError: Another process took the run over meanwhile; nothing is written.
        IntegrityError: The ledger does not hold each partition exactly once.
        RunNotFoundError: The run was removed meanwhile.
    """
    # What is safe when: segments are read from the store and not from what the driver remembers, as
    # only they survive it. The check comes before the first write. The ledger and the files that it
    # names come before the summary, which is what makes the generation complete and what readers
    # see; what it replaces is set aside after that. Ledger and summary are created under names of
    # this generation, so a process that comes too late changes nothing that others have written.
    # Killed at any point, a resume does the rest.
    store, identity = claim.store, claim.identity
    segments = read_generation(store, identity.run_id, claim.generation)
    # Taken out one by one, as `merge` keeps none of them: a million rows are 300 MiB in memory.
    ledger = merge(segments.tables.pop(path) for path in sorted(segments.tables))
    if ending.unfinished:
        tables = [] if ledger is None else [ledger]
        done = set() if ledger is None else set(ledger["partition_id"].to_pylist())
        for shard in ending.unfinished:
            missing = _rows_of(shard, identity.key_columns, claim.generation, done)
            if missing is not None:
                tables.append(missing)
        ledger = merge(tables)
    if ledger is None or ledger.num_rows != ending.partitions:
        refuse_removed(store, identity.run_id, claim.generation)
        raise IntegrityError(
            f"The ledger of the run {identity.run_id!r} has "
            f"{0 if ledger is None else ledger.num_rows} partitions, and its shards have "
            f"{ending.partitions}; resume the run, which runs again what is missing."
            + "".join(f" {reason}" for reason in segments.damaged.values())
        )
    claim.check()
    counts = status_counts(ledger)
    # New names for rewritten files: a reader of the older ledger still finds those that it names.
    chance = secrets.token_hex(3)
    ledger = rewrite_partial_files(
        store,
        identity.run_id,
        ledger,
        lambda name: f"{name.removesuffix('.parquet')}-{chance}.parquet",
    )
    content = write_table(ledger)
    name = ledger_file(claim.generation)
    store.create(run_path(identity.run_id, name), content)
    status = run_status(counts, ending.stopped)
    kept = pc.sum(pc.less(ledger["generation"], claim.generation)).as_py()
    summary = SummaryDocument(
        generation=claim.generation,
        status=status,
        message=describe(status, counts, kept, ending, skip_reasons(ledger)),
        remark=ending.remark(ledger) if ending.remark else "",
        counts=counts,
        kept=kept,
        executed=began_in(ledger, claim.generation),
        rows=ending.rows,
        dropped_rows=ending.dropped_rows,
        ledger_file=name,
        ledger_sha256=sha256_of(content),
        started_at=ending.started_at,
        finished_at=datetime.now(UTC),
        stages={name: round(seconds, 3) for name, seconds in ending.stages.items()},
    )
    run = _finish(claim, summary, ledger)
    if summary.is_complete(identity.kind):
        # What readers see, without a second copy of it.
        run.ledger = ledger
    return run


def settle_unchanged(claim: Claim, started_at: datetime) -> Run:
    """Write the summary of a generation that found everything done: the ledger stays as it is."""
    if claim.existing is None or claim.existing.shown is None:
        raise ValueError("only a complete run can be settled without work")
    before = claim.existing.shown
    summary = before.model_copy(
        update={
            # The one before may be of an older release, whose documents had no seal.
            "format_version": SummaryDocument.model_fields["format_version"].default,
            "generation": claim.generation,
            # One that was cancelled after the last partition was done, too.
            "status": RunStatus.SUCCESS,
            "message": f"All {sum(before.counts.values())} partitions were done already.",
            "kept": sum(before.counts.values()),
            "executed": 0,
            "started_at": started_at,
            "finished_at": datetime.now(UTC),
            "stages": {},
        }
    )
    run = _finish(claim, summary, claim.existing.ledger)
    # It is the same file, and the larger part of a driver's memory: one of them, not two.
    run.ledger = claim.existing.ledger
    return run


def _finish(claim: Claim, summary: SummaryDocument, ledger: pa.Table) -> Run:
    """Write the summary, then leave no output rows but those of the ledger in their folder.

    So whoever reads the folder as it is finds each partition once. Who has opened the run before
    finds the older rows under `replaced`, until a garbage collection. After a generation that was
    stopped, readers see an older one, and the rows of both stay.
    """
    store, run_id = claim.store, claim.identity.run_id
    number = summary.generation
    bound = summary.model_copy(
        update={
            "run_sha256": claim.run_sha256,
            "generation_sha256": claim.generation_sha256,
        }
    )
    path = run_path(run_id, summary_file(number))
    store.create(path, bound.to_bytes(path, store))
    if summary.is_complete(claim.identity.kind):
        folder = KINDS[claim.identity.kind].outputs
        # Listed before they are announced: where the list holds rows of a newer generation, this
        # one has been given up, comes too late, and may not set them aside.
        if replaced := unreferenced_outputs(store, run_id, ledger, folder):
            claim.replace(replaced)
    run = Run.open(run_id, store, generation=summary.generation)
    remember(store, run_path(run_id), seen_of(run.document, summary.generation))
    return run


def run_status(counts: Mapping[str, int], stopped: Stop | None) -> RunStatus:
    """Return the status of a run from those of its partitions.

    Example:
        >>> run_status({"DONE": 3, "FAILED": 1}, None)
        <RunStatus.PARTIAL_FAILURE: 'PARTIAL_FAILURE'>
    """
    if stopped is not None:
        return stopped.status
    wrong = counts.get(PartitionStatus.FAILED, 0) + counts.get(PartitionStatus.INTERNAL_ERROR, 0)
    if wrong == 0:
        # All of a resume's are counted: one that skips what is left of a run keeps its SUCCESS.
        is_empty = set(counts) == {PartitionStatus.SKIPPED}
        return RunStatus.SKIPPED if is_empty else RunStatus.SUCCESS
    return RunStatus.PARTIAL_FAILURE if counts.get(PartitionStatus.DONE) else RunStatus.FAILURE


def describe(
    status: RunStatus, counts: Mapping[str, int], kept: int, ending: Ending, reasons: str
) -> str:
    """Return a sentence about a run's end; where all were skipped, with the `reasons` for it."""
    total = counted(sum(counts.values()), "partition")
    parts = ", ".join(f"{count:,} {name}" for name, count in sorted(counts.items()))
    before = f" {kept:,} {'was' if kept == 1 else 'were'} kept from before." if kept else ""
    dropped = ending.dropped_rows
    were = "was" if dropped == 1 else "were"
    without = f" {counted(dropped, 'row')} with a null key {were} dropped." if dropped else ""
    end = f" Stopped: {ending.stopped.reason}." if ending.stopped else ""
    why = f" Nothing was made: {reasons}." if status is RunStatus.SKIPPED else ""
    return f"{status.value}: {total} ({parts}).{why}{before}{without}{end}"


def _rows_of(
    unfinished: UnfinishedShard, columns: tuple[KeyColumn, ...], generation: int, done: set[str]
) -> pa.Table | None:
    """Return ledger rows for the partitions of a shard that have none."""
    names = partition_ids(unfinished.keys, columns)
    missing = [i for i, name in enumerate(names) if name not in done]
    if not missing:
        return None
    ledger_rows = [
        LedgerRow(
            partition_id=names[i],
            shard=unfinished.shard,
            generation=generation,
            status=unfinished.status.value,
            rows=None,
            reason=unfinished.reason,
        )
        for i in missing
    ]
    return segment_table(unfinished.keys.take(pa.array(missing, pa.int64())), ledger_rows)
