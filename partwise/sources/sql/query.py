"""Rows of a database: a query or a table, streamed over ADBC, filtered and cut down by the server.

How types arrive is decided here, before a row is read, and alike for every run:

PostgreSQL describes a query without running it. What Arrow has no type for is cast by the server:
`numeric(p, s)` is decimal, `numeric` without precision double, uuid, json, jsonb, enums and char(n)
text; what else the driver cannot say (ranges, network addresses, intervals, money...) is refused
with the cast to write. SQLite has types of values, not of columns, and its driver believes the
first rows: here one pass over the query asks for the type of every value instead.
"""

# ruff: noqa: S608 (the user's query is the point, and names are quoted)

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

import pyarrow as pa

from partwise.errors import ColumnError, InputError, SourceError
from partwise.sources.fragments import Fragment, LocalFragment, OpaqueRows
from partwise.sources.sql.databases import (
    Database,
    DatabaseKind,
    TypedColumn,
    quoted_name,
    subquery,
)
from partwise.sources.sql.postgresql_types import check_finite, postgresql_columns
from partwise.sources.sql.pushdown import where_clause
from partwise.sources.sql.sqlite_types import first_row, sqlite_columns
from partwise.tables.column_names import names_in_words
from partwise.tables.decimals import cast_values
from partwise.tables.filters import Conditions, filter_columns

_BATCH_BYTES = 4 << 20
_BATCH_ROWS = 32_768


@dataclass(frozen=True, slots=True)
class Query:
    """Rows of a database, as a source.

    Args:
        query: A SELECT, or the name of a table (`sales`, `public.sales`, `"Sales"`).
        uri: `postgresql://user@host:5432/name`, or the path of an SQLite file.
        driver: The kind of database, where the URI does not say; "snowflake" and "bigquery" go the
            same way, and are not tested.
        order_by: Columns by which the rows come; without them a database gives them as it likes.
            A resume compares a partition's rows in their order, so name enough of them to leave
            no ties: else partitions that did not change may run again.
        password: The password, where it does not stand in the URI (nor in `PGPASSWORD` or
            `~/.pgpass`).
        options: Settings of the ADBC driver (`db_kwargs`), for Snowflake and BigQuery.
        block: The saved block that this was made of, such as "query-block/prod": it is written down
            for a resume, in place of a URI with a password.

    Example:
        >>> Query("SELECT * FROM sales WHERE open", "postgresql://reader@db/shop", order_by=["day"])
        Query('SELECT * FROM sales WHERE open', 'postgresql://reader@db/shop')
    """

    query: str
    uri: str
    driver: DatabaseKind | None = None
    order_by: Sequence[str] = ()
    password: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    block: str = ""

    def __post_init__(self) -> None:
        if isinstance(self.order_by, str):
            object.__setattr__(self, "order_by", (self.order_by,))
        subquery(self.query)
        kind = self.database.kind
        if not self.uri and kind in ("postgresql", "sqlite"):
            raise InputError(f"A query of {kind} needs a URI: it is empty.")

    def __repr__(self) -> str:
        database = self.database
        return f"Query({database.redact(self.query)!r}, {database.shown!r})"

    @property
    def database(self) -> Database:
        """Where the rows are."""
        return Database(
            uri=self.uri, driver=self.driver, password=self.password, options=self.options
        )


class QueryRows(OpaqueRows):
    """The rows of a query: what `open_source` makes a source of."""

    def __init__(self, query: Query) -> None:
        self._query = query
        self._database = query.database
        self._kind = self._database.kind
        self._from = subquery(query.query)
        self._columns: dict[str, TypedColumn] = {}
        self._size_bytes = 0
        with (
            self._database.connect() as connection,
            closing(connection.cursor()) as cursor,
            self._database.telling(f"{self._named} cannot be read"),
        ):
            columns = self._find_columns(cursor)
        names = [column.name for column in columns]
        if len(set(names)) < len(names):
            twice = sorted({name for name in names if names.count(name) > 1})
            raise ColumnError(
                f"{self._named} gives two columns of the name {names_in_words(twice)}: name one of "
                "them otherwise, with AS."
            )
        self._columns = {column.name: column for column in columns}
        self.schema = pa.schema([(column.name, column.type) for column in columns])
        for name in query.order_by:
            if name not in self._columns:
                raise ColumnError(
                    f"order_by names column {name!r}, which {self._named} does not give: its "
                    f"columns are {names_in_words(self.schema.names)}."
                )

    @property
    def _named(self) -> str:
        text = self._database.redact(" ".join(self._query.query.split()))
        return f"The query {text if len(text) <= 80 else text[:77] + '...'!r}"

    def _find_columns(self, cursor: Any) -> list[TypedColumn]:
        match self._kind:
            case "sqlite":
                columns, rows, self._size_bytes = sqlite_columns(cursor, self._from)
                if rows == 0:
                    raise SourceError(f"{self._named} gives no rows.")
                return columns
            case "postgresql":
                columns = postgresql_columns(cursor, self._from)
                self._size_bytes = _estimate(cursor, self._from)
                return columns
            case _:
                schema = cursor.adbc_execute_schema(f"SELECT * FROM {self._from} AS q")
                return [
                    TypedColumn(f.name, f.type, quoted_name(f.name, self._kind)) for f in schema
                ]

    def size_bytes(self, names: Sequence[str]) -> int:
        """What the planner expects of all columns, scaled to some of them by their number."""
        # Asked for before a row is read: what cannot be read is refused here.
        for name in names:
            if refusal := self._columns[name].refusal:
                raise ColumnError(
                    f"Column {name!r} of {self._named[0].lower()}{self._named[1:]} {refusal}"
                )
        return self._size_bytes * len(names) // max(1, len(self._columns))

    def recipe(self) -> dict[str, Any] | None:
        """What makes the query again; None where its password would have to be written down."""
        query = self._query
        if query.block:
            return {"block": query.block}
        if self._database.has_secret:
            return None
        uri = query.uri
        if self._kind == "sqlite" and not uri.startswith("file:"):
            # In another folder a relative path means another file.
            uri = f"sqlite:///{os.path.abspath(uri.removeprefix('sqlite:///'))}"
        return {"query": asdict(query) | {"uri": uri, "order_by": list(query.order_by)}}

    def statement(
        self, names: Sequence[str], conditions: Conditions | None
    ) -> tuple[str, list[Any]]:
        """Return what the server is asked for some columns of some rows.

        Returned are the statement, and the values of its parameters.
        """
        kind = self._kind
        looked_at = filter_columns(conditions)
        inner = list(dict.fromkeys([*names, *looked_at, *self._query.order_by]))
        casts = ", ".join(
            f"{self._columns[name].expression} AS {quoted_name(name, kind)}" for name in inner
        )
        chosen = ", ".join(quoted_name(name, kind) for name in names)
        types = {name: column.type for name, column in self._columns.items()}
        where, values = where_clause(conditions, types, kind)
        # The filter stands outside, where columns have the types that its values are compared in.
        text = f"SELECT {chosen} FROM (SELECT {casts} FROM {self._from} AS q) AS q{where}"
        if self._query.order_by:
            text += " ORDER BY " + ", ".join(quoted_name(n, kind) for n in self._query.order_by)
        if kind == "sqlite":
            text = first_row([self._columns[name] for name in names], text)
        return text, values

    def fragments(
        self,
        names: Sequence[str],
        conditions: Conditions | None,
        keys: Sequence[str] = (),  # noqa: ARG002 (nothing is known of them)
    ) -> list[Fragment]:
        """The whole query: it is read by the driver, so that its password is nowhere else."""
        read = partial(self.batches, names, conditions)
        return [LocalFragment(stream=read, size_bytes=self.size_bytes(names))]

    def batches(
        self, names: Sequence[str], conditions: Conditions | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Stream some columns; the server leaves out what a normalized filter does not keep."""
        schema = pa.schema([self.schema.field(name) for name in names])
        text, values = self.statement(names, conditions)
        skip = 1 if self._kind == "sqlite" else 0
        with ExitStack() as stack:
            connection = stack.enter_context(self._database.connect())
            cursor = stack.enter_context(closing(connection.cursor()))
            with self._database.telling(f"{self._named} cannot be read"):
                self._hint(cursor)
                cursor.execute(text, values or None)
                reader = stack.enter_context(cursor.fetch_record_batch())
            while True:
                with self._database.telling(f"{self._named} broke off"):
                    try:
                        batch = reader.read_next_batch()
                    except StopIteration:
                        return
                if skip:
                    batch, skip = batch.slice(skip), 0
                if batch.num_rows:
                    yield _arrow_types(batch, schema)

    def _hint(self, cursor: Any) -> None:
        hints = {
            "postgresql": {"adbc.postgresql.batch_size_hint_bytes": str(_BATCH_BYTES)},
            "sqlite": {"adbc.sqlite.query.batch_rows": str(_BATCH_ROWS)},
        }
        if self._kind in hints:
            cursor.adbc_statement.set_options(**hints[self._kind])


def _estimate(cursor: Any, source: str) -> int:
    """What PostgreSQL's planner expects a query to give, in bytes; nothing is run."""
    # The driver fetches rows by COPY, which takes no EXPLAIN.
    cursor.adbc_statement.set_options(**{"adbc.postgresql.use_copy": "false"})
    cursor.execute(f"EXPLAIN (FORMAT JSON) SELECT * FROM {source} AS q")
    plans = cursor.fetchall()[0][0]
    plan = (json.loads(plans) if isinstance(plans, str) else plans)[0]["Plan"]
    return int(plan["Plan Rows"] * plan["Plan Width"])


def _arrow_types(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    arrays = []
    for place, target in enumerate(schema):
        array = batch.column(place)
        if isinstance(array, pa.ExtensionArray) and not isinstance(
            target.type, pa.BaseExtensionType
        ):
            array = array.storage
        check_finite(array, target.name)
        if array.type != target.type:
            try:
                array = cast_values(array, target.type)
            except pa.ArrowException as error:
                raise ColumnError(
                    f"Column {target.name!r} holds a value that does not fit {target.type}: "
                    f"{' '.join(str(error).split())}."
                ) from error
        arrays.append(array)
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
