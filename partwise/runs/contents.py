"""What the store holds of runs: which runs, their generations, ledger segments and files.

All of it is asked of the store anew: a run may be written by other processes meanwhile.
"""

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from partwise.errors import NewerFormatError, RunFormatError
from partwise.runs.documents import (
    BUNDLES,
    DAMAGED,
    OUTPUT_FOLDERS,
    RUN_DOCUMENT,
    RUNS,
    RunKind,
    ended_number,
    generation_number,
    generation_of,
    is_run_id,
    run_path,
)
from partwise.runs.ledger import merge, read_table, with_all_columns
from partwise.store.store import Store

READ_THREADS = 8


def list_runs(store: Store) -> list[str]:
    """Return the IDs of the runs in a store, sorted."""
    names = [name for name in store.list_folder(RUNS) if is_run_id(name)]
    documents = [run_path(name, RUN_DOCUMENT) for name in names]
    with ThreadPoolExecutor(READ_THREADS) as threads:
        there = threads.map(store.exists, documents)
    return [name for name, is_there in zip(names, there, strict=True) if is_there]


@dataclass(frozen=True, slots=True, kw_only=True)
class Generations:
    """Which generations a run has, by the names of their documents."""

    begun: int
    """The newest; 0: none was begun."""
    ended: tuple[int, ...]
    """Those whose end is written down, ascending."""


def list_generations(store: Store, run_id: str) -> Generations:
    """Return which generations of a run were begun, and which have ended."""
    names = store.list_folder(run_path(run_id, "generations"))
    return Generations(
        begun=max(map(generation_number, names), default=0),
        ended=tuple(sorted(filter(None, map(ended_number, names)))),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Segments:
    """Ledger segments, as far as they can be read."""

    tables: dict[str, pa.Table] = field(default_factory=dict)
    """By path; a segment that was deleted meanwhile is not among them."""
    damaged: dict[str, str] = field(default_factory=dict)
    """Why a segment cannot be read, by path."""

    def merge(self, generations: Iterable[int] | None = None) -> pa.Table | None:
        """Return one row per partition, sorted by key; None where there is none.

        Args:
            generations: Those whose segments count; None: all.
        """
        allowed = None if generations is None else set(generations)
        paths = [p for p in self.tables if allowed is None or generation_of(p) in allowed]
        return merge([self.tables[path] for path in paths], map(generation_of, paths))


def ledger_segments(store: Store, run_id: str, shard: int | None = None) -> list[str]:
    """Return the paths of a run's ledger segments, of all generations."""
    name = "ledger/" if shard is None else f"ledger/{shard:05d}-"
    return store.list(run_path(run_id, name))


def read_segments(store: Store, paths: Iterable[str]) -> Segments:
    """Return the ledger rows in these segments, and which of them are damaged.

    Raises:
        NewerFormatError: A newer release wrote one.
    """

    def read(path: str) -> pa.Table | str | None:
        try:
            return with_all_columns(read_table(store.read(path), f"{store.url}/{path}"))
        except FileNotFoundError:
            # Since it was listed: a garbage collection, or a resume that set it aside.
            return None
        except NewerFormatError:
            raise
        except RunFormatError as error:
            return str(error)

    listed = list(paths)
    found = Segments()
    with ThreadPoolExecutor(READ_THREADS) as threads:
        for path, content in zip(listed, threads.map(read, listed), strict=True):
            if isinstance(content, str):
                found.damaged[path] = content
            elif content is not None:
                found.tables[path] = content
    return found


def read_generation(store: Store, run_id: str, generation: int) -> Segments:
    """Return the segments that a generation has committed."""
    paths = [p for p in ledger_segments(store, run_id) if generation_of(p) == generation]
    return read_segments(store, paths)


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """What is committed of a shard, a row for each partition, sorted by key."""

    current: pa.Table | None
    """By the generation at work; None: nothing yet."""
    earlier: pa.Table | None
    """By earlier generations that count."""
    damaged: tuple[str, ...]
    """A sentence for each segment that could not be read, and was set aside."""


def read_committed(
    store: Store, run_id: str, shard: int, generation: int, compatible: Iterable[int]
) -> Committed:
    """Return what is committed of a shard, for a process that works on it.

    A segment that cannot be read is moved to the folder `damaged` of the run: its partitions count
    as not done, and whoever reads the run next does not meet it again.

    Args:
        store: Where the run is.
        run_id: The run.
        shard: The number of the shard.
        generation: The current generation.
        compatible: Earlier generations that count.

    Raises:
        NewerFormatError: A newer release wrote a segment.
    """
    wanted = {generation, *compatible}
    paths = [p for p in ledger_segments(store, run_id, shard) if generation_of(p) in wanted]
    segments = read_segments(store, paths)
    sentences = []
    for path, reason in segments.damaged.items():
        aside = run_path(run_id, DAMAGED, path.rpartition("/")[2])
        store.move(path, aside)
        sentences.append(
            f"{reason.rstrip('.')}. It was set aside as {aside}, and its partitions run again."
        )
    return Committed(
        current=segments.merge([generation]),
        earlier=segments.merge(wanted - {generation}),
        damaged=tuple(sentences),
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
