"""Files of a run that nothing refers to: of replaced generations, of late executions."""

import contextlib
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from partwise.outcomes import PartitionStatus
from partwise.runs.contents import bundles_of, files_there, ledger_segments, read_segments
from partwise.runs.documents import SCRATCH, generation_of, run_path
from partwise.runs.run import Run
from partwise.store.lease import Lease
from partwise.store.store import Store

_UNFINISHED = {PartitionStatus.CANCELLED.value, PartitionStatus.INTERNAL_ERROR.value}


def collect_garbage(store: Store, run_id: str, *, dry_run: bool) -> list[tuple[str, int]]:
    """Delete what no row of a run's ledger refers to.

    Of a run that is not complete, or of which partitions were cancelled or lost, only what was
    handed to workers by way of the store is deleted: a resume goes on from the rest, of earlier
    generations too.

    Args:
        store: Where the run is.
        run_id: The run.
        dry_run: Only say what would be deleted.

    Returns:
        Paths, relative to the store, and sizes in bytes.

    Raises:
        RunNotFoundError: There is no such run.
        RunBusyError: A process works on it.
        IntegrityError: Its ledger is gone or was changed.
    """
    run = Run.open(run_id, store)
    with contextlib.nullcontext() if dry_run else Lease.acquire(store, run_path(run_id)):
        files = [(path, store.size(path)) for path in sorted(_garbage(run.refresh()))]
        if not dry_run:
            for path, _ in files:
                store.delete(path)
    return files


def _garbage(run: Run) -> Iterator[str]:
    store, run_id = run.store, run.run_id
    yield from store.list(run_path(run_id, SCRATCH) + "/")
    if run.summary is None or _UNFINISHED & set(run.counts):
        return
    ledger = run.ledger
    kept = bundles_of(ledger) | set(ledger["rows_file"].drop_null().unique().to_pylist())
    yield from (run_path(run_id, name) for name in files_there(store, run_id, run.kind) - kept)
    rows = set(_row_names(ledger).to_pylist())
    segments = sorted(ledger_segments(store, run_id), key=generation_of)
    # A later resume reads the segments, not the consolidated ledger. A row that was kept stands in
    # several, of which the newest knows where its output rows are.
    needed: dict[str, str] = {}
    for path, table in zip(segments, read_segments(store, segments), strict=True):
        needed |= {row: path for row in _row_names(table).to_pylist() if row in rows}
    yield from set(segments) - set(needed.values())


def _row_names(ledger: pa.Table) -> pa.Array:
    """Return what tells each row of a ledger from all others: partition, and when it was done."""
    times = ledger["finished_at"].cast(pa.int64()).cast(pa.string())
    names = pc.binary_join_element_wise(ledger["partition_id"], times, "@")
    return pa.concat_arrays(names.chunks) if names.num_chunks else pa.array([], pa.string())
