"""Tables that other processes can have, and rows spooled into a file of nobody's name.

The file has no name from the start (`O_TMPFILE`), so nothing is left of it when the last process
that maps it has ended, however it ended. Other processes open it as /proc/<pid>/fd/<number>.
It has the layout of an unsorted shard: an IPC stream of rows whose dictionary columns are codes,
and then a stream without rows that has schema and dictionaries.
"""

import os
import pickle
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.context import get_spawning_popen
from typing import Any, SupportsIndex

import pyarrow as pa

from partwise.errors import PartwiseError, SourceError
from partwise.tables.dictionaries import (
    ColumnStorage,
    decode_batch,
    recode,
    same_dictionaries,
    settle_dictionaries,
)
from partwise.tables.ipc_streams import table_buffer

_SPOOLED_ROWS = 262_144


class NamelessFile:
    """A file without a name, which goes away when nobody has it any more."""

    def __init__(self) -> None:
        # Without a buffer: rows are written by the path, and none goes through this object.
        self._file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 (closed below)

    def __del__(self) -> None:
        # TemporaryFile may have raised.
        if hasattr(self, "_file"):
            self._file.close()

    @property
    def path(self) -> str:
        """Where other processes find the file, as long as this one holds it."""
        return f"/proc/{os.getpid()}/fd/{self._file.fileno()}"


@dataclass(frozen=True, slots=True)
class SpooledRows:
    """Some rows in a file without a name."""

    file: NamelessFile
    first: int = 0
    """Where the rows of the table begin in it."""


class PortableTable:
    """A table that can be sent to other processes without its neighbours in memory.

    Pickled for a process that is being spawned, such as a DataLoader's worker, it is the file in
    which its rows lie, to be mapped there; otherwise its own rows. (Arrow pickles the whole buffers
    of which a table is a slice.) `spooled` is where the rows lie in a file, if they do.
    """

    def __init__(self, table: pa.Table, spooled: SpooledRows | None = None) -> None:
        self.table = table
        self._spooled = spooled

    def select(self, names: Sequence[str]) -> "PortableTable":
        """The same rows with some columns."""
        return PortableTable(self.table.select(list(names)), self._spooled)

    def slice(self, start: int, rows: int) -> "PortableTable":
        """Some of the rows."""
        known = self._spooled
        part = None if known is None else SpooledRows(known.file, known.first + start)
        return PortableTable(self.table.slice(start, rows), part)

    def with_table(self, table: pa.Table) -> "PortableTable":
        """The same rows, as another table that holds them in other chunks or dictionaries."""
        return PortableTable(table, self._spooled)

    def __reduce_ex__(self, protocol: SupportsIndex) -> tuple[Any, ...]:
        if get_spawning_popen() is None:
            stream = table_buffer(self.table)
            # A PickleBuffer, which may travel beside the pickle without a copy, is of protocol 5.
            by_reference = protocol.__index__() >= 5
            return _read_table, (
                pickle.PickleBuffer(stream) if by_reference else stream.to_pybytes(),
            )
        if self._spooled is None:
            # Once for all workers, which are spawned one after the other.
            batches = self.table.to_batches(max_chunksize=_SPOOLED_ROWS)
            self._spooled = spool(batches, self.table.schema)
        names, rows = self.table.column_names, self.table.num_rows
        return _map_part, (self._spooled.file.path, names, self._spooled.first, rows)


def _read_table(stream: Any) -> PortableTable:
    return PortableTable(pa.ipc.open_stream(pa.py_buffer(stream)).read_all())


def _map_part(path: str, names: list[str], first: int, rows: int) -> PortableTable:
    return PortableTable(map_spooled(path).select(names).slice(first, rows))


def spool(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> SpooledRows:
    """Write rows into a file without a name in the folder for temporary files (`TMPDIR`).

    One batch is held at a time, and the distinct values of dictionary columns.
    """
    with _telling_of_room(tempfile.gettempdir()):
        file = NamelessFile()
        _write(file.path, batches, schema)
    return SpooledRows(file)


def write_spooled(path: str, batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> int:
    """Write rows to a file with a name, as `spool` does, and return how many there were."""
    with _telling_of_room(os.path.dirname(path)):
        return _write(path, batches, schema)


def _write(path: str, batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> int:
    storage = ColumnStorage(schema)
    rows = 0
    with pa.OSFile(path, "wb") as sink:
        with pa.ipc.new_stream(sink, storage.stored_schema) as writer:
            for batch in batches:
                writer.write_batch(storage.store(batch))
                rows += batch.num_rows
        # Behind the rows: only after the last one are all distinct values known.
        known = storage.dictionaries()
        with pa.ipc.new_stream(sink, known.schema) as writer:
            writer.write_batch(known)
    return rows


@contextmanager
def _telling_of_room(folder: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        # What reading the rows raised says itself what it is.
        if isinstance(error, PartwiseError):
            raise
        raise SourceError(
            f"Rows could not be spooled into {folder!r}: {error}; make room there, or name another "
            "folder in TMPDIR."
        ) from error


def map_spooled(path: str) -> pa.Table:
    """Map spooled rows into memory, without reading them."""
    return read_spooled(pa.memory_map(path))


def read_spooled(source: pa.NativeFile) -> pa.Table:
    """Return spooled rows; they stay where they are, if that is memory."""
    # One stream behind the other: reading all of the first leaves the file at the second.
    stored = pa.ipc.open_stream(source).read_all()
    own = pa.ipc.open_stream(source).read_next_batch()
    known = settle_dictionaries(own)
    batches = stored.to_batches()
    if not same_dictionaries(own, known):
        batches = [recode(batch, own, known) for batch in batches]
    shown = [decode_batch(batch, known) for batch in batches]
    return pa.Table.from_batches(shown, schema=known.schema)


class SpooledReader:
    """Reads parts of spooled rows from their memory-mapped file."""

    def __init__(self, path: str) -> None:
        self._table = map_spooled(path)

    def partition(self, start_row: int, stop_row: int) -> pa.Table:
        """The rows from one on to before another, without a copy."""
        return self._table.slice(start_row, stop_row - start_row)
