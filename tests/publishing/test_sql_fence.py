"""A publisher that is stopped between two transactions, and goes on when the run has gone on."""

import contextlib
import sqlite3

import pyarrow as pa
import pytest

from partwise.errors import OutputError
from partwise.publishing.sql_output import Table, publish
from partwise.publishing.sql_target import Target
from partwise.sources.sql.databases import table_parts
from tests.one_shard import drive

FIRST = {"a": 1.0, "b": 2.0, "c": 3.0, "d": 4.0}
WITHOUT_C = {"a": 1.0, "b": 20.0, "d": 4.0}


def rows(table: Table) -> list[tuple[str, float]]:
    with sqlite3.connect(table.uri) as connection:
        return connection.execute("SELECT key, value FROM t ORDER BY key, value").fetchall()


@pytest.mark.parametrize(("old", "new"), [(FIRST, WITHOUT_C), (WITHOUT_C, FIRST)])
def test_a_publisher_that_was_given_up_changes_nothing(
    tmp_path, local_store, monkeypatch, old, new
) -> None:
    table = Table("t", str(tmp_path / "t.db"))
    lock = Target._lock
    count = stopped = stop_at = 0

    def stop(target: Target, what: str) -> None:
        nonlocal count, stopped
        count += 1
        if count == stop_at:
            stopped += 1
            # Its connection has nothing open here: a transaction begins with its lock.
            publish(drive(local_store, new), table)
        lock(target, what)

    monkeypatch.setattr(Target, "_lock", stop)
    for number in range(1, 9):
        count, stop_at = 0, 0
        # What is there before has rows that the newest run keeps, and rows that it has no more.
        publish(drive(local_store, FIRST, on_existing="overwrite"), table)
        older = drive(local_store, old, on_existing="overwrite")
        count, stop_at = 0, number
        with contextlib.suppress(OutputError):
            publish(older, table)
        if stopped < number:
            break
        assert rows(table) == sorted(new.items()), f"stopped before transaction {number}"
    assert stopped >= 4


@pytest.mark.parametrize("kind", ["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)])
@pytest.mark.parametrize("how", ["DROP TABLE gone", "DELETE FROM gone"])
def test_rows_that_somebody_took_away_are_published_again(
    tmp_path, local_store, request, kind, how
) -> None:
    uri = str(tmp_path / "t.db")
    if kind == "postgresql":
        server = request.getfixturevalue("postgres_server")
        server.execute("DROP TABLE IF EXISTS gone")
        uri = server.uri
    run, table = drive(local_store, FIRST), Table("gone", uri)
    assert publish(run, table).partitions == len(FIRST)
    assert publish(run, table).unchanged == len(FIRST)
    if kind == "postgresql":
        server.execute(how)
    else:
        with sqlite3.connect(uri) as connection:
            connection.execute(how)

    again = publish(run, table)

    assert (again.rows, again.unchanged) == (len(FIRST), 0)
    assert publish(run, table).unchanged == len(FIRST)
    # An older generation stays shut out.
    with (
        pytest.raises(OutputError, match="generation 0 is older"),
        Target.opened(table.database, table.name) as target,
    ):
        target.prepare("run", 0, lambda: pa.schema([]))


def test_a_resume_without_rows_takes_those_of_before_out(tmp_path, local_store) -> None:
    table = Table("t", str(tmp_path / "t.db"))
    nothing = drive(local_store, FIRST, gives_rows=False)
    assert str(publish(nothing, table)) == "no rows to append to t"

    publish(drive(local_store, FIRST, "other code"), table)
    assert rows(table) == sorted(FIRST.items())
    gone = publish(drive(local_store, FIRST, gives_rows=False), table)
    assert str(gone) == "0 rows of 0 partitions appended to t (4 taken out)"
    assert rows(table) == []
    assert str(publish(drive(local_store, FIRST, gives_rows=False), table)) == (
        "no rows to append to t"
    )


def test_tables_whose_names_differ_in_the_case_of_a_letter_beyond_ascii_are_two(
    tmp_path, local_store
) -> None:
    path, run = str(tmp_path / "t.db"), drive(local_store, FIRST)
    for name in ('"Ä"', '"ä"', '"Öl"', '"öL"'):
        assert publish(run, Table(name, path)).rows == len(FIRST), name
    # SQLite takes these for one.
    assert publish(run, Table('"ÖL"', path)).unchanged == len(FIRST)
    assert table_parts("Öl.ÄPFEL", "postgresql") == ("", "Öl", "Äpfel")
