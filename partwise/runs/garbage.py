"""Files of a run that nothing refers to: of replaced generations, of late executions."""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pyarrow as pa
import pyarrow.compute as pc

from partwise.errors import InputError, IntegrityError, RunFormatError, RunNotFoundError
from partwise.outcomes import PartitionStatus
from partwise.runs.checkpoints import (
    CHECKPOINTS,
    DOCUMENT,
    checkpoint_folders,
    checkpoint_order,
    complete_checkpoints,
)
from partwise.runs.contents import (
    bundles_of,
    files_there,
    ledger_segments,
    objects_below,
    read_segments,
)
from partwise.runs.documents import (
    DAMAGED,
    REPLACED,
    SCRATCH,
    SummaryDocument,
    generation_of,
    keys_claim,
    ledger_file,
    run_path,
)
from partwise.runs.holds import read_holds
from partwise.runs.run import Run
from partwise.runs.sent_files import unneeded
from partwise.runs.steps import AT_ONCE, Step, announce, finish_earlier_steps
from partwise.store.lease import Lease
from partwise.store.store import Store

GRACE_HOURS = 24.0
_MOST_HOURS = 876_000
"""A hundred years: of much more the moment is none that a calendar has."""
_UNFINISHED = {PartitionStatus.CANCELLED.value, PartitionStatus.INTERNAL_ERROR.value}
_LOOK_EVERY = 20
"""Between so many sizes it is looked whether the run is wanted: on a slow store, in seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Garbage:
    """What a garbage collection found, or deleted."""

    files: list[tuple[str, int]]
    """Paths, relative to the store, and sizes in bytes."""
    waiting: tuple[tuple[str, int], ...] = ()
    """Of a dry run: those that go once they have been replaced for as long as the grace says."""
    gave_way: bool = False
    """Whether it ended early, since a process wanted to work on the run."""


def collect_garbage(
    store: Store, run_id: str, *, dry_run: bool, grace_hours: float = GRACE_HOURS
) -> Garbage:
    """Delete what no row of a run's ledger refers to, and no reader may still hold.

    Of a run that is not complete, or of which partitions were cancelled or lost, only what was
    handed to workers by way of the store is deleted: a resume goes on from the rest, of earlier
    generations too. A process that wants to work on the run meanwhile does not wait for the end. Of
    a run that was sent to a work pool and not begun, what was sent is deleted. What readers could
    see stays for `grace_hours` after it was replaced: a handle that was opened before, or an
    inference that has begun, goes on with it. What a catalog draws on stays as long as it does.
    """
    if not 0 <= grace_hours <= _MOST_HOURS:
        raise InputError(
            f"grace_hours is {grace_hours:g}; it must be 0 or more, and at most {_MOST_HOURS:,}."
        )
    since = now() - timedelta(hours=grace_hours)
    if dry_run or not store.list_folder(run_path(run_id)):
        files = _with_sizes(store, run_id, since)
        later = _with_sizes(store, run_id, now())
        return Garbage(files=files, waiting=tuple(each for each in later if each not in files))
    with Lease.acquire(store, run_path(run_id), gives_way=True, asks=False) as lease:
        finish_earlier_steps(lease, store, run_id)
        found = _with_sizes(store, run_id, since, lease.is_wanted)
        if lease.is_wanted():
            return Garbage(files=[], gave_way=True)
        root = run_path(run_id) + "/"
        for start in range(0, len(found), AT_ONCE):
            # Who asked us to give way waits for the release. Whoever does not wait so long, since
            # this process is silent, finds the step, and deletes these before it looks which files
            # are there; so nothing that it finds is deleted afterwards.
            if lease.is_wanted():
                return Garbage(files=found[:start], gave_way=True)
            batch = [path.removeprefix(root) for path, _ in found[start : start + AT_ONCE]]
            announce(lease, store, run_id, Step(delete=tuple(batch)))
    return Garbage(files=found)


def now() -> datetime:
    """Return the time that ends of generations are compared with."""
    return datetime.now(UTC)


def _with_sizes(
    store: Store, run_id: str, since: datetime, is_wanted: Callable[[], bool] = lambda: False
) -> list[tuple[str, int]]:
    """Return the garbage with its sizes; what is not looked at yet is left out when it is wanted.

    On S3 a size is a request, of hundreds of thousands of files: whoever wants to work on the run
    would be refused long before these are all known.
    """
    # What makes a checkpoint count goes first: it is there as a whole, or not at all.
    ordered = sorted(
        _garbage(store, run_id, since), key=lambda path: (not path.endswith(DOCUMENT), path)
    )
    found = []
    for place, path in enumerate(ordered):
        if place % _LOOK_EVERY == 0 and is_wanted():
            break
        # What is gone by now, another process has deleted that took the run over.
        with contextlib.suppress(FileNotFoundError):
            found.append((path, store.size(path)))
    return found


def _garbage(store: Store, run_id: str, since: datetime) -> Iterator[str]:
    try:
        run = Run.open(run_id, store)
    except RunNotFoundError:
        if not store.list_folder(run_path(run_id)):
            raise
        yield from unneeded(store, run_id, (), since)
        return
    holds = read_holds(store, run_id)
    yield from holds.stale
    yield from objects_below(store, run_id, f"{SCRATCH}/")
    if run.shown is None or run.shown is not run.summary or _UNFINISHED & set(run.counts):
        return
    ends = run.complete_generations()
    held = [run.shown, *_replaced_since(ends, since)]
    kept = {name for end in held for name in _references(run, end)} | holds.files
    for name in files_there(store, run_id, run.kind) - kept:
        if not _is_recent(name, ends, since):
            yield run_path(run_id, name)
    for folder in (REPLACED, DAMAGED):
        root = run_path(run_id, folder) + "/"
        for path in objects_below(store, run_id, f"{folder}/"):
            if path.removeprefix(root) not in kept and not _is_recent(path, ends, since):
                yield path
    ledgers = {ledger_file(number) for number in range(1, run.generation + 1)}
    there = set(objects_below(store, run_id, "generations/"))
    needed = {end.ledger_file for end in held} | holds.files
    # What a generation that has ended was to work on. That of the newest is new: it may stay.
    own = {path for path in there if keys_claim(path.rpartition("/")[2], run.generation)}
    yield from (path for path in there - own if keys_claim(path.rpartition("/")[2]))
    yield from there & {run_path(run_id, name) for name in ledgers - needed}
    yield from (path for path in _segments(run) if not _is_recent(path, ends, since))
    yield from _checkpoints(run, ends, since)
    numbers = {run.generation, *(end.generation for end in held)}
    documents = [run.read_generation_document(each).model_dump_json() for each in sorted(numbers)]
    yield from unneeded(store, run_id, documents, since)


def _checkpoints(run: Run, ends: list[SummaryDocument], since: datetime) -> Iterator[str]:
    """Yield the files of all checkpoints but the newest that counts: others may begin with that."""
    root = run_path(run.run_id, CHECKPOINTS)
    newest = complete_checkpoints(run.store, root)[-1:]
    for name in checkpoint_folders(run.store, root):
        if name not in newest and not _is_left_since(checkpoint_order(name)[0], ends, since):
            yield from objects_below(run.store, run.run_id, f"{CHECKPOINTS}/{name}/")


def _replaced_since(ends: list[SummaryDocument], since: datetime) -> list[SummaryDocument]:
    """Return the complete generations that readers saw until a later moment than `since`."""
    return [end for end, after in pairwise(ends) if after.finished_at > since]


def _is_recent(path: str, ends: list[SummaryDocument], since: datetime) -> bool:
    """Whether a reader may have seen a file while no generation was complete that replaced it."""
    return _is_left_since(generation_of(path), ends, since)


def _is_left_since(generation: int, ends: list[SummaryDocument], since: datetime) -> bool:
    """Whether no generation from this one on was complete at that moment."""
    return all(end.finished_at > since for end in ends if end.generation >= generation)


def _references(run: Run, end: SummaryDocument) -> set[str]:
    """Return the bundles and output files to which the ledger of a generation refers."""
    if end is run.shown:
        ledger = run.ledger
    else:
        try:
            ledger = Run.open(run.run_id, run.store, generation=end.generation).ledger
        except (IntegrityError, RunFormatError):
            # It went with an earlier collection of less grace: nobody can begin to read it.
            return set()
    return bundles_of(ledger) | set(ledger["rows_file"].drop_null().unique().to_pylist())


def _segments(run: Run) -> Iterator[str]:
    """Yield the segments of which a later resume needs no row."""
    store = run.store
    rows = set(_row_names(run.ledger).to_pylist())
    # A resume reads the segments, not the ledger of a generation. A row that was kept stands in
    # several, of which the newest knows where its output rows are.
    paths = ledger_segments(store, run.run_id)
    found = read_segments(store, sorted(paths, key=generation_of))
    needed: dict[str, str] = {}
    for path, table in found.tables.items():
        needed |= {row: path for row in _row_names(table).to_pylist() if row in rows}
    yield from set(found.tables) - set(needed.values())


def _row_names(ledger: pa.Table) -> pa.Array:
    """Return what tells each row of a ledger from all others: partition, and when it was done."""
    times = ledger["finished_at"].cast(pa.int64()).cast(pa.string())
    names = pc.binary_join_element_wise(ledger["partition_id"], times, "@")
    return pa.concat_arrays(names.chunks) if names.num_chunks else pa.array([], pa.string())
