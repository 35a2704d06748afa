"""What is in a store: its runs, and the generations of one."""

from concurrent.futures import ThreadPoolExecutor

from partwise.runs.committed import READ_THREADS
from partwise.runs.documents import RUN_DOCUMENT, RUNS, generation_number, is_run_id, run_path
from partwise.store.store import Store


def latest_generation(store: Store, run_id: str) -> int:
    """Return the newest generation of a run; 0 when none was begun."""
    names = store.list_folder(run_path(run_id, "generations"))
    return max(map(generation_number, names), default=0)


def list_runs(store: Store) -> list[str]:
    """Return the IDs of the runs in a store, sorted."""
    names = [name for name in store.list_folder(RUNS) if is_run_id(name)]
    documents = [run_path(name, RUN_DOCUMENT) for name in names]
    with ThreadPoolExecutor(READ_THREADS) as threads:
        there = threads.map(store.exists, documents)
    return [name for name, is_there in zip(names, there, strict=True) if is_there]
