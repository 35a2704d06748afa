"""Queries as sources: PostgreSQL and SQLite, their types, pushed-down filters, secrets, errors."""

import datetime as dt
import pickle
import sqlite3
import sys
import traceback
import uuid
from contextlib import closing
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from partwise.errors import ColumnError, InputError, SourceError
from partwise.sources.opening import open_source
from partwise.sources.sql.databases import Database
from partwise.sources.sql.query import Query, QueryRows
from partwise.tables.filters import filter_batch, normalize_filter
from tests.sources.reopening import reopened
from tests.sql_server import PASSWORD, QUOTED_PASSWORD, Postgres

DAY, TIME = dt.date(2024, 2, 29), dt.datetime(2024, 2, 29, 12, 30, 0, 250)  # noqa: DTZ001


def read(query: Query, **chosen: Any) -> pa.Table:
    source = open_source(query, **chosen)
    return pa.Table.from_batches(source.batches(), schema=source.schema)


def sqlite_file(folder: Path, *statements: str) -> str:
    path = str(folder / f"{uuid.uuid4().hex}.db")
    with closing(sqlite3.connect(path)) as connection:
        for statement in statements:
            connection.execute(statement)
        connection.commit()
    return path


@pytest.mark.parametrize(
    ("sql", "data_type", "value"),
    [
        ("CAST(1 AS smallint)", pa.int16(), 1),
        ("CAST(1 AS bigint)", pa.int64(), 1),
        ("CAST(1.5 AS real)", pa.float32(), 1.5),
        ("CAST('NaN' AS float8) = 'NaN'", pa.bool_(), True),
        ("CAST(1.5 AS numeric(10, 2))", pa.decimal128(10, 2), Decimal("1.50")),
        ("CAST(1 AS numeric(50, 2))", pa.decimal256(50, 2), Decimal("1.00")),
        ("CAST(1.25 AS numeric)", pa.float64(), 1.25),
        ("CAST('Zürich' AS varchar(9))", pa.string(), "Zürich"),
        ("CAST('ab' AS char(5))", pa.string(), "ab"),
        (r"CAST('\x00ff' AS bytea)", pa.binary(), b"\x00\xff"),
        ("DATE '2024-02-29'", pa.date32(), DAY),
        ("TIME '12:30'", pa.time64("us"), dt.time(12, 30)),
        ("TIMESTAMP '2024-02-29 12:30:00.00025'", pa.timestamp("us"), TIME),
        (
            "TIMESTAMPTZ '2024-02-29 14:30:00.00025+02'",
            pa.timestamp("us", "UTC"),
            TIME.replace(tzinfo=dt.UTC),
        ),
        (
            "CAST('a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11' AS uuid)",
            pa.string(),
            "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
        ),
        ("CAST('{\"a\": 1}' AS jsonb)", pa.string(), '{"a": 1}'),
        ("CAST('ok' AS mood)", pa.string(), "ok"),
        ("ARRAY[1, NULL]", pa.list_(pa.int32()), [1, None]),
        ("CAST('{1.5}' AS numeric(10, 2)[])", pa.list_(pa.float64()), [1.5]),
        ("CAST('{ok}' AS mood[])", pa.list_(pa.string()), ["ok"]),
        ("ARRAY['a', 'b''']", pa.list_(pa.string()), ["a", "b'"]),
        ("CAST(NULL AS text)", pa.string(), None),
    ],
)
def test_types_of_postgresql(postgres_server, mood, sql, data_type, value):
    one = f"SELECT 1 AS n, {sql} AS x"
    text = f"SELECT x FROM (VALUES (1), (2)) AS v (n) LEFT JOIN ({one}) AS w USING (n) ORDER BY n"
    table = read(Query(text, postgres_server.uri))

    assert table.schema.field("x").type == data_type
    assert table["x"].to_pylist() == [value, None]


@pytest.fixture(scope="module")
def mood(postgres_server):
    postgres_server.execute("CREATE TYPE mood AS ENUM ('sad', 'ok')")


@pytest.mark.parametrize(
    ("sql", "match"),
    [
        ("CAST('1 day' AS interval)", r'"x" of .* type interval.*EXTRACT\(EPOCH FROM "x"\) AS "x"'),
        ("CAST(1 AS money)", r"type money.*CAST\(\"x\" AS numeric\(18, 2\)\)"),
        ("CAST('[1,3)' AS int4range)", r"type int4range.*CAST\(\"x\" AS text\) AS \"x\""),
        ("CAST('10.0.0.1' AS inet)", "type inet.*text"),
        ("CAST('12:00+01' AS timetz)", "type timetz.*text"),
        ("ROW(1, 'a')", "type record.*text"),
        ("CAST('infinity' AS timestamp)", "'x' holds a time that is infinite.*NULLIF"),
        ("CAST('-infinity' AS date)", "'x' holds a time that is infinite"),
        ("TIMESTAMP '294276-12-31'", "or later than Arrow can hold"),
        ("CAST('NaN' AS numeric(5, 2))", "'x' holds a value that does not fit decimal"),
        ("CAST('{{1,2},{3,4}}' AS int[])", "2 dimensions in one array"),
    ],
)
def test_what_arrow_cannot_say_is_refused_by_name(postgres_server, mood, sql, match):
    query = Query(f"SELECT {sql} AS x, 1 AS y", postgres_server.uri)

    with pytest.raises((ColumnError, SourceError), match=match.replace('"x" of', "'x' of")):
        read(query).validate()
    assert read(query, columns=["y"])["y"].to_pylist() == [1]


NULLS_FIRST = (
    "CREATE TABLE t (i INTEGER, r REAL, s TEXT, b BLOB, n NUMERIC, d DATE, o BOOLEAN, free)",
    (
        "WITH RECURSIVE g(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM g WHERE i < 40000) "
        "INSERT INTO t SELECT NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL FROM g"
    ),
    "INSERT INTO t VALUES (1, 1.5, 'a', x'00', 2, '2024-02-29', 1, 'text')",
)


def test_types_of_sqlite_do_not_hang_on_the_first_rows(tmp_path):
    table = read(Query("t", sqlite_file(tmp_path, *NULLS_FIRST)))

    assert table.num_rows == 40_001
    assert [str(field.type) for field in table.schema] == [
        *("int64", "double", "string", "binary", "double", "string", "int64", "string")
    ]
    assert list(table.slice(40_000).to_pylist()[0].values()) == [
        *(1, 1.5, "a", b"\0", 2.0, "2024-02-29", 1, "text")
    ]
    assert table.slice(0, 40_000)["free"].null_count == 40_000


def test_whole_numbers_and_fractions_of_sqlite_become_double(tmp_path):
    path = sqlite_file(tmp_path, "CREATE TABLE t (x)", "INSERT INTO t VALUES (1), (2.5)")

    assert read(Query("SELECT x, x * 2 AS y FROM t", path)).to_pydict() == {
        "x": [1.0, 2.5],
        "y": [2.0, 5.0],
    }


@pytest.mark.parametrize("declared", ["numeric", "decimal(20)", ""])
def test_whole_numbers_of_sqlite_that_would_be_other_doubles_are_refused(tmp_path, declared):
    path = sqlite_file(
        tmp_path,
        f"CREATE TABLE t (x {declared})",
        "INSERT INTO t VALUES (9007199254740992), (-9007199254740993), (1.5)",
    )
    message = r"^Column 'x' of the SQLite query is to be of doubles, and has 1 whole number beyond"
    with pytest.raises(ColumnError, match=message):
        read(Query("t", path))
    whole = read(Query('SELECT CAST("x" AS INTEGER) AS "x" FROM t', path))
    assert whole["x"].to_pylist() == [2**53, -(2**53) - 1, 1]
    nearest = read(Query('SELECT CAST("x" AS REAL) AS "x" FROM t WHERE x < 0', path))
    assert nearest["x"].to_pylist() == [-(2.0**53)]


@pytest.mark.parametrize("late", ["'text'", "x'00'"])
def test_a_column_of_several_types_in_sqlite_is_refused(tmp_path, late):
    path = sqlite_file(
        tmp_path, "CREATE TABLE t (x INTEGER)", f"INSERT INTO t VALUES (1), ({late})"
    )

    with pytest.raises(ColumnError, match=r"'x'.*1 of type integer, 1 of type.*CAST\(\"x\" AS"):
        open_source(Query("t", path))


STORED = st.one_of(
    st.none(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False),
    st.sampled_from(["", "1", "1.5", "ä"]),
    st.binary(max_size=2),
)


@given(
    declared=st.sampled_from(["INTEGER", "REAL", "TEXT", "BLOB"]),
    values=st.lists(STORED, min_size=1, max_size=6).filter(lambda all_: set(all_) != {None}),
)
@settings(max_examples=60)
def test_what_a_column_of_sqlite_is_declared_as_is_no_more_than_a_guess(
    tmp_path_factory, declared, values
):
    """A column is first looked at for values of its declaration alone, as that is quick."""
    path = sqlite_file(tmp_path_factory.getbasetemp(), f"CREATE TABLE t (x {declared})")
    with closing(sqlite3.connect(path)) as connection:
        connection.executemany("INSERT INTO t VALUES (?)", [(value,) for value in values])
        connection.commit()

    def outcome(query: str) -> Any:
        try:
            rows = read(Query(query, path))
        except ColumnError as error:
            return str(error)
        return rows.schema.field("x").type, rows["x"].to_pylist()

    # An expression is declared as nothing, and asked for all kinds.
    assert outcome("t") == outcome("SELECT +x AS x FROM t")


VALUES = {
    "i": (st.integers(-3, 3), pa.int64()),
    "f": (st.sampled_from([-1.5, 0.1, 2.0, 1e300]), pa.float64()),
    "s": (st.sampled_from(["", "a", "B", "b'", 'c"', "\\", "ä", "Z", "a "]), pa.string()),
    "d": (st.dates(DAY, dt.date(2024, 3, 3)), pa.date32()),
}
MORE = {"i": st.just(0.5), "f": st.integers(-2, 2)}
COMPARE = st.sampled_from(["=", "==", "!=", "<", "<=", ">", ">="])


@st.composite
def conditions(draw: Any, names: str) -> list[Any]:
    name = draw(st.sampled_from(names))
    values = VALUES[name][0].map(lambda value: value.isoformat() if name == "d" else value)
    if draw(st.booleans()):
        return [name, draw(COMPARE), draw(values | MORE[name] if name in MORE else values)]
    return [name, draw(st.sampled_from(["in", "not in"])), draw(st.lists(values, min_size=1))]


def filters(names: str) -> Any:
    return st.lists(st.lists(conditions(names), min_size=1, max_size=3), min_size=1, max_size=3)


def all_rows(names: str) -> pa.Table:
    """Every value beside every other, and nulls."""
    chosen = {
        "i": [None, -2, 0, 1, 3],
        "f": [None, -1.5, 0.1, 2.0, 1e300],
        "s": [None, "", "a", "B", "b'", "\\", "ä", "Z", "a "],
        "d": [None, DAY, dt.date(2024, 3, 2)],
    }
    rows = [{"id": 0}]
    for name in names:
        rows = [{**row, name: value} for row in rows for value in chosen[name]]
    rows = [{**row, "id": number} for number, row in enumerate(rows)]
    fields = [("id", pa.int64()), *((name, VALUES[name][1]) for name in names)]
    return pa.Table.from_pylist(rows, schema=pa.schema(fields))


@pytest.fixture(scope="module")
def filtered_postgres(postgres_server) -> tuple[QueryRows, pa.Table]:
    table = all_rows("ifsd")
    nan = pa.table({"id": [-1], "i": [1], "f": [float("nan")], "s": ["a"], "d": [DAY]})
    table = pa.concat_tables([table, nan.cast(table.schema)])
    with Database(uri=postgres_server.uri).connect("write") as connection:
        with closing(connection.cursor()) as cursor:
            cursor.adbc_ingest("filtered", table, mode="create")
        connection.commit()
    return QueryRows(Query("filtered", postgres_server.uri)), table


@pytest.fixture(scope="module")
def filtered_sqlite(tmp_path_factory) -> tuple[QueryRows, pa.Table]:
    table = all_rows("ifs")
    path = sqlite_file(
        tmp_path_factory.mktemp("sqlite"),
        "CREATE TABLE t (id INTEGER, i INTEGER, f REAL, s TEXT COLLATE NOCASE)",
    )
    with closing(sqlite3.connect(path)) as connection:
        rows = [tuple(row.values()) for row in table.to_pylist()]
        connection.executemany("INSERT INTO t VALUES (?, ?, ?, ?)", rows)
        connection.commit()
    return QueryRows(Query("t", path)), table


def check_pushed(rows: QueryRows, table: pa.Table, conjunctions: Any) -> None:
    wanted = filter_batch(table.combine_chunks().to_batches()[0], conjunctions)

    pushed = [row for batch in rows.batches(["id"], conjunctions) for row in batch[0].to_pylist()]

    assert sorted(pushed) == sorted(wanted["id"].to_pylist())


@settings(max_examples=30)
@given(conjunctions=filters("ifsd"))
@example(conjunctions=[[["s", "!=", "'; DROP TABLE filtered; --"]]])
@example(conjunctions=[[["s", "in", ["\\'; DROP TABLE filtered; --", "a"]]]])
@example(conjunctions=[[["f", ">", 0.1]]])
@example(conjunctions=[[["f", "not in", [0.1]]]])
def test_postgresql_filters_as_we_do(filtered_postgres, conjunctions):
    check_pushed(*filtered_postgres, conjunctions)


@settings(max_examples=100)
@given(conjunctions=filters("ifs"))
@example(conjunctions=[[["s", "=", "' OR 1 = 1; --"]]])
def test_sqlite_filters_as_we_do(filtered_sqlite, conjunctions):
    check_pushed(*filtered_sqlite, conjunctions)


@pytest.mark.parametrize(
    ("sql", "condition"),
    [
        ("CAST(n AS numeric(9, 2))", ["x", ">=", "0.99"]),
        ("CAST(n AS numeric(9, 2))", ["x", "in", ["1", "0.5"]]),
        ("CAST(n AS numeric(9, 2))", ["x", "<", 0.5]),
        ("CAST(n AS real)", ["x", ">", 0.1]),
        ("CAST(n AS real)", ["x", "in", [0.1]]),
        ("CAST(n AS real)", ["x", ">", 0]),
        ("n > 0.5", ["x", "=", True]),
        ("TIMESTAMP '2024-01-01' + n * INTERVAL '1 day'", ["x", "<", "2024-01-01T12:00:00"]),
        ("TIMESTAMPTZ '2024-01-01Z' + n * INTERVAL '1 day'", ["x", "<", "2024-01-01T14:00:00+02"]),
        ("CAST(CASE WHEN n > 0.5 THEN 'sad' END AS mood)", ["x", ">", "ok"]),
        ("CAST('ab' AS char(5))", ["x", "=", "ab"]),
    ],
)
def test_every_type_is_filtered_as_we_do(postgres_server, mood, sql, condition):
    text = f"SELECT {sql} AS x, n AS id FROM (VALUES (0.1), (0.5), (0.99), (1.0)) AS v (n)"
    query = Query(text, postgres_server.uri)
    conjunctions = normalize_filter([tuple(condition)])
    wanted = filter_batch(read(query).combine_chunks().to_batches()[0], conjunctions)

    assert read(query, filter=[tuple(condition)])["id"].to_pylist() == wanted["id"].to_pylist()


def test_columns_and_filter_arrive_at_the_server(postgres_server):
    postgres_server.execute(
        "CREATE TABLE sent AS SELECT i AS id, i % 7 AS k, repeat('x', 100) AS bulk "
        "FROM generate_series(1, 20000) AS i",
        "CREATE INDEX ON sent (id)",
        "ANALYZE sent",
    )
    query = Query("SELECT * FROM sent -- all of it", postgres_server.uri)
    source = open_source(query, columns=["k"], filter=[("id", "<", 4)])

    assert [row for batch in source.batches() for row in batch["k"].to_pylist()] == [1, 2, 3]
    begun = 'COPY (SELECT "k", "id" FROM (SELECT "k" AS "k", "id" AS "id" FROM'
    sent = postgres_server.log().rpartition(begun)[2].partition("TO STDOUT")[0]
    assert """WHERE ("id" < CAST('4' AS bigint))""" in sent
    assert "bulk" not in sent
    statement, values = QueryRows(query).statement(["k"], [[["id", "<", 4]]])
    plan = "\n".join(row[0] for row in explain(postgres_server, statement))
    assert values == []
    assert "Index" in plan
    assert "id < " in plan


def explain(server: Postgres, statement: str) -> list[Any]:
    with (
        Database(uri=server.uri).connect() as connection,
        closing(connection.cursor()) as cursor,
    ):
        cursor.adbc_statement.set_options(**{"adbc.postgresql.use_copy": "false"})
        cursor.execute(f"EXPLAIN {statement}")
        return list(cursor.fetchall())


def test_rows_come_in_the_order_that_is_asked_for(postgres_server, tmp_path):
    values = "VALUES (2, 'b'), (1, 'b'), (NULL, 'a'), (3, 'a')"
    path = sqlite_file(tmp_path, "CREATE TABLE t (n, s)", f"INSERT INTO t {values}")
    for query in (
        Query(f"SELECT * FROM ({values}) AS v (n, s)", postgres_server.uri, order_by=["s", "n"]),
        Query("t", path, order_by=("s", "n")),
    ):
        ordered = read(query, columns=["n"])["n"].to_pylist()
        assert sorted(ordered[:2], key=str) == [3, None]
        assert ordered[2:] == [1, 2]


def test_a_query_is_streamed(postgres_server, tmp_path):
    """A batch comes long before the last row, and none is large."""
    rows = 400_000
    postgres_server.execute(
        f"CREATE TABLE many AS SELECT i, repeat('x', 100) AS s FROM generate_series(1, {rows}) AS i"
    )
    path = sqlite_file(
        tmp_path,
        "CREATE TABLE many (i INTEGER, s TEXT)",
        f"WITH RECURSIVE g(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM g WHERE i < {rows}) "
        "INSERT INTO many SELECT i, printf('%.100c', 'x') FROM g",
    )
    for uri in (postgres_server.uri, path):
        source = open_source(Query("many", uri))
        assert source.description().size_bytes > 20_000_000
        before, seen = pa.total_allocated_bytes(), 0
        for batch in source.batches():
            assert batch.nbytes < 8_000_000
            assert pa.total_allocated_bytes() - before < 30_000_000
            seen += batch.num_rows
        assert seen == rows


def test_the_password_is_never_shown(postgres_server):
    for query in (
        Query("SELECT 1 AS x", postgres_server.uri),
        Query("SELECT 1 AS x", postgres_server.bare_uri, password=PASSWORD),
        Query("SELECT 1 AS x", f"{postgres_server.bare_uri}?password={QUOTED_PASSWORD}"),
    ):
        rows = QueryRows(query)
        source = open_source(query)

        assert read(query)["x"].to_pylist() == [1]
        assert source.description().recipe is None
        told = f"{query!r} {query} {query.database!r} {vars(source)} {vars(rows)}"
        assert "canary" not in told
        assert "127.0.0.1" in repr(query)


def test_a_short_password_is_masked_alone_and_not_in_words():
    database = Database(uri="postgresql://shop:p@host:5432/people")
    assert database.shown == "postgresql://shop:***@host:5432/people"
    assert Database(uri="sqlite:///a.db", password="*").redact("count(*)") == "count(***)"
    said = database.redact("the password 'p' of people")
    assert said == "the password '***' of people"


def test_a_query_without_a_password_can_be_repeated(tmp_path, monkeypatch):
    path = sqlite_file(tmp_path, "CREATE TABLE t (x)", "INSERT INTO t VALUES (1), (2)")
    monkeypatch.chdir(tmp_path)
    source = open_source(Query("t", Path(path).name, order_by="x"), filter=[("x", ">", 1)])
    recipe = source.description().recipe
    monkeypatch.chdir("/")

    again = reopened(recipe)

    assert [batch.to_pydict() for batch in again.batches()] == [{"x": [2]}]
    assert again.description().recipe == recipe
    assert again.description().fingerprint != source.description().fingerprint
    assert pickle.loads(pickle.dumps(Query("t", path))) == Query("t", path)


def read_some(query: Query) -> None:
    if not read(query).num_rows:
        raise SourceError("no rows")


@pytest.mark.parametrize(
    ("query", "uri", "error", "match"),
    [
        ("t", "{closed}", SourceError, "cannot be opened: .*Connection refused"),
        ("t", "{wrong}", SourceError, "cannot be opened: .*password authentication failed"),
        ("nope", "{uri}", SourceError, "query 'nope' cannot be read: .*\"nope\" does not exist"),
        ("selct 1", "{uri}", SourceError, "'selct 1' cannot be read: .*syntax error at or near"),
        ("SELECT 1; DROP TABLE x", "{uri}", SourceError, "syntax error"),
        ("DELETE FROM pg_class", "{uri}", SourceError, "syntax error|DELETE"),
        ("SELECT 1 / (random() * 0)::int AS x", "{uri}", SourceError, "division by zero"),
        ("SELECT 1 AS x, 2 AS x", "{uri}", ColumnError, "two columns of the name 'x'"),
        ("SELECT 1 AS x WHERE false", "{uri}", SourceError, "no rows"),
        (" ", "{uri}", InputError, "is empty"),
        ("SELECT '\0'", "{uri}", InputError, "null character"),
        ("t", "postgresql://u:canary/x@h/db", InputError, "%2F"),
        ("t", "postgresql://u:canary%zz@h/db", InputError, "%25"),
        ("t", "mysql://u:canary@h/db", InputError, "does not say which kind"),
        ("t", "/nowhere.db", SourceError, "no SQLite file '/nowhere.db'"),
        ("t", "file:{sqlite}-absent", SourceError, "cannot be opened"),
        ("nope", "{sqlite}", SourceError, "no such table: nope"),
        ("SELECT * FROM", "{sqlite}", SourceError, "syntax error"),
        ("DELETE FROM t", "{sqlite}", SourceError, "syntax error"),
        ("t; DROP TABLE t", "{sqlite}", SourceError, "syntax error"),
        ("empty", "{sqlite}", SourceError, "'empty' gives no rows"),
        ("t", "{text}", SourceError, "not a database"),
    ],
)
def test_errors_are_sentences(postgres_server, tmp_path, query, uri, error, match):
    (tmp_path / "text.db").write_text("no database at all, but long enough to be looked into" * 20)
    places = {
        "closed": "postgresql://reader:canary@127.0.0.1:1/shop",
        "wrong": postgres_server.bare_uri.replace("@", ":canary-that-is-wrong@"),
        "uri": postgres_server.uri,
        "sqlite": sqlite_file(
            tmp_path, "CREATE TABLE t (x)", "INSERT INTO t VALUES (1)", "CREATE TABLE empty (x)"
        ),
        "text": str(tmp_path / "text.db"),
    }

    with pytest.raises(error, match=match) as caught:
        read_some(Query(query, uri.format(**places)))
    assert "canary" not in "".join(traceback.format_exception(caught.value))
    assert "\n" not in str(caught.value)
    assert "INVALID" not in str(caught.value)


def test_a_connection_that_breaks_off_is_told(postgres_server):
    mark = f"lost-{uuid.uuid4().hex}"
    uri = f"{postgres_server.uri}?application_name={mark}"
    text = "SELECT i, repeat('x', 1000) AS s FROM generate_series(1, 400000) AS i"
    batches = QueryRows(Query(text, uri)).batches(["i", "s"])
    next(batches)
    end = (
        f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = '{mark}'"
    )
    assert postgres_server.rows(end) == [(True,)]

    with pytest.raises(SourceError, match=r"broke off: .*(terminating|closed the) connection"):
        list(batches)


def test_a_missing_driver_names_its_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "adbc_driver_postgresql", None)

    with pytest.raises(InputError, match=r"pip install 'partwise\[postgresql\]'"):
        open_source(Query("t", "postgresql://h/db"))
    with pytest.raises(InputError, match="pip install adbc-driver-manager adbc-driver-snowflake"):
        open_source(Query("t", "snowflake://u:canary@account/db"))


def test_odd_names_are_quoted(postgres_server, tmp_path):
    name = 'a "quoted"; DROP TABLE x; -- name'
    quoted = '"' + name.replace('"', '""') + '"'
    path = sqlite_file(tmp_path, f"CREATE TABLE t ({quoted} TEXT)", "INSERT INTO t VALUES ('x')")
    for query in (Query(f"SELECT 'x' AS {quoted}", postgres_server.uri), Query("t", path)):
        table = read(query, columns=[name[:63]], filter=[(name[:63], "in", ["x", "'"])])
        assert table.to_pydict() == {name[:63]: ["x"]}
