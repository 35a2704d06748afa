"""Filters as SQL: the same rows as `filter_batch` keeps, or, where SQL compares otherwise, more.

The caller filters again, so that a condition which a database would see differently is left out.
"""

from collections.abc import Mapping, Sequence
from itertools import starmap
from typing import Any

import pyarrow as pa

from partwise.sources.sql.databases import DatabaseKind, quoted_name, quoted_text
from partwise.tables.comparisons import ALWAYS, NEVER, comparison, equal_values
from partwise.tables.filters import Conditions

_MOST_VALUES = 10_000
_ALL = "1 = 1"
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

    def condition(name: str, operator: str, value: Any) -> str:
        sign, scalars = _compared(name, types[name], operator, value)
        text, bound = _condition(quoted_name(name), types[name], sign, scalars, kind)
        values.extend(bound)
        return text

    alternatives = [" AND ".join(starmap(condition, conditions)) for conditions in conjunctions]
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


def _condition(
    column: str, data_type: pa.DataType, sign: str, scalars: Sequence[pa.Scalar], kind: DatabaseKind
) -> tuple[str, list[Any]]:
    """Return a condition as SQL, and the values of its parameters."""
    if not scalars:
        return {ALWAYS: f"{column} IS NOT NULL", NEVER: "1 = 0"}.get(sign, _ALL), []
    kinds = pa.types
    literals: list[str | None]
    values: list[Any] = []
    if kind == "sqlite":
        # It reads some decimal fractions inexactly.
        literals = [None if kinds.is_binary(data_type) else "?"] * len(scalars)
        values = [scalar.as_py() for scalar in scalars]
    else:
        literals = [_literal(scalar) for scalar in scalars]
    if None in literals or len(literals) > _MOST_VALUES:
        return _ALL, []
    left = column
    if kinds.is_string(data_type) and kind == "sqlite":
        left = f"{column} COLLATE BINARY"
    elif kinds.is_string(data_type) and sign not in ("=", "in"):
        # Else texts are ordered as the language of the database has it.
        left = f'{column} COLLATE "C"'
    listed = ", ".join(text for text in literals if text is not None)
    if sign in ("in", "not in"):
        text = f"{left} {sign.upper()} ({listed})"
        # As pyarrow has it: a null is in no list.
        return (text if sign == "in" else f"({text} OR {column} IS NULL)"), values
    text = f"{left} {'<>' if sign == '!=' else sign} {listed}"
    if kinds.is_floating(data_type) and sign in (">", ">=") and kind == "postgresql":
        # For PostgreSQL NaN is the largest number.
        text = f"({text} AND {column} <> 'NaN')"
    return text, values


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
