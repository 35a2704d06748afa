"""The rows of a table that has a log: its own files, in the parts in which files are read."""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from partwise.errors import ColumnError, InputError, SourceError
from partwise.sources.files.file_set import Files
from partwise.sources.files.heads import read_heads
from partwise.sources.files.parts import divide_file
from partwise.sources.files.remote_files import bucket_of
from partwise.sources.files.rows import FileFragment, FileRows
from partwise.sources.fragments import Fragment, Rows
from partwise.sources.several import SeveralRows
from partwise.sources.table_formats.log_table import LogTable, TableFile
from partwise.sources.table_formats.roots import TableFinder, TableRoot
from partwise.tables.dictionaries import plain_storage
from partwise.tables.filters import Conditions

if TYPE_CHECKING:
    from partwise.sources.files.file_head import FileHead

_GROWTH = 3
"""About how much larger rows are in memory than in Parquet files."""


def open_files(requested: Files) -> Rows:
    """Return the rows of files, and of tables that have a log; none is read."""
    # Tables with a log have their rows in files of these formats: with others nobody has to look.
    if requested.format not in (None, "parquet", "orc"):
        return _plain_files(requested, None)
    finder = TableFinder(requested.access)
    # Files that are named one by one are looked at together, when they are found.
    tables = [] if requested.folder else [finder.table_at(path) for path in requested.names]
    if not any(tables):
        return _plain_files(requested, finder)
    named = [os.path.realpath(table.path) for table in tables if table is not None]
    if twice := [path for path in named if named.count(path) > 1]:
        raise SourceError(f"The table {twice[0]!r} is named twice: its rows would count twice.")
    parts = [
        open_files(requested.of_paths([path])) if table is None else _table_rows(requested, table)
        for path, table in zip(requested.names, tables, strict=True)
    ]
    return parts[0] if len(parts) == 1 else SeveralRows(parts)


def _plain_files(requested: Files, finder: TableFinder | None) -> FileRows:
    if requested.version is not None:
        raise InputError(
            f"Files(version={requested.version}), --table-version on the command line, is for "
            f"tables of Delta and Iceberg, and {requested.names[0]!r} is none: leave it out, or "
            "name the folder of a table."
        )
    files = requested.found()
    if finder is not None:
        finder.check_matches(file.path for file in files)
    return FileRows(requested, files)


def _table_rows(requested: Files, root: TableRoot) -> "LogTableRows":
    if requested.types:
        raise InputError(
            f"The {root.format} table {root.path!r} says the types of its columns: leave out types="
            " of Files (--types on the command line)."
        )
    # Called for what it refuses: options of CSV files and workbooks.
    requested.options_for("parquet")
    return LogTableRows(requested, root, _read_log(requested, root))


def _read_log(requested: Files, root: TableRoot) -> LogTable:
    access = requested.access if "://" in root.path else None
    try:
        if root.format == "Delta":
            from partwise.sources.table_formats.delta_tables import read_delta_log

            return read_delta_log(root.path, access, requested.log_version)
        if root.format == "Iceberg":
            from partwise.sources.table_formats.iceberg_tables import read_snapshot

            return read_snapshot(root, access, requested.log_version)
    except ImportError as exc:
        extra = root.format.lower()
        raise SourceError(
            f"{root.path!r} is a table of {root.format}: which of its files count, only its log "
            f"says. To read it, install the extra of this name (partwise[{extra}]): {exc}."
        ) from exc
    raise root.unreadable()


class LogTableRows:
    """The rows of a table that has a log."""

    def __init__(self, requested: Files, root: TableRoot, table: LogTable) -> None:
        self._requested, self._root, self._table = requested, root, table
        self._file_column = requested.file_column
        self._heads: dict[str, FileHead] = {}
        self.schema = table.schema
        if self._file_column in table.schema.names:
            raise ColumnError(
                f"The table has a column {self._file_column!r} of its own: choose another name for "
                "file_column."
            )
        if self._file_column is not None:
            self.schema = table.schema.append(pa.field(self._file_column, pa.string()))

    @property
    def rows(self) -> int | None:
        """Rows of the table, None where its log does not say."""
        return self._table.rows

    def size_bytes(self, names: Sequence[str]) -> int:
        """The estimated size of some columns in Arrow memory."""
        return self._table.size_bytes * _GROWTH * len(names) // max(1, len(self.schema.names))

    def identity(self) -> bytes:
        """What changes with each version of the table."""
        said = [self._root.format, self._root.path, *self._table.identity(), self._file_column]
        return json.dumps(said).encode()

    def recipe(self) -> dict[str, Any] | None:
        """What opens this version again from another process."""
        name = self._root.metadata or self._root.path
        recipe = self._requested.of_paths([name]).recipe()
        return (
            recipe if self._table.version < 0 else {**recipe, "version": str(self._table.version)}
        )

    def buckets(self) -> frozenset[str]:
        """The bucket of the table, and those of its files."""
        if "://" not in self._root.path:
            return frozenset()
        return frozenset(map(bucket_of, [self._root.path, *(f.path for f in self._files(None))]))

    def fragments(
        self, names: Sequence[str], conditions: Conditions | None, keys: Sequence[str] = ()
    ) -> list[Fragment]:
        """The files of the table, big ones in parts, without what log and footers exclude."""
        files = self._files(conditions)
        new = [file for file in files if file.path not in self._heads]
        heads = read_heads(new, (), None) if new else []
        self._heads |= {file.path: head for file, head in zip(new, heads, strict=True)}
        return [part for file in files for part in self._parts(file, names, conditions, keys)]

    def _files(self, conditions: Conditions | None) -> list[TableFile]:
        """Its files; what a filter says of the column of paths, the log does not know."""
        if self._file_column in {c[0] for conjunction in conditions or () for c in conjunction}:
            conditions = None
        return self._table.files(conditions)

    def _parts(
        self,
        file: TableFile,
        names: Sequence[str],
        conditions: Conditions | None,
        keys: Sequence[str],
    ) -> Iterator[Fragment]:
        head = self._heads[file.path]
        # The same in all of its rows, and may be missing in it.
        values = dict(file.values)
        if self._file_column is not None:
            values[self._file_column] = file.path.removeprefix(self._root.path).lstrip("/")
        there = self._table.names_in(head.schema, file)
        own = {name: there[name] for name in names if name in there}
        schema = pa.schema([self.schema.field(name) for name in names])
        constants = {name: values.get(name) for name in names if name not in own}
        stored = pa.schema([schema.field(name).with_name(own[name]) for name in own])
        types = pa.types
        known = {
            key: pa.scalar(values.get(key), plain_storage(schema.field(key).type))
            for key in keys
            # Of the doubles by which a table is divided, an Iceberg manifest may have floats.
            if key in constants or (key in values and not types.is_float64(schema.field(key).type))
        }
        back = {stored_name: name for name, stored_name in own.items()}
        whole = sum(head.column_bytes.get(name, 0) for name in back)
        asked = [own[key] for key in keys if key in own]
        for part in divide_file(file, head, stored, _in_file(conditions, own), asked):
            yield FileFragment(
                file=file,
                pieces=part.pieces,
                names=tuple(back),
                file_schema=head.schema,
                schema=schema,
                constants=constants,
                stated={},
                known={**known, **{back[key]: value for key, value in part.known.items()}},
                rows=part.rows,
                size_bytes=int(whole * part.share),
                row_bytes=head.row_bytes(list(back)),
                options=None,
                renamed={old: name for old, name in back.items() if old != name},
            )


def _in_file(conditions: Conditions | None, own: Mapping[str, str]) -> Conditions | None:
    """The filter as far as the columns of a file go, by the names that they have there."""
    if conditions is None:
        return None
    left = [
        [[own[name], operator, value] for name, operator, value in conjunction if name in own]
        for conjunction in conditions
    ]
    # A list of no conditions holds for all rows.
    return left if all(left) else None
