"""Where rows come from: files, frames and tables as streams of Arrow batches."""

import hashlib
import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import pyarrow as pa

from partwise.tasks.data.descriptions import Source, SourceDescription
from partwise.tasks.data.discovery import absolute_path, find_files
from partwise.tasks.data.files import FileRows
from partwise.tasks.data.filters import Conditions, Filter, filter_columns, normalize_filter
from partwise.tasks.data.fragments import Fragment, LocalFragment, Rows, Selection, is_known
from partwise.tasks.data.key_classes import check_unique_names, names_in_words
from partwise.tasks.data.query import Query, QueryRows
from partwise.tasks.data.schemas import cast_batch, common_schema
from partwise.tasks.errors import ColumnError, SourceError

__all__ = [
    "Filter",
    "Source",
    "SourceDescription",
    "data_of_recipe",
    "open_source",
    "reopen_source",
    "table_of",
]

_BATCH_ROWS = 262_144
_ACCEPTED = (
    "a path, glob, directory or URL of Parquet, CSV or Arrow IPC files, a pyarrow table, a pandas "
    "or polars frame, anything with __arrow_c_stream__, or a list of these"
)


class _TableRows:
    """The rows of a table in memory."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table
        self.schema = table.schema
        self.rows = int(table.num_rows)

    def size_bytes(self, names: Sequence[str]) -> int:
        return int(self._table.select(list(names)).nbytes)

    def identity(self) -> bytes:
        sink = _HashSink()
        with pa.ipc.new_stream(pa.PythonFile(sink, "w"), self._table.schema) as writer:
            writer.write_table(self._table, max_chunksize=_BATCH_ROWS)
        return sink.digest.digest()

    def recipe(self) -> dict[str, Any] | None:
        return None

    def fragments(
        self,
        names: Sequence[str],
        conditions: Conditions | None,  # noqa: ARG002 (the caller applies them)
        keys: Sequence[str] = (),  # noqa: ARG002 (nothing is known of them)
    ) -> list[Fragment]:
        table = self._table.select(list(names))
        whole = LocalFragment(
            stream=lambda: iter(table.to_batches(max_chunksize=_BATCH_ROWS)),
            rows=self.rows,
            size_bytes=int(table.nbytes),
        )
        return [whole]


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


class _SelectedSource:
    """Some columns of some rows: a `Source`."""

    def __init__(self, rows: Rows, columns: Sequence[str] | None, conditions: Any) -> None:
        self._rows = rows
        self._columns = None if columns is None else list(columns)
        names = list(rows.schema.names if columns is None else columns)
        self.selection = Selection.of(rows.schema, names, conditions)

    @property
    def schema(self) -> pa.Schema:
        return self.selection.schema

    def fragments(self, keys: Sequence[str] = ()) -> Sequence[Fragment]:
        read = self.selection.read_schema.names
        return self._rows.fragments(read, self.selection.conditions, keys)

    def batches(self) -> Iterator[pa.RecordBatch]:
        none = True
        for fragment in self.fragments():
            for batch in self.selection.batches(fragment):
                none = False
                yield batch
        if none:
            self.refuse_empty()

    def refuse_empty(self) -> None:
        filter_ = self.selection.conditions
        if filter_ is not None:
            rows = "rows" if self._rows.rows is None else f"{self._rows.rows} rows"
            raise SourceError(f"The filter {filter_} leaves none of the {rows}: loosen it.")

    def description(self) -> SourceDescription:
        return self._description

    @cached_property
    def _description(self) -> SourceDescription:
        filter_ = self.selection.conditions
        chosen = {"columns": self._columns, "filter": filter_}
        identity = self._rows.identity()
        digest = hashlib.sha256(identity)
        digest.update(json.dumps(chosen, sort_keys=True).encode())
        recipe = self._rows.recipe()
        return SourceDescription(
            fingerprint=digest.hexdigest(),
            recurs=is_known(identity),
            rows=None if filter_ else self._rows.rows,
            size_bytes=self._rows.size_bytes(self.schema.names),
            recipe=None if recipe is None else {**recipe, **chosen},
        )


def open_source(
    data: Any,
    *,
    columns: Sequence[str] | None = None,
    filter: Filter | None = None,  # noqa: A002
) -> Source:
    """Open data as a source of Arrow batches; heads and footers are read, no rows of files.

    Args:
        data: A path, glob, directory or URL (s3, gs, abfs) of Parquet, CSV (also .csv.gz) or Arrow
            IPC files, a pyarrow table, a pandas or polars frame, anything with
            `__arrow_c_stream__`, or a list of paths or of frames with one schema. Files of a
            directory are read in the order of their paths; `key=value` directories are columns.
            A named index of a pandas frame is kept, one without a name is not.
        columns: The columns to read, None for all.
        filter: Conditions as in pyarrow.parquet: `[("price", ">", 0), ...]` must all hold; a list
            of such lists: one of them must hold. Dates and times may be ISO text.

    Returns:
        The source, which can be read more than once.

    Raises:
        SourceError: There is nothing to read, or it cannot be read.
        ColumnError: A column is missing, stands there twice, or holds values of mixed types.
        InputError: The filter is malformed.

    Example:
        >>> source = open_source("sales/*.parquet", filter=[("date", "<", "2016-01-01")])
        >>> source.description().rows
    """
    rows = _rows_of(data)
    if columns is None:
        columns = _default_columns(rows)
    check_unique_names(rows.schema.names)
    conditions = normalize_filter(filter)
    if columns is not None:
        check_unique_names(columns)
    for what, names in (("columns names", columns or []), ("The filter names", None)):
        for name in filter_columns(conditions) if names is None else names:
            if name not in rows.schema.names:
                raise ColumnError(
                    f"{what} column {name!r}, which the source does not have: "
                    f"its columns are {names_in_words(rows.schema.names)}."
                )
    if rows.rows == 0:
        raise SourceError("The source has no rows: there is nothing to partition.")
    source = _SelectedSource(rows, columns, conditions)
    if conditions:
        # A value that does not compare is reported now, not after a part was read.
        source.selection.check_filter()
    return source


def reopen_source(recipe: Mapping[str, Any]) -> Source:
    """Open a source again from its description's recipe, also in another process.

    Args:
        recipe: `SourceDescription.recipe`, as it was or read back from JSON.

    Raises:
        SourceError: The files are no longer there.
    """
    data = data_of_recipe(recipe)
    return open_source(data, columns=recipe["columns"], filter=recipe["filter"])


def data_of_recipe(recipe: Mapping[str, Any]) -> Any:
    """What `open_source` was given, from the recipe of the source; a block's name for a block."""
    if "query" in recipe:
        return Query(**recipe["query"])
    return recipe["block"] if "block" in recipe else recipe["paths"]


def _default_columns(rows: Rows) -> list[str] | None:
    """The columns of a dataset that are read where none are named; None: all."""
    from partwise.tasks.datasets.rows import DatasetRows

    return rows.default_columns if isinstance(rows, DatasetRows) else None


def _rows_of(data: Any) -> Rows:
    # Here, since datasets are made of sources, too.
    from partwise.tasks.datasets.dataset import Dataset
    from partwise.tasks.datasets.manifest import is_reference
    from partwise.tasks.datasets.rows import DatasetRows

    if isinstance(data, list | tuple) and len(data) == 1 and isinstance(data[0], Dataset):
        data = data[0]
    if isinstance(data, Dataset):
        return DatasetRows(data)
    if isinstance(data, Query):
        return QueryRows(data)
    if isinstance(data, str | os.PathLike):
        data = [data]
    if isinstance(data, list | tuple):
        if not data:
            raise SourceError(f"The source is an empty list: give {_ACCEPTED}.")
        if any(isinstance(item, Dataset) for item in data):
            raise SourceError("The source is a list with a dataset and more: give one dataset.")
        if any(is_reference(item) for item in data):
            raise SourceError(
                f"{data[0]!r} names a dataset, but not its store: give Dataset.open(name, version, "
                "store)."
            )
        named = [isinstance(item, str | os.PathLike) for item in data]
        if all(named):
            paths = [absolute_path(item) for item in data]
            return FileRows(find_files(paths), paths)
        if any(named):
            raise SourceError(
                "The source is a list of paths and frames together: give only one kind."
            )
        return _TableRows(_concatenated([table_of(item) for item in data]))
    return _TableRows(table_of(data))


def _concatenated(tables: list[pa.Table]) -> pa.Table:
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
        return _pandas_table(data)
    if isinstance(data, pa.Table):
        return data
    if isinstance(data, pa.RecordBatch):
        return pa.Table.from_batches([data])
    if isinstance(data, pa.RecordBatchReader):
        return data.read_all()
    if hasattr(data, "__arrow_c_stream__"):
        try:
            return pa.table(data)
        except (pa.ArrowException, TypeError, ValueError) as exc:
            raise SourceError(
                f"The {type(data).__name__} cannot be read through Arrow: {exc}."
            ) from exc
    raise SourceError(
        f"Data of type {type(data).__module__}.{type(data).__qualname__} is no source: "
        f"give {_ACCEPTED}."
    )


def _pandas_table(frame: Any) -> pa.Table:
    for name in frame.columns:
        if not isinstance(name, str):
            raise ColumnError(
                f"A column of the frame is named {name!r} ({type(name).__name__}): "
                "rename it to a string."
            )
    check_unique_names(list(frame.columns))
    keep_index = any(name is not None for name in frame.index.names)
    try:
        return pa.Table.from_pandas(frame, preserve_index=keep_index)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as exc:
        raise _unfit_column(frame, exc) from exc


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
    return ColumnError(f"The frame does not convert to Arrow: {' '.join(str(cause).split())}.")
