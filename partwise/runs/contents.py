"""What the store holds of runs: which runs, their generations, ledger segments and files.

All of it is asked of the store anew: a run may be written by other processes meanwhile.
"""

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from partwise.runs.documents import (
    BUNDLES,
    OUTPUT_FOLDERS,
    RUN_DOCUMENT,
    RUNS,
    SUMMARY_DOCUMENT,
    RunKind,
    SummaryDocument,
    generation_number,
    generation_of,
    is_run_id,
    run_path,
)
from partwise.runs.ledger import merge, read_table
from partwise.store.store import Store

READ_THREADS = 8


def list_runs(store: Store) -> list[str]:
    """Return the IDs of the runs in a store, sorted."""
    names = [name for name in store.list_folder(RUNS) if is_run_id(name)]
    documents = [run_path(name, RUN_DOCUMENT) for name in names]
    with ThreadPoolExecutor(READ_THREADS) as threads:
        there = threads.map(store.exists, documents)
    return [name for name, is_there in zip(names, there, strict=True) if is_there]


def latest_generation(store: Store, run_id: str) -> int:
    """Return the newest generation of a run; 0 when none was begun."""
    names = store.list_folder(run_path(run_id, "generations"))
    return max(map(generation_number, names), default=0)


def ended_generation(store: Store, run_id: str) -> int:
    """Return the generation whose end is written down; 0 while none has ended."""
    try:
        content = store.read(run_path(run_id, SUMMARY_DOCUMENT))
    except FileNotFoundError:
        return 0
    return SummaryDocument.from_bytes(content, f"{run_id}/{SUMMARY_DOCUMENT}").generation


def ledger_segments(store: Store, run_id: str, shard: int | None = None) -> list[str]:
    """Return the paths of a run's ledger segments, of all generations."""
    name = "ledger/" if shard is None else f"ledger/{shard:05d}-"
    return store.list(run_path(run_id, name))


def read_segments(store: Store, paths: Iterable[str]) -> list[pa.Table]:
    """Return the ledger rows in these segments.

    Raises:
        RunFormatError: One is damaged.
    """

    def read(path: str) -> pa.Table:
        return read_table(store.read(path), f"{store.url}/{path}")

    with ThreadPoolExecutor(READ_THREADS) as threads:
        return list(threads.map(read, paths))


def read_generation(store: Store, run_id: str, generation: int) -> pa.Table | None:
    """Return one row per partition that a generation has committed, sorted by key."""
    paths = [p for p in ledger_segments(store, run_id) if generation_of(p) == generation]
    return merge(read_segments(store, paths))


def read_committed(
    store: Store, run_id: str, shard: int, generation: int, compatible: Iterable[int]
) -> tuple[pa.Table | None, pa.Table | None]:
    """Return what is committed of a shard: by this generation, and by earlier ones.

    Args:
        store: Where the run is.
        run_id: The run.
        shard: The number of the shard.
        generation: The current generation.
        compatible: Earlier generations that count.
    """
    allowed = set(compatible)
    paths = ledger_segments(store, run_id, shard)
    current = [path for path in paths if generation_of(path) == generation]
    earlier = [path for path in paths if generation_of(path) in allowed]
    return (
        merge(read_segments(store, current)),
        merge(read_segments(store, earlier), map(generation_of, earlier)),
    )


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
