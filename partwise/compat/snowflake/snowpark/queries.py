"""Queries over the tables of a session, which DuckDB answers."""

import contextlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa

from partwise.compat.snowflake.snowpark import dialect
from partwise.compat.snowflake.snowpark.identifiers import quoted, stored
from partwise.compat.snowflake.snowpark.tables import read_table
from partwise.errors import InputError, SourceError
from partwise.formatting import counted
from partwise.sources.frames.streams import frame_table
from partwise.tables.column_names import check_unique_names
from partwise.tables.dictionaries import comparable

_TEMPORARY = b"partwise.temporary"
# Behind comments.
_FIRST_WORD = re.compile(r"(?:\s|--.*|//.*|/\*[\s\S]*?\*/)*(\w*)")
_KNOWN = ("", "SELECT", "WITH", "CREATE", "INSERT", "SHOW")

if TYPE_CHECKING:
    from partwise.compat.snowflake.snowpark.session import Session


def answer(text: str, params: Sequence[Any] | None) -> Callable[["Session"], pa.Table]:
    """Return what carries out a query, or a statement that writes the rows of one.

    Raises:
        InputError: DuckDB or sqlglot is not installed; it is no such statement; or it asks for
            something of which it is not known that DuckDB does the same.
    """
    if (first := _FIRST_WORD.match(text)) and first[1].upper() not in _KNOWN:
        # Whatever is installed; and sqlglot logs a warning of most, before it gives up.
        raise _refusal(text, "it is no SELECT, CREATE TABLE AS, INSERT INTO or SHOW TABLES")
    with _sentences(text):
        from sqlglot import exp

        tree = dialect.parsed(text, params)
        carry_out: Callable[[Any, Session], pa.Table] = _rows
        if isinstance(tree, exp.Show) and tree.name == "TABLES":
            return _tables
        if isinstance(tree, (exp.Create, exp.Insert)):
            carry_out = _create if isinstance(tree, exp.Create) else _insert
            dialect.check_written(tree)
        elif not isinstance(tree, exp.Query):
            raise dialect.Refused("only SELECT, CREATE TABLE AS and SHOW TABLES are known")
        dialect.check(tree.expression if carry_out is not _rows else tree)

    def of_session(session: "Session") -> pa.Table:
        with _sentences(text):
            return carry_out(tree.copy(), session)

    return of_session


def of_frames(text: str, session: "Session", **frames: pa.Table) -> pa.Table:
    """Return what a query makes of frames, by their names, and of tables of their session.

    Raises:
        InputError: As of `answer`.
    """
    with _sentences(text):
        tree = dialect.parsed(text, ())
        dialect.check(tree)
        return _rows(tree, session, frames)


@contextlib.contextmanager
def _sentences(text: str) -> Iterator[None]:
    """Say by a sentence what is wrong with a statement."""
    try:
        import duckdb
        import sqlglot
    except ImportError as error:
        raise InputError(
            f"The statement {text[:200]!r} is carried out by {error.name}, which is not installed: "
            "pip install 'partwise[snowpark]', or compute it in pandas, with "
            "session.table(name).to_pandas()."
        ) from error
    try:
        yield
    except (
        *(duckdb.Error, sqlglot.errors.SqlglotError),
        *(dialect.Refused, SourceError, pa.ArrowException),
    ) as error:
        # What DuckDB says stands behind the error of a source.
        cause = error.__cause__ if isinstance(error, SourceError) and error.__cause__ else error
        words = re.sub(r"\x1b\[\d+m", "", str(cause)).split("\n")[0].rstrip(".: ")
        words = re.sub(r"[^\s\"'.]+~[0-9A-F]+", lambda found: dialect.decoded(found[0]), words)
        raise _refusal(text, words) from error


def _refusal(text: str, words: str) -> InputError:
    return InputError(
        f"The statement {text[:200]!r} cannot be carried out: {words}. Write it otherwise, or "
        "compute it in pandas, with session.table(name).to_pandas()."
    )


def _rows(tree: Any, session: "Session", frames: Mapping[str, pa.Table] | None = None) -> pa.Table:
    import duckdb

    dialect.named(tree)
    tables: dict[str, pa.Table] = {}
    for table in dialect.tables_of(tree):
        name = ".".join(f'"{dialect.decoded(part.name)}"' for part in table.parts)
        known = f"PARTWISE_{len(tables)}"
        frame = (frames or {}).get(name.strip('"'))
        tables[known] = _as_stored(
            read_table(session.table_folder(name)) if frame is None else frame
        )
        table.replace(dialect.table(known, table))
    columns = {
        name: {each.name: _kind(each.type) for each in rows.schema} for name, rows in tables.items()
    }
    text = dialect.translated(tree, columns)
    # Nothing but these tables: no files, no other databases, no variables of Python.
    with duckdb.connect(
        ":memory:", config={"enable_external_access": False, "python_enable_replacements": False}
    ) as connection:
        connection.execute(dialect.MACROS)
        for name, rows in tables.items():
            connection.register(name, rows)
        found = connection.sql(text)
        check_unique_names(list(map(dialect.decoded, found.columns)), "The result would have")
        if "INTERVAL" in map(str, found.types):
            raise dialect.Refused("it has an interval as a value: write DATEDIFF")
        return _as_given(frame_table(found))


def _as_stored(rows: pa.Table) -> pa.Table:
    """Return the rows of a table with the names and types that there are in a database."""
    names = [dialect.coded(name) for name in rows.column_names]
    return pa.table([_wide(comparable(column)) for column in rows.columns], names)


def _as_given(rows: pa.Table) -> pa.Table:
    names = [dialect.decoded(name) for name in rows.column_names]
    return pa.table([_wide(column) for column in rows.columns], names)


def _wide(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return numbers of the one type that there is for each kind, where they fit into it."""
    kind, wide = column.type, None
    if pa.types.is_integer(kind) or (pa.types.is_decimal(kind) and kind.scale == 0):
        wide = pa.int64()
    elif pa.types.is_floating(kind):
        wide = pa.float64()
    elif pa.types.is_timestamp(kind):
        wide = pa.timestamp("us", kind.tz)
    with contextlib.suppress(pa.ArrowInvalid):
        return column if wide is None else column.cast(wide)
    return column


def _kind(kind: pa.DataType) -> str:
    """Return a type by the word of SQL."""
    of_kinds = {
        "BIGINT": pa.types.is_integer(kind),
        "DOUBLE": pa.types.is_floating(kind),
        "BOOLEAN": pa.types.is_boolean(kind),
        "DATE": pa.types.is_date(kind),
        "TIMESTAMPTZ": pa.types.is_timestamp(kind) and kind.tz is not None,
        "TIMESTAMPNTZ": pa.types.is_timestamp(kind),
        "VARCHAR": pa.types.is_string(kind) or pa.types.is_large_string(kind),
        "DECIMAL": pa.types.is_decimal(kind),
    }
    return next((word for word, is_it in of_kinds.items() if is_it), "UNKNOWN")


def _create(tree: Any, session: "Session") -> pa.Table:
    name = _target(tree)
    rows = _rows(tree.expression, session)
    if dialect.is_temporary(tree):
        rows = rows.replace_schema_metadata({_TEMPORARY: "1"})
        if tree.args["replace"] and _is_lasting(session.table_folder(name)):
            raise dialect.Refused(
                f"{name} is no temporary table, would only be hidden there, and be lost here: "
                "choose another name"
            )
    mode = "overwrite" if tree.args["replace"] else "ignore" if tree.args["exists"] else ""
    session.write_rows(name, rows, mode or "errorifexists")
    return pa.table({"status": [f"Table {name} successfully created."]})


def _is_lasting(folder: Path) -> bool:
    try:
        return _TEMPORARY not in (read_table(folder).schema.metadata or {})
    except InputError:
        return False


def _insert(tree: Any, session: "Session") -> pa.Table:
    """Append rows to a table, as its columns and of their types."""
    there = read_table(session.table_folder(_target(tree))).schema
    names = [each.name if each.quoted else stored(each.name) for each in tree.this.expressions]
    names = names or there.names
    # Two of one name are two values here.
    dialect.name_by_places(tree.expression)
    rows = _rows(tree.expression, session)
    if len(names) != rows.num_columns or not {*names} <= {*there.names}:
        raise dialect.Refused(
            f"{counted(rows.num_columns, 'value')} came for the columns "
            f"{list(map(quoted, names))} of the table, which has {list(map(quoted, there.names))}"
        )
    values = dict(zip(names, rows.columns, strict=True))
    columns = [_stored_as(each, values.get(each.name, pa.nulls(len(rows)))) for each in there]
    mode = "overwrite" if tree.args["overwrite"] else "append"
    session.write_rows(_target(tree), pa.table(columns, schema=there), mode)
    return pa.table({"number of rows inserted": [len(rows)]})


def _stored_as(field: pa.Field, values: Any) -> Any:
    of_text = (pa.types.is_integer, pa.types.is_boolean, pa.types.is_date, pa.types.is_null)
    is_other = values.type != field.type and not any(test(values.type) for test in of_text)
    if pa.types.is_string(field.type) and is_other:
        raise dialect.Refused(
            f"column {quoted(field.name)} is of texts, and that of a {values.type} is another one "
            "in Snowflake"
        )
    return values.cast(field.type)


def _target(tree: Any) -> str:
    """Return the name of the table that a statement writes, which may stand before its columns."""
    return str((tree.this if tree.this.key == "table" else tree.this.this).sql("snowflake"))


def _tables(session: "Session") -> pa.Table:
    """Return the tables of the schema."""
    tables, schema = session.table_folder("_").parent, session.table_folder("_").stem
    names = sorted(unquote(each.suffix[1:]) for each in tables.glob("[!.]*") if each.stem == schema)
    return pa.table({"name": pa.array(names, pa.string())})
