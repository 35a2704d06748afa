"""Whether the files that a ledger refers to are still on the store."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from partwise.errors import IntegrityError, RunFormatError
from partwise.runs.documents import BUNDLES, OUTPUT_FOLDERS, RunKind, run_path
from partwise.runs.run import Run
from partwise.store.store import Store


def bundles_of(ledger: pa.Table) -> set[str]:
    """Return the bundles to which the rows of a ledger refer."""
    return set(pc.struct_field(pc.list_flatten(ledger["artifacts"]), "bundle").unique().to_pylist())


def files_there(store: Store, run_id: str, kind: RunKind, shard: int | None = None) -> set[str]:
    """Return the bundles and output files of a run, or of one shard, that the store has.

    Paths are relative to the run, as in a ledger.
    """
    begin = "" if shard is None else f"{shard:05d}-"
    root = run_path(run_id) + "/"
    return {
        path.removeprefix(root)
        for folder in (BUNDLES, OUTPUT_FOLDERS[kind])
        for path in store.list(f"{root}{folder}/{begin}")
    }


def are_there(ledger: pa.Table, files: set[str]) -> pa.Array:
    """Tell of each row of a ledger whether all that it refers to is among `files`."""
    outputs = ledger["rows_file"]
    there = pc.or_(pc.is_null(outputs), pc.is_in(outputs, pa.array(sorted(files), pa.string())))
    lost = bundles_of(ledger) - files
    if not lost:
        return there.combine_chunks()
    lists = ledger["artifacts"].combine_chunks()
    in_lost = pc.is_in(pc.struct_field(lists.flatten(), "bundle"), pa.array(sorted(lost)))
    held = np.ones(ledger.num_rows, dtype=bool)
    held[lists.value_parent_indices().filter(in_lost).to_numpy()] = False
    return pc.and_(there.combine_chunks(), pa.array(held))


def is_whole(run: Run) -> bool:
    """Whether the ledger of a complete run, and all that it refers to, is there."""
    try:
        ledger = run.ledger
    except (IntegrityError, RunFormatError):
        return False
    files = files_there(run.store, run.run_id, run.kind)
    return bool(pc.all(are_there(ledger, files), min_count=0).as_py())
