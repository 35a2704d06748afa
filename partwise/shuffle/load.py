"""Dividing a source over shards: as Dask tasks over its fragments, or here where only we see them.

What a worker reads becomes a part file. The driver reads no rows but those of data in its memory.
"""

import contextlib
import os
import pickle
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import CancelledError
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import cloudpickle
import pyarrow as pa

from partwise.cluster_calls import (
    Ends,
    await_one,
    cancel,
    is_cut_off,
    known_workers,
    rejoin,
    result_of,
    this_worker,
)
from partwise.errors import ClusterError, PartwiseError, SignatureError, SourceError, StoreError
from partwise.formatting import some_of
from partwise.shuffle.part_file import is_part_whole, lay_in_shard_order, read_index, read_part_keys
from partwise.shuffle.plan import (
    IndexedPart,
    KeyedRows,
    ShardedRows,
    keyed_fragments,
    merge_parts,
)
from partwise.shuffle.shard_cache import ShardCache, WrittenPart, is_disk_full
from partwise.shuffle.shared_folder import Medium, SharedFolder
from partwise.shuffle.write import Division, write_fragments
from partwise.sources.descriptions import Source
from partwise.sources.fragments import Fragment, Place
from partwise.store.store import Store

if TYPE_CHECKING:
    from distributed import Client, Future

T = TypeVar("T")

LARGEST_PART_BYTES = 512 << 20
# Of a store: a part is created there by one request, with all of its bytes in memory.
LARGEST_OBJECT_BYTES = 128 << 20
SMALLEST_PART_BYTES = 32 << 20
PARTS_PER_SLOT = 4
REPORT_AFTER_S = 10.0
"""While parts are divided: between two lines of the log."""
LOOK_S = 1.0
"""While parts are divided: between two looks at the cluster."""
_SHOWN = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class PartWork:
    """What whoever reads some fragments has to know."""

    number: int
    division: Division
    positions: tuple[int, ...]
    """The numbers of the fragments in the source."""
    first_row: int | None
    """How many rows stand before in the source; None where nobody knows."""
    where: Medium
    store: Store
    folder: str
    threads: int
    """How many Arrow may read with, at least."""


def places_of(where: Medium) -> tuple[Place, ...]:
    """Return where a fragment has to be for workers to read it as it is."""
    return ("anywhere", "disk") if where == "disk" else ("anywhere",)


def write_part(work: PartWork, fragments: Sequence[Fragment]) -> WrittenPart:
    """Read fragments, and write a part."""
    # Random, since Dask begins the work of a silent worker again, which may still write its own.
    name = f"{work.number:05d}-{os.urandom(4).hex()}.part"
    path = f"{work.folder}/{name}"
    numbered = list(zip(work.positions, fragments, strict=True))
    try:
        if work.where == "disk":
            # The folder is the driver's: once that has gone, this part is not wanted any more.
            local = work.store.local_path(path) or path
            with _arrow_threads(work.threads):
                write_fragments(work.division, numbered, local, work.first_row)
            return WrittenPart(path=path)
        with tempfile.TemporaryDirectory(prefix="parts-", dir=_worker_folder()) as folder:
            raw, laid = os.path.join(folder, "raw"), os.path.join(folder, "laid")
            write_fragments(work.division, numbered, raw, work.first_row)
            sha256 = lay_in_shard_order(raw, laid)
            os.unlink(raw)
            work.store.create(path, Path(laid).read_bytes())
            return WrittenPart(path=path, sha256=sha256)
    except OSError as error:
        if isinstance(error, PartwiseError) or not is_disk_full(error):
            raise
        raise SourceError(
            "No room is left on the disk for the rows that are divided into shards: make some, or "
            "set PARTWISE_SCRATCH and Dask's temporary-directory to a larger disk."
        ) from error


def _write_packed_part(packed: bytes) -> WrittenPart:
    return write_part(*pickle.loads(packed))  # noqa: S301 (the driver's own)


@contextlib.contextmanager
def _arrow_threads(least: int) -> Iterator[None]:
    before = pa.cpu_count()
    pa.set_cpu_count(max(least, before))
    try:
        yield
    finally:
        pa.set_cpu_count(before)


def _worker_folder() -> str | None:
    try:
        return str(this_worker().local_directory)
    except ValueError:
        return None


def load_shards(
    source: Source,
    division: Division,
    client: "Client",
    cache: ShardCache,
    shared_folder: SharedFolder,
    log: Callable[[str], None],
    check: Callable[[], None] = lambda: None,
) -> ShardedRows:
    """Divide a source over shards, or find that an earlier run did.

    `check` is called now and then, and raises where the cluster is gone.
    """
    places = places_of(shared_folder.where)
    names = [column.name for column in division.key_columns]
    keyed, others, dropped = keyed_fragments(source.fragments(names), division, places)
    parts = known_parts(cache, client, log, check)
    written: list[WrittenPart] = []
    if parts is None:
        written = _Writing(division, client, cache, places, keyed, log, check).run(others)
        parts = [open_part(cache, part) for part in written]
    dictionaries = str(shared_folder.directory / "dictionaries")
    sharded = merge_parts(source, parts, keyed, division, dropped, dictionaries)
    if written:
        # After the merge: parts of rows that it refuses are not kept for later runs.
        cache.complete(written)
    staged = shared_folder.hand_over(dictionaries)
    shards = tuple(
        replace(shard, dictionaries=staged.path, dictionaries_sha256=staged.sha256)
        for shard in sharded.shards
    )
    return replace(sharded, shards=shards)


def known_parts(
    cache: ShardCache, client: "Client", log: Callable[[str], None], check: Callable[[], None]
) -> list[IndexedPart] | None:
    """Return the parts that an earlier run wrote, if they are whole; None: there are none."""
    try:
        known = cache.known_parts()
    except SignatureError as error:
        log(str(error))
        return None
    if not known:
        return None
    try:
        parts = [open_part(cache, part) for part in known]
        for part in parts:
            # The keys of all are merged when it is too late to read the rows again.
            read_part_keys(part.read, part.index, part.path)
    except (SourceError, StoreError, FileNotFoundError):
        parts = []
    # A store looks after what it keeps; a scratch disk may not.
    checked = [part.path for part in parts] if cache.where == "disk" else []
    if parts and _all_whole(client, checked, check):
        log("The rows are those of an earlier run: its shards are used again.")
        return parts
    log("The shards of an earlier run on these rows are damaged: the rows are read again.")
    cache.forget()
    return None


def _all_whole(client: "Client", paths: Sequence[str], check: Callable[[], None]) -> bool:
    while True:
        # Else Dask might answer with what it found before a file was damaged.
        tasks = client.map(is_part_whole, paths, pure=False)
        try:
            return all(awaited(task, check) for task in tasks)
        except Exception as error:
            if not is_cut_off(error):
                raise
            rejoin(client, check)


def awaited(task: "Future[T]", check: Callable[[], None]) -> T:
    """Return what a task returns; `check` is called now and then, and raises to give it up."""
    while not task.done():
        await_one(task, LOOK_S)
        check()
    return result_of(task)


def open_part(cache: ShardCache, part: WrittenPart) -> IndexedPart:
    """Read the index of a part; SourceError where it is not whole, or not the one written."""
    store, path = cache.store, part.path
    read = partial(store.read_range, path)
    index = read_index(read, store.size(path), path, part.sha256)
    where = store.local_path(path) if cache.where == "disk" else path
    return IndexedPart(path=where or path, index=index, read=read)


@dataclass
class _Writing:
    """The part files of one source, in the making."""

    division: Division
    client: "Client"
    cache: ShardCache
    places: Collection[Place]
    keyed: Sequence[KeyedRows]
    log: Callable[[str], None]
    check: Callable[[], None]

    def __post_init__(self) -> None:
        workers = known_workers(self.client).values()
        self._slots = max(1, sum(worker["nthreads"] for worker in workers))
        # Else what stands before a fragment in the source is not what was read before it.
        self._counts_hold = not self.keyed and self.division.selection.passes_all

    def run(self, fragments: Sequence[tuple[int, Fragment]]) -> list[WrittenPart]:
        """Read all fragments; returns the parts, in the order of the source."""
        groups = self._groups(fragments)
        works = self._works(groups)
        parts: dict[int, WrittenPart] = {}
        pending: dict[Future[WrittenPart], int] = {}
        here: list[int] = []
        if self.cache.where == "disk":
            os.makedirs(self.cache.store.local_path(self.cache.folder) or "", exist_ok=True)
        try:
            for number, group in enumerate(groups):
                place = group[0][1].place
                if place == "cluster" or place in self.places:
                    pending[self._submit(works[number], group)] = number
                else:
                    here.append(number)
            # After the tasks are sent, so that workers read theirs meanwhile. Pyarrow asks for
            # pandas where it first makes an array: a third of a second, which is free here.
            import pandas  # noqa: F401

            for number in here:
                parts[number] = write_part(works[number], [f for _, f in groups[number]])
            self._collect(pending, parts, groups, lambda n: self._submit(works[n], groups[n]))
        finally:
            cancel(self.client, pending)
            pending.clear()
        return [parts[number] for number in range(len(groups))]

    def _groups(
        self, fragments: Sequence[tuple[int, Fragment]]
    ) -> list[list[tuple[int, Fragment]]]:
        """Divide fragments into what is read together: neighbours, of one place, of a fair size."""
        total = sum(fragment.size_bytes for _, fragment in fragments)
        most = LARGEST_PART_BYTES if "disk" in self.places else LARGEST_OBJECT_BYTES
        wanted = min(most, max(SMALLEST_PART_BYTES, total // (PARTS_PER_SLOT * self._slots)))
        groups: list[list[tuple[int, Fragment]]] = []
        size = 0
        for position, fragment in fragments:
            last = groups[-1][-1][1] if groups else None
            if (
                last is None
                or last.place != fragment.place
                # A partition of a Dask frame: several would first be moved to one worker.
                or fragment.place == "cluster"
                or size + fragment.size_bytes > wanted
            ):
                groups.append([])
                size = 0
            groups[-1].append((position, fragment))
            size += fragment.size_bytes
        return groups

    def _works(self, groups: Sequence[Sequence[tuple[int, Fragment]]]) -> list[PartWork]:
        # The others of this machine have nothing to read.
        alone = len(groups) == 1 and self.cache.where == "disk"
        works = []
        first_row = 0 if self._counts_hold else None
        for number, group in enumerate(groups):
            work = PartWork(
                number=number,
                division=self.division,
                positions=tuple(position for position, _ in group),
                first_row=first_row,
                where=self.cache.where,
                store=self.cache.store,
                folder=self.cache.folder,
                threads=self._slots if alone else 1,
            )
            works.append(work)
            counts = [fragment.rows for _, fragment in group]
            if first_row is not None:
                known = None not in counts
                first_row = first_row + sum(rows or 0 for rows in counts) if known else None
        return works

    def _submit(
        self, work: PartWork, group: Sequence[tuple[int, Fragment]]
    ) -> "Future[WrittenPart]":
        future: Future[WrittenPart]
        if group[0][1].place == "cluster":
            from dask.delayed import delayed

            tasks = [fragment.task for _, fragment in group]  # type: ignore[attr-defined]
            future = self.client.compute(delayed(write_part, pure=False)(work, tasks))
        else:
            fragments = [fragment for _, fragment in group]
            # As bytes: Dask would pickle the schemas here, and read and pickle them once more in
            # the scheduler. Of 2,000 columns that took 0.1 s.
            packed = cloudpickle.dumps((work, fragments))  # type: ignore[no-untyped-call]
            future = self.client.submit(_write_packed_part, packed, pure=False)
        return future

    def _collect(
        self,
        pending: dict["Future[WrittenPart]", int],
        parts: dict[int, WrittenPart],
        groups: Sequence[Sequence[tuple[int, Fragment]]],
        submit: Callable[[int], "Future[WrittenPart]"],
    ) -> None:
        """Wait for parts; of several that fail, the first in the source is reported.

        `submit`: begins one again that was lost with the connection to the scheduler.
        """
        total, reported = len(pending), time.monotonic()
        failures: dict[int, BaseException] = {}
        ends: Ends[WrittenPart] = Ends()
        for future in pending:
            ends.follow(future)
        while pending:
            for future in ends.next(LOOK_S):
                number = pending.pop(future)
                outcome = _outcome_of(future)
                if isinstance(outcome, WrittenPart):
                    parts[number] = outcome
                elif is_cut_off(outcome):
                    rejoin(self.client, self._check_cluster)
                    future = submit(number)
                    pending[future] = number
                    ends.follow(future)
                else:
                    failures[number] = outcome
            if failures:
                break
            if pending and time.monotonic() - reported > REPORT_AFTER_S:
                reported = time.monotonic()
                self.log(f"divided {total - len(pending)} of {total} parts of the source")
            self._check_cluster()
        if failures:
            first = min(failures)
            _raise(failures[first], [str(fragment) for _, fragment in groups[first]])

    def _check_cluster(self) -> None:
        # Of one that connects again `check` says for how long: its tasks are told a moment later.
        if self.client.status not in ("running", "connecting"):
            raise ClusterError(
                f"The connection to the Dask scheduler was lost ({self.client.status}) while the "
                "rows were divided into shards: begin the run again when the cluster is back."
            )
        self.check()


def _outcome_of(future: "Future[WrittenPart]") -> WrittenPart | BaseException:
    """Return the part that a task wrote, or what made it fail or be cancelled."""
    try:
        part: WrittenPart = result_of(future)
        return part
    except (Exception, CancelledError) as error:
        return error


def _raise(error: BaseException, read: Sequence[str]) -> None:
    if isinstance(error, PartwiseError):
        raise error
    if isinstance(error, CancelledError):
        raise ClusterError(
            "Dividing the rows into shards was cancelled by the cluster. A Dask DataFrame that is "
            "persisted can be read on its own cluster only: pass that scheduler's address as "
            "cluster=; else begin the run again."
        ) from error
    reason = str(error).rstrip(". \n")
    names = list(dict.fromkeys(read))
    raise ClusterError(
        f"Dividing the rows into shards failed on a worker that read {some_of(names, _SHOWN)}: "
        f"{type(error).__name__}: {reason}. Look into the log of the Dask workers, give "
        "them more memory if one was killed, and begin the run again."
    ) from error
