"""What workers have committed of a run: ledger segments, read straight from the store."""

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa

from partwise.runs.documents import SUMMARY_DOCUMENT, SummaryDocument, generation_of, run_path
from partwise.runs.ledger import merge, read_table
from partwise.store.store import Store

READ_THREADS = 8


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


def ended_generation(store: Store, run_id: str) -> int:
    """Return the generation whose end is written down; 0 while none has ended."""
    try:
        content = store.read(run_path(run_id, SUMMARY_DOCUMENT))
    except FileNotFoundError:
        return 0
    return SummaryDocument.from_bytes(content, f"{run_id}/{SUMMARY_DOCUMENT}").generation


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
