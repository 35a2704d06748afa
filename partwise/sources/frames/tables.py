"""Data in memory as rows: pyarrow tables, pandas and polars frames, and what turns into them."""

import hashlib
import re
import sys
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from partwise.errors import ColumnError, SourceError
from partwise.sources.fragments import Fragment, LocalFragment, OpaqueRows
from partwise.tables.column_names import check_unique_names
from partwise.tables.filters import Conditions
from partwise.tables.mixed_times import check_times
from partwise.tables.schemas import cast_batch, common_schema

_BATCH_ROWS = 262_144
ACCEPTED = (
    "a path, glob, directory or URL of Parquet, CSV, JSON lines, ORC or Arrow IPC files, "
    "Files(...), a Query(...), dataset://NAME, a pyarrow table, dataset or stream, a pandas, "
    "polars or Dask frame, a DuckDB relation, anything with __arrow_c_stream__, or a list of these"
)
_NOT_FROM_POLARS = {
    "Object": ".map_elements(str, return_dtype=pl.String)",
    "Int128": ".cast(pl.String)",
    "UInt128": ".cast(pl.String)",
}
"""Types of polars, and what makes text of a column of them."""


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


class _HashSink:
    """A file that keeps only the SHA-256 of what is written."""

    def __init__(self) -> None:
        self.digest = hashlib.sha256()
        self.closed = False

    def write(self, data: Any) -> int:
        self.digest.update(data)
        return len(data)

    def flush(self) -> None:
        pass

    def close(self) -> None:
        self.closed = True


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
    pandas = sys.modules.get("pandas")
    if pandas is not None and isinstance(data, pandas.DataFrame):
        return pandas_table(data)
    if isinstance(data, pa.Table):
        return data
    if isinstance(data, pa.RecordBatch):
        return pa.Table.from_batches([data])
    if isinstance(data, pa.RecordBatchReader):
        return data.read_all()
    if hasattr(data, "__arrow_c_stream__"):
        polars = sys.modules.get("polars")
        if polars is not None and isinstance(data, polars.DataFrame):
            check_polars_types(data.schema)
        try:
            return pa.table(data)
        except (pa.ArrowException, TypeError, ValueError) as exc:
            raise SourceError(
                f"The {type(data).__name__} cannot be read through Arrow: {exc}."
            ) from exc
    raise no_source(data)


def check_polars_types(kinds: Any) -> None:
    """Refuse columns of which polars gives Arrow something else than their values.

    Of Python objects it gives the addresses, and of integers of 128 bits a type that Arrow lacks.
    """
    for name, kind in kinds.items():
        if unfit := next((w for w in _NOT_FROM_POLARS if re.search(rf"\b{w}\b", str(kind))), None):
            raise ColumnError(
                f"Column {name!r} of the polars frame is of type {kind}, and Arrow has no form "
                f"for {unfit}: cast it, such as frame.with_columns(pl.col({name!r})"
                f"{_NOT_FROM_POLARS[unfit]})."
            )


def no_source(data: Any) -> SourceError:
    """The error for data of a type that is not a source."""
    return SourceError(
        f"Data of type {type(data).__module__}.{type(data).__qualname__} is not a source: "
        f"give {ACCEPTED}."
    )


def check_column_names(frame: Any) -> None:
    """Raise `ColumnError` where the name of a column is not text, or stands there twice."""
    for name in frame.columns:
        if not isinstance(name, str):
            raise ColumnError(
                f"A column of the frame is named {name!r} ({type(name).__name__}): "
                "rename it to a string."
            )
    check_unique_names(list(frame.columns))


def pandas_table(frame: Any) -> pa.Table:
    """A pandas frame as a table, with its index if that has a name of its own."""
    check_column_names(frame)
    # One that keeps the name of a column, as set_index(name, drop=False) has it, says nothing new.
    is_new = [name is not None and name not in frame.columns for name in frame.index.names]
    keep_index = any(is_new)
    if keep_index and not all(is_new):
        levels = [level for level, new in enumerate(is_new) if not new]
        frame = frame.reset_index(level=levels, drop=True)
    return arrow_of_frame(frame, keep_index=keep_index)


def arrow_of_frame(frame: Any, *, keep_index: bool) -> pa.Table:
    """Return a pandas frame as a table."""
    frame = _dense(frame)
    try:
        table = pa.Table.from_pandas(frame, preserve_index=keep_index)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as exc:
        raise _unfit_column(frame, exc) from exc
    check_times(frame, table)
    return table


def _dense(frame: Any) -> Any:
    """A frame with all values of sparse columns, and bytes in this machine's order."""
    kinds = {}
    for name, kind in frame.dtypes.items():
        # pyarrow 26 refuses columns of both kinds.
        if type(kind).__name__ == "SparseDtype":
            kinds[name] = kind.subtype
        elif getattr(kind, "byteorder", "=") == ">":
            kinds[name] = kind.newbyteorder("=")
    return frame.astype(kinds) if kinds else frame


def _unfit_column(frame: Any, cause: Exception) -> ColumnError:
    """Name the column that does not convert, and what it holds."""
    for name in frame.columns:
        try:
            pa.array(frame[name], from_pandas=True)
        except UnicodeEncodeError as exc:
            return ColumnError(
                f"Column {name!r} of the frame holds {exc.object[:20]!r}, which is not valid "
                "Unicode (a lone surrogate): repair it, or encode the column to bytes."
            )
        except (pa.ArrowException, TypeError, ValueError, OverflowError):
            kinds = sorted({type(value).__name__ for value in frame[name]})
            return ColumnError(
                f"Column {name!r} of the frame holds values of types {', '.join(kinds[:5])}, which "
                "have no common Arrow type: cast it to one type."
            )
    reason = " ".join(str(cause).split()).rstrip(".")
    return ColumnError(
        f"The frame does not convert to Arrow: {reason}. Cast columns and index to plain types, "
        "or give a table."
    )
