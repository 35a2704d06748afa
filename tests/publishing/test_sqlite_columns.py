"""What SQLite would make another value of: refused by a sentence, or written as it reads it."""

import datetime as dt
import sqlite3
from contextlib import closing
from decimal import Decimal

import pyarrow as pa
import pytest

from partwise.errors import InputError
from partwise.publishing.sql_output import Table, check_table
from tests.borders.database_borders import append

EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
INSTANTS = [
    dt.datetime(1, 1, 1, tzinfo=dt.UTC),
    dt.datetime(1582, 10, 14, 12, tzinfo=dt.UTC),
    dt.datetime(1899, 12, 31, 23, 59, 59, tzinfo=dt.UTC),
    dt.datetime(1900, 1, 1, tzinfo=dt.UTC),
    dt.datetime(1919, 12, 31, 12, tzinfo=dt.UTC),
    dt.datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=dt.UTC),
    dt.datetime(1971, 6, 1, tzinfo=dt.UTC),
    dt.datetime(2052, 7, 1, tzinfo=dt.UTC),
    dt.datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=dt.UTC),
]
ZONES = [
    *("UTC", "Europe/Amsterdam", "Asia/Kathmandu", "Africa/Monrovia", "America/New_York"),
    *("Australia/Lord_Howe", "Pacific/Apia", "+05:30", "-12:00"),
]


def stored(path, query: str) -> list:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(query).fetchall()


@pytest.mark.parametrize("zone", ZONES)
def test_instants_of_every_zone_and_age_are_the_same_in_sqlite(tmp_path, zone) -> None:
    path = str(tmp_path / "t.db")
    append(pa.table({"at": pa.array(INSTANTS, pa.timestamp("us", zone))}), Table("t", path))

    found = [dt.datetime.fromisoformat(text) for (text,) in stored(path, "SELECT at FROM t")]
    assert found == INSTANTS
    # In the order of time, and so that SQLite's functions know it: they round to milliseconds.
    days = stored(path, "SELECT strftime('%s', at) FROM t ORDER BY at LIMIT 8")
    seconds = [(moment - EPOCH) // dt.timedelta(seconds=1) for moment in INSTANTS]
    for (second,), wanted in zip(days, seconds[:8], strict=True):
        assert abs(int(second) - wanted) <= 1


@pytest.mark.parametrize(
    ("declared", "values", "words"),
    [
        ("INTEGER", ["01"], "is text, .* integer"),
        ("NUMERIC", ["1e3"], "is text, .* decimal"),
        ("DATE", ["2024"], "is text, .* decimal"),
        ("REAL", ["7"], "is text, .* float"),
        ("VARCHAR(20)", [0.1 + 0.2], "is float, .* text"),
        ("TEXT", [1], "is integer, .* text"),
        ("DECIMAL(30, 2)", [Decimal("1234567890123456.78")], "is decimal, .* decimal"),
        ("REAL", [2**53 + 1], "holds a value that does not fit"),
    ],
)
def test_a_column_that_would_make_other_values_is_refused(
    tmp_path, declared, values, words
) -> None:
    path = str(tmp_path / "t.db")
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"CREATE TABLE t (run_id text, partition_id text, x {declared})")
    rows = pa.table({"x": values})
    with pytest.raises(InputError, match=f"'x' .*{words}"):
        append(rows, Table("t", path))
    if "does not fit" not in words:
        # Before any work as well.
        with pytest.raises(InputError, match=f"'x' .*{words}"):
            check_table(Table("t", path), list(rows.schema))
    assert stored(path, "SELECT x FROM t") == []


@pytest.mark.parametrize(
    ("declared", "value", "found"),
    [
        ("DATE", dt.date(2024, 2, 29), "2024-02-29"),
        ("DATETIME", dt.datetime(2024, 2, 29, 1), "2024-02-29T01:00:00.000000"),  # noqa: DTZ001
        ("DECIMAL(9, 2)", Decimal("1.25"), 1.25),
        ("NUMERIC", 2**62 + 1, 2**62 + 1),
        ("BOOLEAN", True, 1),
        ("", "01", "01"),
        ("BLOB", "01", "01"),
        ("TEXT", Decimal("0.10"), "0.10"),
    ],
)
def test_columns_declared_for_what_they_hold_take_it(tmp_path, declared, value, found) -> None:
    path = str(tmp_path / "t.db")
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"CREATE TABLE t (run_id text, partition_id text, x {declared})")
    append(pa.table({"x": [value]}), Table("t", path))
    assert stored(path, "SELECT x FROM t") == [(found,)]


@pytest.mark.parametrize("declared", ["", "CREATE TABLE t (run_id text, partition_id text, x)"])
def test_columns_that_differ_in_their_case_alone_are_refused_before_any_work(
    tmp_path, declared
) -> None:
    table, rows = Table("t", str(tmp_path / "t.db")), pa.table({"x": [1], "X": [2]})
    with closing(sqlite3.connect(table.uri)) as connection:
        connection.execute(declared)
    for refuse in (lambda: check_table(table, list(rows.schema)), lambda: append(rows, table)):
        with pytest.raises(InputError, match="columns 'x' and 'X', which are one to SQLite"):
            refuse()


@pytest.mark.parametrize(
    ("name", "values", "words"),
    [
        ("x", pa.array([1], pa.duration("us")), "'x' of type duration.* no place in a table of"),
        ("x", pa.array([[1]]), "'x' of type list.* no place in a table of SQLite"),
        ("run_id", pa.array(["a"]), "a column 'run_id', which partwise adds itself"),
        ("Partition_ID", pa.array(["a"]), "a column 'Partition_ID', which partwise adds itself"),
    ],
)
@pytest.mark.parametrize("declared", ["", "TEXT", "BLOB"])
def test_a_column_without_a_place_is_refused_before_any_work(
    tmp_path, declared, name, values, words
) -> None:
    table, rows = Table("t", str(tmp_path / "t.db")), pa.table({name: values})
    if declared:
        with closing(sqlite3.connect(table.uri)) as connection:
            connection.execute(f"CREATE TABLE t (run_id text, partition_id text, x {declared})")
    with pytest.raises(InputError, match=words):
        check_table(table, list(rows.schema))
    with pytest.raises(InputError, match=words):
        append(rows, table)
    if not declared:
        assert stored(table.uri, "SELECT * FROM sqlite_master WHERE tbl_name = 't'") == []
