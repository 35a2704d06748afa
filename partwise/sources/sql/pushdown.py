"""Filters as SQL: the same rows as `filter_batch` keeps, or, where SQL compares otherwise, more.

The caller filters again, so that a condition which a database would see differently is left out.
"""

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from partwise.sources.sql.databases import DatabaseKind, quoted_name, quoted_text
from partwise.tables.comparisons import ALWAYS, NEVER, comparison, equal_values
from partwise.tables.filters import Conditions

_MOST_VALUES = 10_000
_ALL = "TRUE"
_ANY = "any"
"""The sign of a condition that null passes as well: to be in no list of none."""


def where_clause(
    conjunctions: Conditions | None, types: Mapping[str, pa.DataType], kind: DatabaseKind
) -> tuple[str, list[Any]]:
    """Return a normalized filter as SQL.

    Returned are the clause, "" where nothing is to be filtered, and the values of its parameters.
    """
    if not conjunctions or kind not in ("postgresql", "sqlite"):
        return "", []
    values: list[Any] = []
    alternatives = []
    for conditions in conjunctions:
        parts = []
        for name, operator, value in conditions:
            data_type = types[name]
            if kind == "sqlite":
                part, bound = _sqlite(quoted_name(name), data_type, operator, value, name)
                values += bound
            else:
                part = _postgresql(quoted_name(name), data_type, operator, value, name)
            parts.append(part)
        alternatives.append(" AND ".join(parts))
    return " WHERE " + " OR ".join(f"({text})" for text in alternatives), values


def _compared(
    name: str, data_type: pa.DataType, operator: str, value: Any
) -> tuple[str, list[pa.Scalar]]:
    """Return the sign and the values of the column's type; none for a sign that needs none."""
    if operator in ("in", "not in"):
        scalars = equal_values(name, data_type, value)
        return (operator if scalars else {"in": NEVER}.get(operator, _ANY)), scalars
    sign, scalar = comparison(name, data_type, operator, value)
    return sign, [] if scalar is None else [scalar]


def _valueless(column: str, sign: str) -> str:
    return {ALWAYS: f"{column} IS NOT NULL", NEVER: "1 = 0"}.get(sign, "1 = 1")


def _sql_operator(operator: str) -> str:
    return {"==": "=", "!=": "<>"}.get(operator, operator).upper()


def _with_null(operator: str, column: str, text: str) -> str:
    # As pyarrow has it: a null is in no list.
    return f"({text} OR {column} IS NULL)" if operator == "not in" else text


def _postgresql(column: str, data_type: pa.DataType, operator: str, value: Any, name: str) -> str:
    kinds = pa.types
    operator, scalars = _compared(name, data_type, operator, value)
    if not scalars:
        return _valueless(column, operator)
    literals = [_literal(scalar) for scalar in scalars]
    if None in literals or len(literals) > _MOST_VALUES:
        return _ALL
    left, sign = column, _sql_operator(operator)
    if kinds.is_string(data_type) and operator not in ("=", "==", "in"):
        # Else texts are ordered as the language of the database has it.
        left = f'{column} COLLATE "C"'
    listed = ", ".join(text for text in literals if text is not None)
    if operator in ("in", "not in"):
        return _with_null(operator, column, f"{left} {sign} ({listed})")
    if kinds.is_floating(data_type) and operator in (">", ">="):
        # For PostgreSQL NaN is the largest number.
        return f"({left} {sign} {listed} AND {column} <> 'NaN')"
    return f"{left} {sign} {listed}"


def _literal(scalar: pa.Scalar) -> str | None:
    """A value as PostgreSQL has it; None where it has none that is surely the same."""
    kinds, data_type = pa.types, scalar.type
    if kinds.is_string(data_type):
        text = scalar.as_py()
        return None if "\0" in text else quoted_text(text)
    if kinds.is_boolean(data_type):
        return "TRUE" if scalar.as_py() else "FALSE"
    named = {
        "int16": "bigint", "int32": "bigint", "int64": "bigint",
        "float": "real", "double": "double precision",
        "date32[day]": "date", "time64[us]": "time",
    }  # fmt: skip
    sql_type = named.get(str(data_type))
    if kinds.is_decimal(data_type):
        sql_type = "numeric"
    elif kinds.is_timestamp(data_type):
        sql_type = "timestamp" if data_type.tz is None else "timestamptz"
    if sql_type is None:
        return None
    value = scalar.as_py()
    text = value.isoformat() if hasattr(value, "isoformat") else repr(value)
    if kinds.is_decimal(data_type):
        text = str(value)
    return f"CAST({quoted_text(text)} AS {sql_type})"


def _sqlite(
    column: str, data_type: pa.DataType, operator: str, value: Any, name: str
) -> tuple[str, list[Any]]:
    """The condition, with values as parameters: SQLite reads some decimal fractions inexactly."""
    operator, scalars = _compared(name, data_type, operator, value)
    if not scalars:
        return _valueless(column, operator), []
    values = [scalar.as_py() for scalar in scalars]
    textual = pa.types.is_string(data_type)
    if len(values) > _MOST_VALUES or pa.types.is_binary(data_type):
        return "1", []
    if textual:
        left = f"{column} COLLATE BINARY"
    elif pa.types.is_floating(data_type):
        left, values = column, [float(item) for item in values]
    else:
        left = column
    sign = _sql_operator(operator)
    if operator in ("in", "not in"):
        marks = ", ".join("?" * len(values))
        return _with_null(operator, column, f"{left} {sign} ({marks})"), values
    return f"{left} {sign} ?", values
