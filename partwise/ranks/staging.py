"""Making a source readable for the ranks of a gang: what only the driver or Dask has is written.

Fragments that ranks can read themselves are handed over as they are. Rows in the driver's memory,
of a query, or of a file on a disk that workers do not see are read once, by the driver; partitions
of a Dask DataFrame are computed once, each by a task. Both are written to files that ranks read.
"""

import hashlib
import os
import secrets
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from partwise.cluster_calls import cancel, is_cut_off, rejoin
from partwise.connector.spooling import map_spooled, read_spooled, write_spooled
from partwise.errors import IntegrityError
from partwise.ranks.rows import RowsPart, SelectedPart, SourceFragments
from partwise.shuffle.load import awaited, places_of
from partwise.shuffle.shared_folder import Medium, SharedFolder
from partwise.sources.descriptions import Source
from partwise.sources.fetching import fetched_ahead
from partwise.sources.fragments import Fragment, Selection
from partwise.store.store import Store

if TYPE_CHECKING:
    from distributed import Client, Future

_FILE_BYTES = 64 << 20
"""Of rows in Arrow memory: a rank reads whole files from the store."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedPart:
    """Rows that were written for the ranks."""

    path: str
    """A local path, or one in the store."""
    where: Medium
    store: Store
    rows: int
    sha256: str = ""
    """Of a file in the store: it travels by Dask, so whoever writes the store does not choose it.
    """

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Read its rows."""
        if self.where == "disk":
            return iter(map_spooled(self.path).to_batches())
        content = self.store.read(self.path)
        if hashlib.sha256(content).hexdigest() != self.sha256:
            raise IntegrityError(
                f"{self.path} in {self.store.url} is not what was written for this run's ranks: it "
                "was changed or damaged; find out who can write there, and resume."
            )
        return iter(read_spooled(pa.BufferReader(content)).to_batches())


@dataclass(frozen=True, slots=True, kw_only=True)
class _Staging:
    """Where the rows of a source are written; a value that pickles."""

    selection: Selection
    where: Medium
    directory: str
    """The driver's, which the workers see where the medium is a disk."""
    store: Store
    folder: str
    """In the store."""

    def __call__(self, fragments: Sequence[Fragment]) -> list[StagedPart]:
        """Read fragments once, and write their rows."""
        pieces = _Pieces(self.selection.batches(each) for each in fetched_ahead(fragments))
        return [self._write(piece) for piece in pieces]

    def _write(self, batches: Iterator[pa.RecordBatch]) -> StagedPart:
        name = f"rows-{secrets.token_hex(8)}"
        schema = self.selection.schema
        sha256 = ""
        if self.where == "disk":
            path = os.path.join(self.directory, name)
            rows = write_spooled(path, batches, schema)
        else:
            path = f"{self.folder}/{name}"
            with tempfile.TemporaryDirectory(prefix="staged-") as folder:
                local = os.path.join(folder, name)
                rows = write_spooled(local, batches, schema)
                content = Path(local).read_bytes()
            sha256 = hashlib.sha256(content).hexdigest()
            self.store.create(path, content)
        return StagedPart(path=path, where=self.where, store=self.store, rows=rows, sha256=sha256)


class _Pieces:
    """Iterates over iterators: each is the batches of one file, to be read before the next."""

    def __init__(self, streams: Iterator[Iterator[pa.RecordBatch]]) -> None:
        self._batches = (batch for stream in streams for batch in stream)
        # One batch ahead, so that no file is begun for which there are no rows.
        self._next = next(self._batches, None)

    def __iter__(self) -> Iterator[Iterator[pa.RecordBatch]]:
        while self._next is not None:
            yield self._piece()

    def _piece(self) -> Iterator[pa.RecordBatch]:
        size = 0
        while self._next is not None and size < _FILE_BYTES:
            size += self._next.nbytes
            yield self._next
            self._next = next(self._batches, None)


def rank_source(
    source: Source,
    shared_folder: SharedFolder,
    client: "Client",
    name: str = "train",
    check: Callable[[], None] = lambda: None,
) -> SourceFragments:
    """Describe a source to the ranks of a gang; called by the driver.

    The source is narrowed to the columns that are looked at. `shared_folder`, for rows that ranks
    cannot read where they are, has to stay until the gang has ended. `check` is called now and
    then, and raises where the cluster is gone.

    Returns:
        A value that pickles.

    Raises:
        SourceError: Rows that have to be written cannot be.
    """
    from dask.delayed import delayed

    staging = _Staging(
        selection=source.selection,
        where=shared_folder.where,
        directory=str(shared_folder.directory),
        store=shared_folder.store,
        folder=shared_folder.folder,
    )
    fragments = source.fragments()

    def compute(places: Iterable[int]) -> "dict[int, Future[list[StagedPart]]]":
        return {
            place: client.compute(
                delayed(staging, pure=False)([fragments[place].task])  # type: ignore[attr-defined]
            )
            for place in places
        }

    # All are begun at once: while this process writes and waits, the cluster goes on with them.
    tasks = compute(place for place, each in enumerate(fragments) if each.place == "cluster")
    parts: list[RowsPart] = []
    try:
        for place, fragment in enumerate(fragments):
            if fragment.place in places_of(shared_folder.where):
                parts.append(SelectedPart(fragment=fragment, selection=source.selection))
            elif fragment.place != "cluster":
                parts += staging([fragment])
            else:
                while (written := _await(tasks[place], client, check)) is None:
                    # Those that are left are lost too; what they have written goes with the folder.
                    tasks |= compute(other for other in tasks if other >= place)
                parts += written
    finally:
        # Where it was refused or stopped on the way, nobody wants what the others would write.
        if tasks:
            cancel(client, tasks.values())
    conditions = source.selection.conditions
    return SourceFragments(
        name=name,
        schema=source.schema,
        parts=tuple(parts),
        filter_text=str(conditions) if conditions else "",
    )


def _await(
    task: "Future[list[StagedPart]]", client: "Client", check: Callable[[], None]
) -> list[StagedPart] | None:
    """Return what a task has written; None: it was lost with the connection to the scheduler."""
    try:
        return awaited(task, check)
    except Exception as error:
        if not is_cut_off(error):
            raise
        rejoin(client, check)
        return None
