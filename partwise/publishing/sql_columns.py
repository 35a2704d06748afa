"""Columns of rows as columns of a table: declared where there is none, fitted where there is."""

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from partwise.errors import InputError
from partwise.sources.sql.databases import DatabaseKind, lower_case
from partwise.sources.sql.postgresql_types import is_numeric, numeric_type
from partwise.sources.sql.sqlite_types import affinity
from partwise.tables.column_names import names_in_words
from partwise.tables.dictionaries import plain_storage

OWN_COLUMNS = ("run_id", "partition_id")
_LONGEST_NAME = 63
"""Bytes of it that PostgreSQL keeps (manual, 4.1.1)."""

_WIDENS = {
    ("integer", "float"), ("integer", "decimal"), ("date", "timestamp"),
}  # fmt: skip

_SQLITE = {
    "boolean": "INTEGER", "integer": "INTEGER", "float": "REAL", "bytes": "BLOB", "text": "TEXT",
    "decimal": "TEXT", "date": "TEXT", "time": "TEXT", "timestamp": "TEXT",
    "timestamp with a zone": "TEXT", "null": "TEXT",
}  # fmt: skip
_OF_AFFINITY = {
    "integer": pa.int64(), "real": pa.float64(), "numeric": pa.decimal128(15),
    "text": pa.string(), "blob": pa.null(), "": pa.null(),
}  # fmt: skip
_ISO = "%Y-%m-%dT%H:%M:%S"
_SQLITE_DIGITS = 15
"""Of text in a column of numbers SQLite keeps so many digits (manual, "Datatypes In SQLite", 3)."""


def _class_of(data_type: pa.DataType) -> str:
    kinds = pa.types
    if is_numeric(data_type):
        return "decimal"
    checks = (
        (kinds.is_boolean, "boolean"), (kinds.is_integer, "integer"),
        (kinds.is_floating, "float"), (kinds.is_decimal, "decimal"),
        (kinds.is_string, "text"), (kinds.is_large_string, "text"),
        (kinds.is_binary, "bytes"), (kinds.is_large_binary, "bytes"),
        (kinds.is_fixed_size_binary, "bytes"), (kinds.is_date, "date"), (kinds.is_time, "time"),
        (kinds.is_null, "null"),
    )  # fmt: skip
    if isinstance(data_type, pa.BaseExtensionType):
        return str(data_type)
    for is_kind, name in checks:
        if is_kind(data_type):
            return name
    if kinds.is_timestamp(data_type):
        return "timestamp" if data_type.tz is None else "timestamp with a zone"
    if kinds.is_list(data_type) or kinds.is_large_list(data_type):
        return f"list of {_class_of(data_type.value_type)}"
    return str(data_type)


def sql_type(data_type: pa.DataType, kind: DatabaseKind, name: str = "") -> str:
    """Return the SQL type of a column that is to hold an Arrow type."""
    data_type = plain_storage(data_type)
    kind_of_type = _class_of(data_type)
    if kind == "sqlite":
        if kind_of_type not in _SQLITE:
            raise _no_place(name, data_type, "SQLite")
        return _SQLITE[kind_of_type]
    if kind_of_type == "decimal" and pa.types.is_decimal(data_type):
        return f"numeric({data_type.precision}, {data_type.scale})"
    # PostgreSQL has no unsigned integers, and a bigint ends at 2**63 - 1.
    if kind_of_type == "integer":
        return "numeric(20, 0)" if pa.types.is_uint64(data_type) else "bigint"
    if pa.types.is_float32(data_type) or pa.types.is_float16(data_type):
        return "real"
    plain = {
        "boolean": "boolean", "float": "double precision", "text": "text", "null": "text",
        "bytes": "bytea", "date": "date", "time": "time", "timestamp": "timestamp",
        "timestamp with a zone": "timestamptz",
    }  # fmt: skip
    if kind_of_type in plain:
        return plain[kind_of_type]
    element = kind_of_type.removeprefix("list of ")
    is_bigint = element == "integer" and not pa.types.is_uint64(data_type.value_type)
    if element != kind_of_type and (element in plain or is_bigint):
        return f"{sql_type(data_type.value_type, kind, name)}[]"
    raise _no_place(name, data_type, "PostgreSQL")


def _no_place(name: str, data_type: pa.DataType, database: str) -> InputError:
    return InputError(
        f"Column {name!r} of type {data_type} has no place in a table of {database}: leave it out, "
        "or return it as text."
    )


def sqlite_field(name: str, declared: str) -> pa.Field:
    """Return a column of SQLite: of type null where it keeps all values as they are.

    Words of a declaration other than those of `affinity` are numbers.
    """
    return pa.field(name, _OF_AFFINITY[affinity(declared) or ("numeric" if declared else "")])


def refuse_columns(
    table: str, existing: pa.Schema | None, columns: Sequence[pa.Field], kind: DatabaseKind
) -> None:
    """Refuse columns of rows for which a table has no place; None: it is yet to be made."""
    known: dict[str, str] = {}
    for field in columns:
        name = lower_case(field.name) if kind == "sqlite" else field.name
        if name in OWN_COLUMNS:
            raise InputError(
                f"The rows have a column {field.name!r}, which partwise adds itself: rename it."
            )
        if (other := known.setdefault(name, field.name)) != field.name:
            raise InputError(
                f"The rows have the columns {other!r} and {field.name!r}, which are one to SQLite: "
                "rename one of them."
            )
        is_new = existing is None or name not in existing.names
        if kind == "postgresql" and is_new and len(name.encode()) > _LONGEST_NAME:
            raise InputError(
                f"The rows have a column {name!r}, of whose name PostgreSQL keeps {_LONGEST_NAME} "
                f"of {len(name.encode())} bytes: rename it."
            )
    if existing is not None:
        refuse_unfit(table, existing, columns, kind)
    if existing is None or kind == "sqlite":
        # SQLite takes any value into its columns of text, and we can write not every one.
        for field in columns:
            sql_type(field.type, kind, field.name)


def refuse_unfit(
    table: str, existing: pa.Schema, columns: Sequence[pa.Field], kind: DatabaseKind
) -> None:
    """Refuse columns for which an existing table has no place."""
    for field in columns:
        if field.name not in existing.names:
            raise InputError(
                f"The table {table} has no column {field.name!r}, which the rows of the run have: "
                f"its columns are {names_in_words(existing.names)}. Add it with ALTER TABLE."
            )
        plain = plain_storage(field.type)
        own, there = _class_of(plain), _class_of(existing.field(field.name).type)
        is_kept = _sqlite_keeps if kind == "sqlite" else _is_wide_enough
        if "null" not in (own, there) and not is_kept(own, there, plain):
            there = f"decimal of {_SQLITE_DIGITS} digits" if own == there else there
            raise InputError(
                f"Column {field.name!r} of the rows is {own}, and that of the table {table} is "
                f"{there}: append to another table, or change the column."
            )


def _is_wide_enough(own: str, there: str, _: pa.DataType) -> bool:
    # Of lists that are all empty nothing says of what they are.
    is_empty_list = own == "list of null" and there.startswith("list of ")
    return own == there or (own, there) in _WIDENS or is_empty_list


def _sqlite_keeps(own: str, there: str, data_type: pa.DataType) -> bool:
    """Whether SQLite, which takes any value, makes no other one of it.

    In a column of numbers it makes numbers of text that looks like them, "01" among it; in one of
    text it makes text of numbers, with 15 digits.
    """
    is_text = there == "text"
    if own in ("boolean", "integer", "float"):
        return not is_text
    if own == "decimal":
        return is_text or data_type.precision <= _SQLITE_DIGITS
    return is_text or own != "text"


def fit_rows(rows: pa.Table, existing: pa.Schema, kind: DatabaseKind, table: str) -> pa.Table:
    """Return rows with the types that an existing table has."""
    refuse_columns(table, existing, list(rows.schema), kind)
    columns = {}
    for field in rows.schema:
        column = rows[field.name].cast(plain_storage(field.type)).combine_chunks()
        target = existing.field(field.name)
        try:
            fitted = _as_sqlite(column, target) if kind == "sqlite" else _as(column, target)
        except pa.ArrowException as error:
            raise InputError(
                f"Column {field.name!r} holds a value that does not fit the table {table}: "
                f"{' '.join(str(error).split())}."
            ) from error
        columns[field.name] = fitted
    return pa.table(columns)


def _as(column: pa.Array, target: pa.Field) -> pa.Array:
    if not is_numeric(target.type):
        return column.cast(target.type)
    exact = numeric_type(target)
    if exact is not None:
        return column.cast(exact)
    return column if pa.types.is_decimal(column.type) else column.cast(pa.decimal128(38, 0))


def _as_sqlite(column: pa.Array, target: pa.Field) -> pa.Array:
    sql_type(column.type, "sqlite", target.name)
    match _class_of(column.type):
        case "integer" if pa.types.is_floating(target.type):
            return column.cast(pa.float64())
        case "boolean" | "integer":
            return column.cast(pa.int64())
        case "float":
            return column.cast(pa.float64())
        case "bytes":
            return column.cast(pa.binary())
        case "timestamp":
            return pc.strftime(column, _ISO)
        case "timestamp with a zone":
            # In UTC: offsets had seconds, which no text of ISO 8601 has, and SQLite reads this one.
            return pc.strftime(column.cast(pa.timestamp(column.type.unit, "UTC")), _ISO + "+00:00")
        case _:
            return column.cast(pa.string())
