"""Columns of a PostgreSQL query as Arrow types, and what the server casts to give them.

A `numeric(p, s)` has its precision and scale in its type modifier, as ((p << 16) | s) + 4
(PostgreSQL source, src/backend/utils/adt/numeric.c).
"""

# ruff: noqa: S608 (the user's query is the point, and names are quoted)

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from partwise.errors import ColumnError
from partwise.sources.sql.databases import TypedColumn, quoted_name

_AS_TEXT = ("uuid", "json", "jsonb", "bpchar")
_TEXTS = ("text", "varchar", "name", "char")
_LISTED = (
    *("bool", "int2", "int4", "int8", "float4", "float8", "bytea"),
    *("date", "time", "timestamp", "timestamptz", *_TEXTS),
)
_REFUSED = {
    "money": "CAST({} AS numeric(18, 2))",
    "interval": "EXTRACT(EPOCH FROM {})",
    "xml": "CAST({} AS text)",
    "timetz": "CAST({} AS text)",
}
_MOST_DIGITS = 76
_EARLIEST_DAY = -2_440_588
"""1970-01-01 less the first day of the Julian calendar, 4714-11-24 BC: PostgreSQL's first day. What
is infinite arrives as a number before it, and so does what is too late for Arrow."""
_DAY_US = 86_400_000_000


def postgresql_columns(cursor: Any, source: str) -> list[TypedColumn]:
    """Return the columns of what stands after FROM; the query is described, and not run."""
    schema = cursor.adbc_execute_schema(f"SELECT * FROM {source} AS q")
    oids = [oid for field in schema if (oid := _oid(field)) is not None]
    names = _type_names(cursor, oids) if oids else {}
    return [_column(field, names) for field in schema]


def _postgres_type(field: pa.Field) -> str:
    return str((field.metadata or {}).get(b"POSTGRESQL:type", b"").decode())


def _oid(field: pa.Field) -> str | None:
    name = _postgres_type(field)
    return name[len("unnamed<oid:") : -1] if name.startswith("unnamed<oid:") else None


def _type_names(cursor: Any, oids: list[str]) -> dict[str, tuple[bool, bool, str]]:
    """For each type: whether it is an enum, whether an array, and its name."""
    cursor.execute(
        "SELECT CAST(oid AS text) AS oid, typtype = 'e' AS enum, typcategory = 'A' AS list, "
        f"format_type(oid, NULL) AS name FROM pg_type WHERE oid IN ({', '.join(oids)})"
    )
    return {oid: (enum, array, name) for oid, enum, array, name in cursor.fetchall()}


def _column(field: pa.Field, names: dict[str, tuple[bool, bool, str]]) -> TypedColumn:
    name, quoted, type_name = field.name, quoted_name(field.name), _postgres_type(field)
    if (oid := _oid(field)) is not None:
        enum, array, type_name = names.get(oid, (False, False, f"type {oid}"))
        if enum:
            return TypedColumn(name, pa.string(), f"CAST({quoted} AS text)")
        return _refused(name, type_name, f"CAST({{}} AS text{'[]' if array else ''})")
    if type_name in _AS_TEXT:
        return TypedColumn(name, pa.string(), f"CAST({quoted} AS text)")
    if type_name == "numeric":
        exact = numeric_type(field)
        if exact is not None:
            return TypedColumn(name, exact, quoted)
        return TypedColumn(name, pa.float64(), f"CAST({quoted} AS double precision)")
    if pa.types.is_list(field.type):
        return _list_column(name, type_name, field.type.value_type)
    if pa.types.is_string(field.type) and type_name not in _TEXTS:
        # An enum, whose values have an order of their own.
        return TypedColumn(name, pa.string(), f"CAST({quoted} AS text)")
    odd = isinstance(field.type, pa.BaseExtensionType) or pa.types.is_nested(field.type)
    if type_name in _REFUSED or odd:
        return _refused(name, type_name, _REFUSED.get(type_name, "CAST({} AS text)"))
    return TypedColumn(name, field.type, quoted)


def _list_column(name: str, type_name: str, item: pa.DataType) -> TypedColumn:
    quoted, type_name = quoted_name(name), type_name.removeprefix("_")
    if type_name == "numeric":
        item, type_name, quoted = pa.float64(), "float8", f"CAST({quoted} AS double precision[])"
    elif type_name in _AS_TEXT or (pa.types.is_string(item) and type_name not in _TEXTS):
        item, type_name, quoted = pa.string(), "text", f"CAST({quoted} AS text[])"
    elif type_name not in _LISTED:
        return _refused(name, f"{type_name}[]", "CAST({} AS text[])")
    # The driver would lay out arrays of several dimensions as one list, without a word.
    dimensions = f"array_ndims({quoted_name(name)}) || ' dimensions in one array'"
    expression = (
        f"CASE WHEN array_ndims({quoted_name(name)}) > 1 "
        f"THEN CAST({dimensions} AS pg_catalog._{type_name}) ELSE {quoted} END"
    )
    return TypedColumn(name, pa.list_(item), expression)


def _refused(name: str, type_name: str, cast: str) -> TypedColumn:
    written = f"{cast.format(quoted_name(name))} AS {quoted_name(name)}"
    refusal = f"is of PostgreSQL's type {type_name}, which has no Arrow type: write {written}."
    return TypedColumn(name, pa.binary(), quoted_name(name), refusal)


def numeric_type(field: pa.Field) -> pa.DataType | None:
    """The Arrow type of a numeric; None where it has no precision, or one that Arrow lacks."""
    modifier = int((field.metadata or {}).get(b"POSTGRESQL:typmod", b"-1"))
    if modifier < 4:
        return None
    # A scale below 0, which PostgreSQL 15 has, is above every precision in these 11 bits.
    precision, scale = (modifier - 4) >> 16 & 0xFFFF, (modifier - 4) & 0x7FF
    if precision > _MOST_DIGITS or scale > precision:
        return None
    return pa.decimal128(precision, scale) if precision <= 38 else pa.decimal256(precision, scale)


def is_numeric(data_type: pa.DataType) -> bool:
    """Whether this is the driver's type for `numeric`, a text."""
    return isinstance(data_type, pa.OpaqueType) and data_type.type_name == "numeric"


def check_finite(array: pa.Array, name: str) -> None:
    """Refuse dates and time stamps that are infinite, or too far away."""
    kinds = pa.types
    if kinds.is_list(array.type):
        array = array.flatten()
    if kinds.is_date32(array.type):
        numbers, first = array.cast(pa.int32()), _EARLIEST_DAY
    elif kinds.is_timestamp(array.type):
        numbers, first = array.cast(pa.int64()), _EARLIEST_DAY * _DAY_US
    else:
        return
    lowest = pc.min(numbers).as_py()
    if lowest is not None and lowest < first:
        raise ColumnError(
            f"Column {name!r} holds a time that is infinite, or later than Arrow can hold: leave "
            f"it out with WHERE, or write NULLIF({quoted_name(name)}, 'infinity')."
        )
