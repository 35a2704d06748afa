"""A table that rows are appended to, and its marks, through one connection.

PostgreSQL: an advisory lock keeps the publishers of one run apart, for a transaction each (manual,
13.3.5). SQLite: whoever writes first in a transaction is its only writer.
"""

# ruff: noqa: S608 (names and values are quoted)

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa

from partwise.errors import OutputError
from partwise.publishing.sql_columns import (
    OWN_COLUMNS,
    fit_rows,
    refuse_columns,
    sql_type,
    sqlite_field,
)
from partwise.sources.sql.databases import (
    Database,
    lower_case,
    quoted_name,
    quoted_text,
    table_parts,
)

MARKS = "partwise_published"
_AT_ONCE = 1000
"""Partitions in one condition; a statement of SQLite has a million characters at most."""


class Target:
    """A table in a transaction. What the database says becomes an `OutputError`."""

    def __init__(self, database: Database, name: str, connection: Any) -> None:
        self._connection = connection
        self._kind = database.kind
        self._shown = name
        elsewhere, self._folder, self._name = table_parts(name, self._kind)
        if elsewhere:
            self._refuse_other(elsewhere)
        if self._kind == "postgresql" and not self._folder:
            # So that "sales" and "public.sales" have the same marks.
            self._folder = self._find_folder()
        self._table = self._in_folder(self._name)
        self._key = self._table if self._kind == "postgresql" else lower_case(self._name)
        self._marks = self._in_folder(MARKS)
        self._schema = pa.schema([])
        self._had_rows = False

    @classmethod
    @contextmanager
    def opened(cls, database: Database, name: str) -> Iterator["Target"]:
        """Connect; what is not committed at the end is undone."""
        what = f"The table {name} of {database.shown} cannot be written"
        with database.telling(what, OutputError), database.connect("write") as connection:
            yield cls(database, name, connection)

    def _refuse_other(self, named: str) -> None:
        """PostgreSQL reaches the database of the connection only."""
        ((there,),) = self._execute("SELECT CAST(current_database() AS text)")
        if named != there:
            raise OutputError(
                f"The table {self._shown} is of the database {named!r}, and the URI names "
                f"{there!r}: give the URI of {named!r}, or leave it out of the name."
            )

    def _find_folder(self) -> str:
        """The schema in which PostgreSQL finds the table, or would create it."""
        there = f"to_regclass({self._text(quoted_name(self._name))})"
        found = self._execute(
            "SELECT CAST(coalesce((SELECT nspname FROM pg_class JOIN pg_namespace "
            f"ON pg_namespace.oid = relnamespace WHERE pg_class.oid = {there}), current_schema()) "
            "AS text)"
        )
        return str(found[0][0])

    def _in_folder(self, name: str) -> str:
        quoted = quoted_name(name)
        return f"{quoted_name(self._folder)}.{quoted}" if self._folder else quoted

    def _execute(self, statement: str) -> list[tuple[Any, ...]]:
        with closing(self._connection.cursor()) as cursor:
            cursor.execute(statement)
            return list(cursor.fetchall()) if cursor.description else []

    def _text(self, text: str) -> str:
        return quoted_text(text, self._kind)

    def _lock(self, what: str) -> None:
        """Wait until nobody else writes of the same, and keep them out until a commit."""
        if self._kind == "postgresql":
            key = self._text(f"partwise {self._key} {what}")
            taken = f"pg_advisory_xact_lock(hashtextextended({key}, 0))"
            self._execute(f"SELECT CAST({taken} AS text)")
        else:
            self._execute(f"DELETE FROM {self._marks} WHERE 0")

    def _is_there(self, table: str) -> bool:
        """Whether PostgreSQL has a table.

        By pg_class: one that it once found missing it looks up again only in a statement that locks
        some relation, and another publisher may have made it since.
        """
        name = f"to_regclass({self._text(table)})"
        return bool(self._execute(f"SELECT 1 FROM pg_class WHERE oid = {name}"))

    def missing_rights(self) -> list[str]:
        """Return what PostgreSQL does not let this role do, of that which `prepare` and others do.

        Of SQLite nothing is known before it is done.
        """
        if self._kind != "postgresql":
            return []
        missing, of_rows = [], ["SELECT", "INSERT", "DELETE"]
        for table, rights in (self._table, of_rows), (self._marks, [*of_rows, "UPDATE"]):
            what, name, shown = "table", table, table
            if not self._is_there(table):
                what, name, shown = "schema", self._folder, quoted_name(self._folder)
                rights = ["CREATE"]
            for right in rights:
                asked = f"has_{what}_privilege({self._text(name)}, '{right}')"
                if self._execute(f"SELECT {asked}") != [(True,)]:
                    missing.append(f"{right} on {shown}")
        return list(dict.fromkeys(missing))

    def find_schema(self) -> pa.Schema | None:
        """Return the columns of the table, of SQLite by their affinity; None: there is none."""
        if self._kind == "postgresql":
            if not self._is_there(self._table):
                return None
            with closing(self._connection.cursor()) as cursor:
                schema: pa.Schema = cursor.adbc_execute_schema(f"SELECT * FROM {self._table}")
                return schema
        columns = self._execute(f"PRAGMA table_info({quoted_name(self._name)})")
        fields = [sqlite_field(str(row[1]), str(row[2] or "")) for row in columns]
        return pa.schema(fields) if columns else None

    def prepare(
        self, run_id: str, generation: int, schema_of_rows: Callable[[], pa.Schema]
    ) -> None:
        """See to it that the table and its marks are there.

        From now on no older generation changes anything. `schema_of_rows` is asked where there is
        no table.
        """
        if self._kind == "postgresql":
            # Even with IF NOT EXISTS, PostgreSQL fails where two create a table at the same time.
            self._lock("")
        if self._kind != "postgresql" or not self._is_there(self._marks):
            # PostgreSQL asks for the right to create also where IF NOT EXISTS has nothing to do.
            self._execute(
                f"CREATE TABLE IF NOT EXISTS {self._marks} (table_name text NOT NULL, "
                "run_id text NOT NULL, partition_id text NOT NULL, content text NOT NULL, "
                "generation bigint NOT NULL, row_count bigint NOT NULL, "
                f"published_at {sql_type(pa.timestamp('us', 'UTC'), self._kind)} NOT NULL, "
                "PRIMARY KEY (table_name, run_id, partition_id))"
            )
        self._connection.commit()
        # Once more, as the commit has given the first one back.
        self._lock("")
        existing = self.find_schema()
        if existing is None:
            self._create(schema_of_rows())
            existing = self.find_schema()
        self._schema = existing or pa.schema([])
        self._connection.commit()
        self._take_turn(run_id, generation)
        held = f"SELECT 1 FROM {self._table} WHERE {self._of(run_id)} LIMIT 1"
        self._had_rows = bool(self._execute(held))
        if not self._had_rows:
            # Somebody dropped or emptied the table: marks of its partitions speak of no rows.
            self._execute(
                f"DELETE FROM {self._marks} WHERE {self._marked(run_id)} AND partition_id <> ''"
            )
        self._connection.commit()

    def _take_turn(self, run_id: str, generation: int) -> None:
        """Begin a transaction for a generation, unless a newer one has begun to publish the run.

        The number stands in a mark without partition. So a publisher that was stopped for long, and
        goes on when the run has been resumed and published, appends and removes nothing more: the
        database compares the numbers in the very transaction that would.
        """
        self._lock(run_id)
        mark = f"{self._marked(run_id)} AND partition_id = ''"
        found = self._execute(f"SELECT generation FROM {self._marks} WHERE {mark}")
        newest = max((int(number) for (number,) in found), default=None)
        if newest is None:
            self._execute(
                f"INSERT INTO {self._marks} VALUES ({self._text(self._key)}, {self._text(run_id)}, "
                f"'', '', {int(generation)}, 0, CURRENT_TIMESTAMP)"
            )
        elif newest > generation:
            raise OutputError(
                f"The table {self._shown} has rows of generation {newest} of the run {run_id!r}, "
                f"and generation {generation} is older: another process has gone on with the run "
                f"and published it. Where that was another run of this ID, delete its rows there, "
                f"and those of {MARKS}."
            )
        elif newest < generation:
            self._execute(f"UPDATE {self._marks} SET generation = {int(generation)} WHERE {mark}")

    def _create(self, rows: pa.Schema) -> None:
        refuse_columns(self._shown, None, list(rows), self._kind)
        own = [pa.field(name, pa.string()) for name in OWN_COLUMNS]
        columns = [
            f"{quoted_name(field.name)} {sql_type(field.type, self._kind, field.name)}"
            for field in [*own, *rows]
        ]
        self._execute(f"CREATE TABLE {self._table} ({', '.join(columns)})")
        # Without a name PostgreSQL takes one that is free; SQLite wants one.
        index = "" if self._kind == "postgresql" else quoted_name(f"{self._name}_of_run")
        self._execute(f"CREATE INDEX {index} ON {self._table} (run_id, partition_id)")

    def _of(self, run_id: str) -> str:
        return f"run_id = {self._text(run_id)}"

    def _marked(self, run_id: str) -> str:
        return f"table_name = {self._text(self._key)} AND {self._of(run_id)}"

    def _listed(self, names: Sequence[str]) -> Iterator[str]:
        for start in range(0, len(names), _AT_ONCE):
            some = ", ".join(self._text(name) for name in names[start : start + _AT_ONCE])
            yield f"partition_id IN ({some})"

    def _delete(self, run_id: str, names: Sequence[str]) -> None:
        for listed in self._listed(names):
            self._execute(f"DELETE FROM {self._table} WHERE {self._of(run_id)} AND {listed}")
            self._execute(f"DELETE FROM {self._marks} WHERE {self._marked(run_id)} AND {listed}")

    def append(
        self,
        run_id: str,
        generation: int,
        rows: pa.Table,
        spans: Sequence[tuple[str, int, int]],
        contents: Mapping[str, str],
    ) -> tuple[int, int, int]:
        """Write the partitions of a file that are not there, or otherwise, in one transaction.

        What a newer generation wrote is left alone. `spans` are partition IDs, each with its first
        row and the one after its last; `contents` has a fingerprint of the rows of each. Returned
        are the rows and partitions written, and how many of these were replaced.
        """
        self._take_turn(run_id, generation)
        marks: dict[str, tuple[str, int]] = {}
        for listed in self._listed([name for name, _, _ in spans]):
            found = self._execute(
                f"SELECT partition_id, content, generation FROM {self._marks} "
                f"WHERE {self._marked(run_id)} AND {listed}"
            )
            marks |= {name: (content, number) for name, content, number in found}
        wanted = [
            (name, start, end)
            for name, start, end in spans
            if name not in marks
            or (marks[name][0] != contents[name] and marks[name][1] <= generation)
        ]
        replaced = [name for name, _, _ in wanted if name in marks]
        if wanted:
            names = [name for name, _, _ in wanted]
            # Where somebody took the marks away, the rows may be there all the same.
            self._delete(run_id, names if self._had_rows else replaced)
            self._ingest(self._name, self._rows_of(run_id, rows, wanted))
            self._ingest(MARKS, self._marks_of(run_id, generation, wanted, contents))
        self._connection.commit()
        return sum(end - start for _, start, end in wanted), len(wanted), len(replaced)

    def _rows_of(
        self, run_id: str, rows: pa.Table, spans: Sequence[tuple[str, int, int]]
    ) -> pa.Table:
        places = np.concatenate([np.arange(start, end) for _, start, end in spans])
        counts = [end - start for _, start, end in spans]
        names = pa.array([name for name, _, _ in spans], pa.string())
        of_row = names.take(pa.array(np.repeat(np.arange(len(spans)), counts)))
        own = [pa.repeat(pa.scalar(run_id), len(of_row)), of_row]
        fitted = fit_rows(rows.take(pa.array(places)), self._schema, self._kind, self._shown)
        columns = dict(zip(OWN_COLUMNS, own, strict=True))
        return pa.table({**columns, **{n: fitted[n] for n in fitted.column_names}})

    def _marks_of(
        self,
        run_id: str,
        generation: int,
        spans: Sequence[tuple[str, int, int]],
        contents: Mapping[str, str],
    ) -> pa.Table:
        count = len(spans)
        now = pa.scalar(datetime.now(UTC), pa.timestamp("us", "UTC"))
        table = {
            "table_name": pa.repeat(pa.scalar(self._key), count),
            "run_id": pa.repeat(pa.scalar(run_id), count),
            "partition_id": pa.array([name for name, _, _ in spans], pa.string()),
            "content": pa.array([contents[name] for name, _, _ in spans], pa.string()),
            "generation": pa.repeat(pa.scalar(generation, pa.int64()), count),
            "row_count": pa.array([end - start for _, start, end in spans], pa.int64()),
            "published_at": pa.repeat(now, count),
        }
        return pa.table(table)

    def _ingest(self, name: str, rows: pa.Table) -> None:
        with closing(self._connection.cursor()) as cursor:
            folder = {"db_schema_name": self._folder} if self._folder else {}
            cursor.adbc_ingest(name, rows, mode="append", **folder)

    def remove_others(self, run_id: str, generation: int, kept: Collection[str]) -> int:
        """Take out what is there of a run's partitions that are no longer done; return how many."""
        self._take_turn(run_id, generation)
        marked = self._execute(
            f"SELECT partition_id FROM {self._marks} WHERE {self._marked(run_id)} "
            f"AND partition_id <> '' AND generation <= {int(generation)}"
        )
        others = [name for (name,) in marked if name not in kept]
        self._delete(run_id, others)
        self._connection.commit()
        return len(others)
