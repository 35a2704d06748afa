"""A session: where the tables and stages are, and the names that may be left out."""

import copy
import hashlib
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import pandas as pd
import pyarrow as pa

from partwise.compat.snowflake.snowpark.dataframe import DataFrame
from partwise.compat.snowflake.snowpark.file_operation import FileOperation
from partwise.compat.snowflake.snowpark.identifiers import parts_of, qualified, stored
from partwise.compat.snowflake.snowpark.row import Row
from partwise.compat.snowflake.snowpark.statements import statement
from partwise.compat.snowflake.snowpark.tables import (
    TABLES,
    note_written,
    read_table,
    remove_written,
    write_table,
)
from partwise.compat.snowflake.snowpark.unknown import Partial
from partwise.compat.snowflake.stages import stage_store
from partwise.errors import InputError

DATABASE, SCHEMA = "LOCAL", "PUBLIC"


class Session(Partial):
    """Tables and stages below a folder of this machine; it may be sent to other processes.

    Args:
        database: Of tables whose names leave it out.
        schema: The same.
    """

    builder: ClassVar["SessionBuilder"]
    active: ClassVar["Session | None"] = None

    def __init__(self, database: str = DATABASE, schema: str = SCHEMA) -> None:
        # The functions of partitions have another folder.
        self._root = Path.cwd()
        self._database, self._schema = stored(database), stored(schema)
        self._writer, self._written = "", 0

    def __repr__(self) -> str:
        return f"Session(database={self._database!r}, schema={self._schema!r}, in {self._root})"

    def __enter__(self) -> "Session":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Do nothing: there is nothing to close."""

    def of_store(self, store: str) -> "Session":
        """Return a session for the functions of the runs of a store."""
        session = copy.copy(self)
        # A run of the same name in another store is another run.
        url = store if "://" in store else str(self._root / store)
        session._writer = hashlib.sha256(url.encode()).hexdigest()[:12]
        return session

    def of_writer(self, name: str) -> "Session":
        """Return a session whose files are named for who writes them, with none written as yet.

        What is appended to a table by a partition is then there once, also after a second attempt.
        """
        session = copy.copy(self)
        session._writer, session._written = f"{self._writer}-{name}", 0
        remove_written(self._root / TABLES, session._writer)
        return session

    def use_database(self, database: str) -> None:
        """Set the database of names that leave it out."""
        self._database, self._schema = stored(database), SCHEMA

    def use_schema(self, schema: str) -> None:
        """Set the schema of names that leave it out, and the database where it is said."""
        *database, self._schema = parts_of(schema)
        self._database = database[-1] if database else self._database

    def use_warehouse(self, warehouse: str) -> None:
        """Do nothing: there are no warehouses."""

    def use_role(self, role: str) -> None:
        """Do nothing: there are no roles."""

    def get_current_database(self) -> str:
        """Return the database, in quotes as theirs."""
        return f'"{self._database}"'

    def get_current_schema(self) -> str:
        """Return the schema, in quotes as theirs."""
        return f'"{self._schema}"'

    def get_current_warehouse(self) -> None:
        """Return None: there are no warehouses."""

    def get_current_role(self) -> None:
        """Return None: there are no roles."""

    def table(self, name: str | Sequence[str]) -> DataFrame:
        """Return the rows of a table; they are read when they are asked for."""
        folder = self.table_folder(name if isinstance(name, str) else ".".join(name))
        return DataFrame(lambda: read_table(folder), self)

    def sql(self, query: str, params: Sequence[Any] | None = None) -> DataFrame:
        """Return the result of a statement, which is carried out when it is asked for.

        Args:
            query: The statement.
            params: The values of its question marks.

        Raises:
            InputError: The statement is none of those that are known.
        """
        carry_out = statement(query, params or ())
        return DataFrame(lambda: carry_out(self), self)

    def create_dataframe(self, data: Any, schema: Sequence[str] | None = None) -> DataFrame:
        """Return a frame of a frame of pandas, whose names stay as they are, or of a list of rows.

        Values of dictionaries and named rows go by their names; one that is left out is None.

        Raises:
            InputError: The schema is no list of names, or of others than the rows have; or the
                rows do not have the same number of values.
        """
        if isinstance(data, pd.DataFrame):
            rows = pa.Table.from_pandas(data, preserve_index=False)
        else:
            rows = _table_of(list(data), schema)
        return DataFrame(lambda: rows, self)

    createDataFrame = create_dataframe  # noqa: N815 (a name of theirs)

    def write_pandas(
        self,
        df: pd.DataFrame,
        table_name: str,
        *,
        database: str | None = None,
        schema: str | None = None,
        overwrite: bool = False,
        auto_create_table: bool = False,
    ) -> DataFrame:
        """Append a frame of pandas to a table, and return the rows of the table.

        Raises:
            InputError: The table is not there, and `auto_create_table` is not set.
        """
        # There, this name alone is taken as it is, and not in upper case.
        parts = [database, schema, f'"{stored(table_name)}"']
        name = ".".join(part for part in parts if part)
        if not (overwrite or auto_create_table):
            read_table(self.table_folder(name))
        self.write_rows(
            name, self.create_dataframe(df)._read(), "overwrite" if overwrite else "append"
        )
        return self.table(name)

    @property
    def file(self) -> FileOperation:
        """Copies files to stages and from them."""
        return FileOperation(self.stage_folder)

    def table_folder(self, name: str) -> Path:
        """Return where the files of a table are."""
        return self._root / TABLES / qualified(name, self._database, self._schema)

    def stage_folder(self, location: str) -> Path:
        """Return the folder that a stage is, or a folder or file in it.

        Raises:
            InputError: It is a URL, or goes out of the stage.
        """
        store = stage_store(location)
        if "://" in store or ".." in Path(store).parts:
            raise InputError(
                f"{location!r} is no folder of a stage: write @STAGE/folder, and copy files of "
                "a bucket by fsspec."
            )
        return self._root / store

    def write_rows(self, name: str, rows: pa.Table, mode: str) -> None:
        """Write rows as a table."""
        token = self._writer or f"{time.time_ns():020d}-{uuid.uuid4().hex[:8]}"
        folder, file = self.table_folder(name), f"{token}-{self._written}.parquet"
        if self._writer:
            note_written(folder / file, self._writer)
        write_table(folder, rows, mode, file)
        self._written += 1


class SessionBuilder:
    """Makes a session; of all that a connection needs only database and schema count."""

    def __init__(self) -> None:
        self._options: dict[str, Any] = {}

    def config(self, key: str, value: Any) -> "SessionBuilder":
        """Set one option."""
        return self.configs({key: value})

    def configs(self, options: Mapping[str, Any]) -> "SessionBuilder":
        """Set options."""
        known = {key.lower(): value for key, value in options.items() if value}
        self._options |= {key: known[key] for key in ("database", "schema") if key in known}
        return self

    def app_name(self, app_name: str) -> "SessionBuilder":  # noqa: ARG002
        """Do nothing: nobody sees the name."""
        return self

    def create(self) -> Session:
        """Return a new session, which becomes the active one."""
        Session.active = Session(**self._options)
        self._options = {}
        return Session.active

    def getOrCreate(self) -> Session:  # noqa: N802 (a name of theirs)
        """Return the active session, or a new one."""
        return Session.active or self.create()

    get_or_create: Callable[["SessionBuilder"], Session] = getOrCreate


Session.builder = SessionBuilder()


def _table_of(data: list[Any], schema: Sequence[str] | None) -> pa.Table:
    if schema is not None and not all(isinstance(name, str) for name in schema):
        raise InputError(
            "schema is a list of names here: their types are those of the values. Pass a frame of "
            "pandas for other types."
        )
    wanted = [stored(name) for name in schema or ()]
    named = [each for each in map(_named, data) if each is not None]
    if named:
        names, rows = _by_name(named, wanted)
    else:
        rows = [[*each] if isinstance(each, (tuple, list)) else [each] for each in data]
        width = len(wanted or (rows[0] if rows else ()))
        names = wanted or [f"_{number}" for number in range(1, width + 1)]
    if len(named) not in (0, len(data)) or any(len(each) != len(names) for each in rows):
        raise InputError(
            f"Rows have a value for each of the columns {names}, or all have names: give each row "
            "as many values, or all as dictionaries."
        )
    columns = list(zip(*rows, strict=True)) or [()] * len(names)
    return pa.table([pa.array(column) for column in columns], names)


def _by_name(rows: list[dict[str, Any]], wanted: list[str]) -> tuple[list[str], list[list[Any]]]:
    """Return the columns of rows that have names, and their values; None: a row has none."""
    found = list(dict.fromkeys(name for each in rows for name in each))
    if wanted and {*wanted} != {*found}:
        raise InputError(
            f"schema names the columns {wanted}, and the rows have {found}: name these in another "
            "order, or leave schema out, and rename them by with_column_renamed."
        )
    names = wanted or found
    return names, [[each.get(name) for name in names] for each in rows]


def _named(row: Any) -> dict[str, Any] | None:
    """Return the values of a row by their columns; None: they have no names."""
    if not isinstance(row, (dict, Row)):
        return None
    given = row.as_dict() if isinstance(row, Row) else row
    named = {stored(name): value for name, value in given.items()}
    if len(named) < len(given):
        raise InputError(
            f"The names {list(given)} of a row are not as many columns, since upper case and lower "
            "case are one: pass a frame of pandas for both."
        )
    return named if named or isinstance(row, dict) else None
