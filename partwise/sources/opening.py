"""Opening what a caller gives as data: files, datasets, queries, frames, tables and streams."""

import hashlib
import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Protocol, runtime_checkable

import numpy as np
import pyarrow as pa
from pydantic import ValidationError

from partwise.errors import ColumnError, InputError, NoRowsError, SourceError
from partwise.formatting import shortened
from partwise.renamed import block_of_today
from partwise.sources.descriptions import Source, SourceDescription, read_rows
from partwise.sources.files.file_set import Files
from partwise.sources.files.rows import FileRows
from partwise.sources.fragments import Fragment, Rows, Selection, is_known
from partwise.sources.frames.streams import stream_rows
from partwise.sources.frames.tables import ACCEPTED, TableRows, concatenated, table_of
from partwise.sources.references import is_reference
from partwise.sources.several import SeveralRows
from partwise.sources.sql.query import Query, QueryRows
from partwise.sources.table_formats.rows import open_files
from partwise.tables.column_names import check_named_once, check_unique_names, columns_there
from partwise.tables.filters import Conditions, Filter, filter_columns, normalize_filter
from partwise.tables.keys.given_keys import KeyFilter
from partwise.tables.keys.key_classes import KeyClass, KeyColumn
from partwise.tables.keys.partition_keys import hash_keys


@runtime_checkable
class RowsOwner(Protocol):
    """A value that opens its own rows, such as a version of a dataset."""

    @property
    def default_columns(self) -> list[str] | None:
        """The columns that are read where none are named; None: all."""

    def open_rows(self) -> Rows:
        """Return the rows; none is read yet."""


@dataclass(frozen=True, slots=True)
class OpenedData:
    """Data whose rows are opened: `open_source` reads no heads and footers of it again."""

    name: Any
    """How the caller named the data: paths, or dataset://NAME."""
    rows: Rows
    default_columns: list[str] | None

    @classmethod
    def of(cls, name: Any, data: Any) -> "OpenedData":
        """Open data that a caller named so; takes and raises what `open_source` does."""
        data = _without_list(data)
        return cls(name, _rows_of(data), _default_columns(data))

    def open_rows(self) -> Rows:
        """Return the rows as they were found when they were opened."""
        return self.rows


MOST_PUSHED = 1000
"""Keys that a source is asked for by their values; of more it has to give all of its rows."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ChosenKeys:
    """Keys whose rows are the only ones that are meant."""

    keys: pa.Table
    """Normalized, each once, in the order of their hashes."""
    filter: KeyFilter

    @classmethod
    def of(cls, normalized: pa.Table, columns: tuple[KeyColumn, ...]) -> "ChosenKeys":
        """Make them of normalized keys, at least one, which may be there more than once."""
        hashes, first = np.unique(hash_keys(normalized), return_index=True)
        keys = normalized.take(pa.array(first)).combine_chunks()
        return cls(keys=keys, filter=KeyFilter(columns=columns, hashes=hashes))

    def conditions(self, selection: Selection) -> list[list[Any]]:
        """Return conditions that hold for all of their rows; none where they are too many."""
        found = []
        for column in self.filter.columns:
            values = self.keys[column.name].unique()
            is_plain = column.key_class in (KeyClass.INTEGER, KeyClass.STRING)
            if is_plain and not values.null_count and len(values) <= MOST_PUSHED:
                found.append([column.name, "in", self._values_as_in(selection, column)])
        try:
            replace(selection, conditions=[found]).check_filter()
        except ColumnError:
            return []  # One is beyond its column, such as 300 where that is int8.
        return found

    def _values_as_in(self, selection: Selection, column: KeyColumn) -> list[Any]:
        """Return the values of a key column as the column of the rows has them."""
        values: list[Any] = self.keys[column.name].unique().to_pylist()
        kind = selection.schema.field(column.name).type
        kind = kind.value_type if pa.types.is_dictionary(kind) else kind
        if column.key_class is KeyClass.INTEGER and not pa.types.is_unsigned_integer(kind):
            # Keys are their 64 bits: one below 0 stands there as what it is without a sign.
            return [value - 2**64 if value >= 2**63 else value for value in values]
        return values


@dataclass(frozen=True, kw_only=True, eq=False)
class _SelectedSource:
    """Some columns of some rows: a `Source`."""

    rows: Rows
    columns: Sequence[str] | None
    """Those of which its description speaks; None: all."""
    conditions: Conditions | None
    read: Sequence[str] | None = None
    """Those that are read; None: `columns`."""
    only: ChosenKeys | None = None
    """The keys whose rows are meant; None: all."""
    selection: Selection = field(init=False)

    def __post_init__(self) -> None:
        names = self.columns if self.read is None else self.read
        schema = self.rows.schema
        chosen = Selection.of(schema, schema.names if names is None else names, self.conditions)
        only = None if self.only is None else self.only.filter
        object.__setattr__(self, "selection", replace(chosen, only=only))

    @property
    def schema(self) -> pa.Schema:
        return self.selection.schema

    def narrowed(self, columns: Sequence[str]) -> Source:
        return replace(self, read=columns)

    def fragments(self, keys: Sequence[str] = ()) -> Sequence[Fragment]:
        conditions = self.conditions
        if self.only is not None and (of_keys := self.only.conditions(self.selection)):
            # What the source can leave out by itself, need not be read.
            conditions = [[*each, *of_keys] for each in conditions or [[]]]
        return self.rows.fragments(self.selection.read_schema.names, conditions, keys)

    def buckets(self) -> frozenset[str]:
        return self.rows.buckets()

    def batches(self) -> Iterator[pa.RecordBatch]:
        return read_rows(self)

    def refuse_empty(self) -> None:
        if self.only is not None:
            some = " that pass the filter" if self.conditions else ""
            raise NoRowsError(
                f"None of the {len(self.only.filter.hashes):,} keys of only= has rows{some}."
            )
        if self.conditions is not None:
            rows = "rows" if self.rows.rows is None else f"{self.rows.rows} rows"
            raise NoRowsError(f"The filter {self.conditions} leaves none of the {rows}: loosen it.")

    def description(self) -> SourceDescription:
        return self._description

    # Asked for more than once, and of tables in memory it hashes all rows.
    @cached_property
    def _description(self) -> SourceDescription:
        chosen = {"columns": self.columns, "filter": self.conditions}
        identity = self.rows.identity()
        digest = hashlib.sha256(identity)
        digest.update(json.dumps(chosen, sort_keys=True).encode())
        if self.only is not None:
            digest.update(self.only.filter.hashes.tobytes())
        recipe = self.rows.recipe()
        return SourceDescription(
            fingerprint=digest.hexdigest(),
            recurs=is_known(identity),
            rows=self.rows.rows if self.selection.passes_all else None,
            size_bytes=self.rows.size_bytes(self.schema.names),
            recipe=None if recipe is None else {**recipe, **chosen},
        )


def open_source(
    data: Any,
    *,
    columns: Sequence[str] | None = None,
    filter: Filter | None = None,  # noqa: A002
) -> Source:
    """Open data as a source of Arrow batches; heads and footers of files are read, no rows.

    Args:
        data: A path, glob, directory or URL (s3, gs, abfs) of Parquet, CSV, JSON lines (both also
            .gz, .bz2, .zst), ORC, Arrow IPC or Excel files; `Files`, which says how to read them; a
            `Query` of a database; a pyarrow table, a pandas or polars frame; a polars LazyFrame,
            DuckDB relation, pyarrow dataset, Arrow stream or Dask DataFrame, which are computed as
            they are read; a list of any of these, read one after the other, with the columns of the
            first; or a `Dataset` or `OpenedData`, which stand alone. Files of a directory are read
            in the order of their paths; `key=value` directories are columns. A named index of a
            pandas or Dask frame is kept, one without a name is not.
        columns: The columns to read, None for all.
        filter: Conditions as in pyarrow.parquet: `[("price", ">", 0), ...]` must all hold; a list
            of such lists: one of them must hold. Dates and times may be ISO text.

    Returns:
        The source, which can be read more than once, unless a part of it is a stream that reading
        consumes; a second reading of that raises `SourceError`.

    Raises:
        SourceError: There is nothing to read, or it cannot be read.
        ColumnError: A column is missing, stands there twice, or holds values of mixed types.
        InputError: The filter is malformed.

    Example:
        >>> source = open_source("sales/*.parquet", filter=[("date", "<", "2016-01-01")])
        >>> source.description().rows
    """
    data = _without_list(data)
    rows = _rows_of(data)
    columns = _default_columns(data) if columns is None else list(columns)
    check_unique_names(rows.schema.names)
    conditions = normalize_filter(filter)
    check_named_once(columns or (), "columns")
    known = set(rows.schema.names)
    for what, names in (("columns", columns or ()), ("The filter", filter_columns(conditions))):
        for name in names:
            if name not in known:
                raise ColumnError(
                    f"{what} names column {name!r}, which the source does not have: "
                    f"{columns_there(rows.schema.names, name, begin='its columns are')}"
                )
    if rows.rows == 0:
        raise SourceError("The source has no rows: there is nothing to partition.")
    source = _SelectedSource(rows=rows, columns=columns, conditions=conditions)
    if conditions:
        # A value that does not compare is reported now, not after a part was read.
        source.selection.check_filter()
    return source


def data_of_recipe(recipe: Mapping[str, Any]) -> Any:
    """Return the data that a description's recipe stands for, as `open_source` takes it.

    It may have been read back from JSON.
    """
    options = {name: value for name, value in recipe.items() if name not in ("columns", "filter")}
    if options.keys() == {"sources"}:
        return [data_of_recipe(each) for each in options["sources"]]
    if "query" in options:
        return Query(**options["query"])
    if "block" in options:
        return block_of_today(options["block"])
    if options.keys() == {"paths"}:
        return options["paths"]
    return Files.from_recipe(options)


def values_as(source: Source, recipe: Mapping[str, Any] | None) -> Source:
    """Return rows of CSV files and workbooks with the values that an earlier call would read.

    A decimal comma that was said in training and forgotten in inference makes 4.057 of 4057.
    """
    if not isinstance(recipe, Mapping) or not isinstance(source, _SelectedSource):
        return source
    if not isinstance(source.rows, FileRows | SeveralRows):
        return source
    try:
        return replace(source, rows=source.rows.values_as(recipe))
    except (AttributeError, TypeError, ValidationError) as error:
        raise InputError(
            "How the rows of the training run were read cannot be read from its call, "
            f"{shortened(repr(recipe))}: it was changed, or is of a newer release."
        ) from error


def values_like(source: Source, other: Source) -> Source:
    """Return rows of CSV files and workbooks with the values that others are read with."""
    if not isinstance(other, _SelectedSource):
        return source
    return values_as(source, other.rows.recipe())


def keyed_by(source: Source, names: Sequence[str], trained: Sequence[KeyColumn] = ()) -> Source:
    """Return rows with key columns as text whose numbers are written as codes, such as 01.

    `trained` are those of an earlier run, whose classes files without types are read with.
    """
    if not isinstance(source, _SelectedSource):
        return source
    if not isinstance(source.rows, FileRows | SeveralRows):
        return source
    classes = {column.name: str(column.key_class) for column in trained}
    rows = source.rows.keyed_by({name: classes.get(name, "") for name in names})
    return replace(source, rows=rows)


def of_keys(source: Source, only: ChosenKeys) -> Source:
    """Return the rows of some keys, of a source that `open_source` opened."""
    if not isinstance(source, _SelectedSource):
        raise InputError("Keys can be chosen of rows as they are opened, and of no others.")
    return replace(source, only=only)


def _without_list(data: Any) -> Any:
    """Return the only item of a list where it opens its own rows, as the command line gives it."""
    is_single = isinstance(data, list | tuple) and len(data) == 1
    return data[0] if is_single and isinstance(data[0], RowsOwner) else data


def _default_columns(data: Any) -> list[str] | None:
    return data.default_columns if isinstance(data, RowsOwner) else None


def _rows_of(data: Any) -> Rows:
    if isinstance(data, RowsOwner):
        return data.open_rows()
    if isinstance(data, Query):
        return QueryRows(data)
    if isinstance(data, str | os.PathLike):
        data = [data]
    if isinstance(data, Files):
        return open_files(data)
    if not isinstance(data, list | tuple):
        return _single_rows(data)
    if not data:
        raise SourceError(f"The source is an empty list: give {ACCEPTED}.")
    if len(data) > 1 and any(isinstance(item, RowsOwner) for item in data):
        raise SourceError("The source is a list with a dataset and more: give one dataset.")
    for item in data:
        if is_reference(item):
            raise SourceError(
                f"{item!r} names a dataset, but not its store: give Dataset.open(name, version, "
                "store)."
            )
    if all(isinstance(item, str | os.PathLike) for item in data):
        return open_files(Files(data))
    if len(data) == 1:
        return _rows_of(data[0])
    parts = [_rows_of(item) for item in data]
    tables = [part.table for part in parts if isinstance(part, TableRows)]
    if len(tables) == len(parts):
        return TableRows(concatenated(tables))
    return SeveralRows(parts)


def _single_rows(data: Any) -> Rows:
    # Who has a frame of Dask has imported it; nobody else is to wait for that.
    dask = sys.modules.get("dask.dataframe")
    if dask is not None and isinstance(data, dask.DataFrame):
        from partwise.sources.frames.dask_rows import DaskRows

        return DaskRows(data)
    return stream_rows(data) or TableRows(table_of(data))
