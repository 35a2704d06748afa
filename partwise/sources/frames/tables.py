"""Data in memory as rows: pyarrow tables, pandas and polars frames, and what turns into them."""

import hashlib
import io
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from partwise.errors import SourceError
from partwise.sources.fragments import Fragment, LocalFragment, OpaqueRows
from partwise.tables.column_names import check_unique_names
from partwise.tables.filters import Conditions
from partwise.tables.frames import arrow_table
from partwise.tables.schemas import cast_batch, common_schema

_BATCH_ROWS = 262_144
ACCEPTED = (
    "a path, glob, directory or URL of Parquet, CSV, JSON lines, ORC or Arrow IPC files, "
    "Files(...), a Query(...), dataset://NAME, a pyarrow table, dataset or stream, a pandas, "
    "polars or Dask frame, a DuckDB relation, anything with __arrow_c_stream__, or a list of these"
)


class TableRows(OpaqueRows):
    """The rows of a table in memory."""

    def __init__(self, table: pa.Table) -> None:
        self.table = table
        self.schema = table.schema
        self.rows = int(table.num_rows)

    def size_bytes(self, names: Sequence[str]) -> int:
        """Their size in memory."""
        return int(self.table.select(list(names)).nbytes)

    def identity(self) -> bytes:
        """The SHA-256 of the rows."""
        sink = _HashSink()
        with pa.ipc.new_stream(pa.PythonFile(sink, "w"), self.table.schema) as writer:
            writer.write_table(self.table, max_chunksize=_BATCH_ROWS)
        return sink.digest.digest()

    def fragments(
        self,
        names: Sequence[str],
        conditions: Conditions | None,  # noqa: ARG002 (the caller applies them)
        keys: Sequence[str] = (),  # noqa: ARG002 (nothing is known of them)
    ) -> list[Fragment]:
        """The table as one part."""
        table = self.table.select(list(names))
        return [
            LocalFragment(
                stream=lambda: iter(table.to_batches(max_chunksize=_BATCH_ROWS)),
                rows=self.rows,
                size_bytes=int(table.nbytes),
            )
        ]


class _HashSink(io.RawIOBase):
    """A file that keeps only the SHA-256 of what is written."""

    def __init__(self) -> None:
        self.digest = hashlib.sha256()

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self.digest.update(data)
        return len(data)


def concatenated(tables: list[pa.Table]) -> pa.Table:
    """Join tables into one with the columns of the first, of types to which those of all widen."""
    named = [(table.schema, f"item {index} of the list") for index, table in enumerate(tables)]
    for schema, _ in named:
        check_unique_names(schema.names)
    schema = common_schema(named)
    batches = [
        cast_batch(batch, schema, {}, name)
        for table, (_, name) in zip(tables, named, strict=True)
        for batch in table.to_batches()
    ]
    return pa.Table.from_batches(batches, schema=schema)


def table_of(data: Any) -> pa.Table:
    """Data in memory as a table; `SourceError` or `ColumnError` where it cannot be one."""
    if (table := arrow_table(data)) is None:
        raise SourceError(
            f"Data of type {type(data).__module__}.{type(data).__qualname__} is not a source: "
            f"give {ACCEPTED}."
        )
    return table
