"""Rows of a run in a table of a database: each value is there, or its column is refused by name."""

import datetime as dt
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from partwise.connector.data_connector import DataConnector
from partwise.engine.works import produce_rows
from partwise.errors import ColumnError, InputError
from partwise.publishing.sql_output import Table, contents
from partwise.publishing.sql_target import Target
from partwise.sources.opening import open_source
from partwise.sources.sql.query import Query
from tests.borders.exact_values import Count, exact, exact_column, kind_of, nanoseconds
from tests.borders.type_borders import PARQUET_LACKS, Rows, differing, written

_LIBRARIES = ("arrow", "pandas")
"""Whose types the rows of runs are of, whatever library they came from."""
_SQLITE_HAS_NO_PLACE = ("duration", "nested")
_ROUNDED_TO_10000 = nanoseconds(dt.datetime(9999, 12, 31, 23, 59, 59, 999_500))  # noqa: DTZ001
"""SQLite's functions round to milliseconds, and know no year of five digits."""
_POSTGRESQL_HAS_NO_PLACE = ("duration",)


def append(rows: pa.Table, table: Table) -> None:
    """Append rows to a table as those of a partition of a run."""
    spans = [("one", 0, rows.num_rows)]
    with Target.opened(table.database, table.name) as target:
        target.prepare("run", 1, lambda: rows.schema)
        target.append("run", 1, rows, spans, contents(rows, spans))


def _refusal(rows: Rows, table: Table) -> str | None:
    """Append rows as a run stores them; return the sentence with which they are refused."""
    kept = {"prediction": np.zeros(len(rows.values))}
    try:
        produced = produce_rows(kept, DataConnector(rows.table), [], ["row", "x"], "value").rows
        append(written(produced), table)
    except (InputError, ColumnError) as error:
        return str(error)
    return None


def sqlite_output(rows: Rows, folder: Path) -> Iterator[str]:
    """SQLite holds the values, its times as text of ISO 8601, those of a zone in UTC."""
    if rows.case.library not in _LIBRARIES:
        return
    path = str(folder / "output.db")
    kind = rows.case.kind
    refusal = _refusal(rows, Table("t", path))
    too_large = kind == "integer" and any((each or 0) >= 2**63 for each in rows.values)
    if kind in _SQLITE_HAS_NO_PLACE or too_large:
        if refusal is None or "'x'" not in refusal:
            yield f"SQLite: {rows.type} is not refused: {refusal}"
        return
    if refusal is not None:
        if PARQUET_LACKS not in refusal:
            yield f"SQLite: {refusal}"
        return
    with closing(sqlite3.connect(path)) as connection:
        found = connection.execute("SELECT x FROM t ORDER BY row").fetchall()
        if kind in ("timestamp", "timestamp_tz"):
            clocks = connection.execute("SELECT datetime(x) FROM t ORDER BY row").fetchall()
            yield from _read_by_sqlite(rows, [text for (text,) in clocks])
    values = [None if value is None else _of_sqlite(value, kind) for (value,) in found]
    # It has no NaN, and in a column of numbers no -0.0.
    expected = [None if each == "nan" else each for each in rows.exact]
    if kind == "float":
        expected = [None if v is None or v != v else exact(v + 0.0, kind) for v in rows.values]
    yield from differing(expected, [exact(value, kind) for value in values], "SQLite")


def _of_sqlite(value: Any, kind: str) -> Any:
    match kind:
        case "boolean":
            return bool(value)
        case "decimal":
            return Decimal(value)
        case "date":
            return dt.date.fromisoformat(value)
        case "time":
            clock, _, fraction = value.partition(".")
            seconds = nanoseconds(dt.time.fromisoformat(clock))
            return Count(seconds + int(fraction.ljust(9, "0")))
        case "timestamp" | "timestamp_tz":
            text, zone = value.removesuffix("+00:00"), value.endswith("+00:00")
            if zone != (kind == "timestamp_tz"):
                return Count(-1)
            clock, _, fraction = text.partition(".")
            return Count(
                nanoseconds(dt.datetime.fromisoformat(clock)) + int(fraction.ljust(9, "0"))
            )
        case _:
            return value


def _read_by_sqlite(rows: Rows, found: list[str | None]) -> Iterator[str]:
    """SQLite's own functions of time read the text: to the second, rounded by some versions."""
    for value, text in zip(rows.values, found, strict=True):
        if text is None and value is not None and nanoseconds(value) >= _ROUNDED_TO_10000:
            continue
        if (value is None) != (text is None):
            yield f"SQLite reads {value!r} as {text!r}"
            return
        if text is None:
            continue
        apart = nanoseconds(value) - nanoseconds(dt.datetime.fromisoformat(text))
        if abs(apart) > 10**9:
            yield f"SQLite reads {value!r} as {text!r}"
            return


def postgresql_output(rows: Rows, uri: str, name: str) -> Iterator[str]:
    """PostgreSQL holds the values, as a query of it finds them."""
    kind = rows.case.kind
    refusal = _refusal(rows, Table(name, uri))
    of_ns = kind in ("timestamp", "timestamp_tz", "time") and any(
        each is not None and nanoseconds(each) % 1000 for each in rows.values
    )
    if kind in _POSTGRESQL_HAS_NO_PLACE or of_ns:
        if refusal is None or "'x'" not in refusal:
            yield f"PostgreSQL: {rows.type} is not refused: {refusal}"
        return
    if refusal is not None:
        if PARQUET_LACKS not in refusal and (kind != "nested" or "'x'" not in refusal):
            yield f"PostgreSQL: {refusal}"
        return
    query = Query(f"SELECT x, row FROM {name}", uri, order_by=["row"])
    found = pa.Table.from_batches(list(open_source(query).batches()))["x"]
    expected = rows.exact
    if kind == "integer" and kind_of(found.type) == "decimal":
        kind = "decimal"
        expected = [exact(value, kind) for value in rows.values]
    elif kind == "null":
        kind = "string"
    yield from differing(expected, exact_column(found, kind), "PostgreSQL")
