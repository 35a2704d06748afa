"""Columns of an SQLite query as Arrow types.

A column of SQLite has no type of its own but an affinity, by the words of its declaration (SQLite
manual, "Datatypes In SQLite", 3.1), and any value may stand in it. So every value is asked once.
"""

# ruff: noqa: S608 (the user's query is the point, and names are quoted)

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from partwise.errors import ColumnError
from partwise.formatting import counted
from partwise.sources.sql.databases import TypedColumn, quoted_name

_VIEW = "temp.partwise_query"
_TYPES = {
    "integer": pa.int64(),
    "real": pa.float64(),
    "text": pa.string(),
    "blob": pa.binary(),
}
"""Of the kinds that a value of SQLite may be of."""
_AT_ONCE = 300
"""Columns of one scan; a statement may have 2,000 results."""
_MOST_EXACT = 2**53
"""Up to which every whole number is a double."""
_FIRST = {"int64": "0", "double": "0.0", "string": "''", "binary": "x''"}


def sqlite_columns(cursor: Any, source: str) -> tuple[list[TypedColumn], int, int]:
    """Return the columns of what stands after FROM, its rows, and its size in bytes.

    One pass over the query, and one more where a column holds other values than it was declared
    for. Whole numbers alone are int64, with fractions among them double; a column declared as a
    fraction, a decimal or numeric is double always, so that the next rows do not change its type.
    """
    # A view gives names and declarations without a row being read, and is of one SELECT only.
    cursor.execute(f"CREATE TEMP VIEW {_VIEW.partition('.')[2]} AS SELECT * FROM {source}")
    cursor.fetchall()
    cursor.execute("PRAGMA temp.table_info(partwise_query)")
    declared = [(str(row[1]), affinity(str(row[2] or ""))) for row in cursor.fetchall()]
    columns, rows, size_bytes = [], 0, 0
    for start in range(0, len(declared), _AT_ONCE):
        some = dict(declared[start : start + _AT_ONCE])
        values = _values(cursor, some)
        # An aggregate of SQLite takes 0.1 us a row, so to ask each column for all kinds took four
        # times as long as to read them.
        if others := [name for name in some if name not in values]:
            values |= _values(cursor, dict.fromkeys(others, ""))
        for name, own in some.items():
            rows = values[name].rows
            columns.append(_column(name, own, values[name]))
            size_bytes += values[name].bulk + 8 * rows
    return columns, rows, size_bytes


@dataclass(frozen=True, slots=True)
class _Values:
    """What stands in a column."""

    rows: int
    counts: dict[str, int]
    """Of each kind."""
    wide: int = 0
    """Whole numbers that no double holds; looked for where they may be among doubles."""
    bulk: int = 0
    """Signs of its texts, and bytes."""


def _values(cursor: Any, expected: Mapping[str, str]) -> dict[str, _Values]:
    """Return what stands in those columns that hold nothing else than is expected.

    `expected`: the affinity of each column; one without any is asked for every kind.
    """
    parts = ["count(*)"]
    for name, kind in expected.items():
        parts += _parts_of(quoted_name(name), kind)
    listed = ", ".join(f"{part} AS c{place}" for place, part in enumerate(parts))
    cursor.execute(f"SELECT {listed} FROM {_VIEW}")
    rows, *found = (int(value or 0) for value in cursor.fetchall()[0])
    numbers = iter(found)
    values: dict[str, _Values] = {}
    for name, kind in expected.items():
        if kind in _TYPES:
            count, odd, bulk = (next(numbers) for _ in range(3))
            # Those that are null are odd as well.
            if odd == rows - count:
                counts = dict.fromkeys(_TYPES, 0) | {kind: count}
                values[name] = _Values(rows, counts, bulk=bulk)
        else:
            counts = {each: next(numbers) for each in _TYPES}
            values[name] = _Values(rows, counts, wide=next(numbers), bulk=next(numbers))
    return values


def _parts_of(quoted: str, kind: str) -> list[str]:
    """Return the aggregates that a column is looked at by, of which null is zero."""
    if kind in _TYPES:
        bulk = f"sum(length({quoted}))" if kind in ("text", "blob") else "0"
        return [f"count({quoted})", f"sum(typeof({quoted}) <> '{kind}')", bulk]
    is_wide = f"{quoted} NOT BETWEEN {-_MOST_EXACT} AND {_MOST_EXACT}"
    bulky = f"CASE WHEN typeof({quoted}) IN ('text', 'blob') THEN length({quoted}) END"
    return [
        *(f"sum(typeof({quoted}) = '{each}')" for each in _TYPES),
        f"sum(typeof({quoted}) = 'integer' AND {is_wide})",
        f"sum({bulky})",
    ]


def _column(name: str, own: str, values: _Values) -> TypedColumn:
    quoted, counts, wide = quoted_name(name), values.counts, values.wide
    there = [kind for kind in _TYPES if counts[kind]]
    numeric = set(there) <= {"integer", "real"}
    if len(there) > 1 and not numeric:
        found = ", ".join(f"{counts[kind]} of type {kind}" for kind in there)
        raise ColumnError(
            f"Column {name!r} of the SQLite query holds values of several types ({found}): write "
            f"CAST({quoted} AS TEXT) AS {quoted}, or leave the others out with WHERE."
        )
    if not there:
        kind = {"numeric": "real", "": "text"}.get(own, own)
    elif numeric:
        is_whole = there == ["integer"] and own not in ("real", "numeric")
        kind = "integer" if is_whole else "real"
        if wide and not is_whole:
            raise ColumnError(
                f"Column {name!r} of the SQLite query is to be of doubles, and has "
                f"{counted(wide, 'whole number')} beyond 2^53, from where several are one double: "
                f"write CAST({quoted} AS INTEGER) AS {quoted}, or AS REAL for the nearest ones."
            )
    else:
        kind = there[0]
    # Bytes are given as they are, whatever their column was declared as.
    is_as_stored = kind in (own, "blob")
    expression = quoted if is_as_stored else f"CAST({quoted} AS {kind.upper()})"
    return TypedColumn(name, _TYPES[kind], expression)


def affinity(declared: str) -> str:
    """Return the affinity of a declaration; "" where there is none, as of an expression."""
    declared = declared.upper()
    # In the order of SQLite's manual, as the first that fits decides: CHARINT is an integer.
    rules = (
        (("INT",), "integer"),
        (("CHAR", "CLOB", "TEXT"), "text"),
        (("BLOB",), "blob"),
        (("REAL", "FLOA", "DOUB"), "real"),
        (("DEC", "NUM"), "numeric"),
    )
    for words, affinity in rules:
        if any(word in declared for word in words):
            return affinity
    return ""


def first_row(columns: Sequence[TypedColumn], statement: str) -> str:
    """Return a statement whose first row shows the driver the types, and is to be left out.

    The driver takes a column for what stands in its first rows, and for int64 where that is null.
    """
    values = ", ".join(
        f"{_FIRST[str(column.type)]} AS {quoted_name(column.name)}" for column in columns
    )
    # With a LIMIT, the order of a subquery is never left out as being of no use.
    return f"SELECT {values} UNION ALL SELECT * FROM ({statement} LIMIT -1)"
