"""A publisher that is stopped between two transactions, and goes on when the run has gone on."""

import contextlib
import sqlite3

import pytest

from partwise.errors import OutputError
from partwise.publishing.sql_output import Table, publish
from partwise.publishing.sql_target import Target
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
