"""SQL at both ends of a run: rows from a query, and its own rows in a table, each exactly once."""

import json
import os
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pydantic import SecretStr

from partwise.blocks import QueryBlock, TableBlock
from partwise.calls.partitions import InferCall
from partwise.calls.reading import read_arguments
from partwise.engine.options import ExecutionOptions
from partwise.errors import InputError, OutputError, SourceError
from partwise.flows import map_partitions, run_inference, train_models
from partwise.flows.cli.main import main
from partwise.models.serdes import PickleSerde
from partwise.outcomes import RunStatus
from partwise.publishing.sql_output import Table, check_table, publish
from partwise.publishing.sql_target import Target
from partwise.runs.run import Run
from partwise.sources.sql.query import Query
from tests.flows import sql_functions
from tests.flows.sql_functions import fit, predict, thrice, twice
from tests.sql_server import PASSWORD, USER, Postgres

ROOT = Path(__file__).resolve().parents[2]
THREE_SHARDS = ExecutionOptions(n_shards=3, max_retries=0)


def sales(keys: list[str], rows: int = 4) -> pa.Table:
    table = {"store": keys * rows, "value": [float(i) for i in range(len(keys) * rows)]}
    return pa.table(table)


def lite(path: Any, query: str) -> list[Any]:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(query).fetchall()


@pytest.fixture(scope="module")
def store(tmp_path_factory) -> str:
    return str(tmp_path_factory.mktemp("sql"))


@pytest.fixture(scope="module")
def mapped(cluster, store) -> Run:
    """A run of ten partitions, one of which failed, in two files or more."""
    keys = [*(f"s{i}" for i in range(9)), "bad"]
    return map_partitions(
        sales(keys), "store", twice, run_id="mapped", store=store,
        execution=ExecutionOptions(n_shards=2, max_retries=0), cluster=cluster,
    )  # fmt: skip


def wanted(run: Run) -> Counter[Any]:
    rows = run.predictions().select(["store", "twice", "text"]).to_pylist()
    return Counter(tuple(row.values()) for row in rows)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["postgresql", "sqlite"])
def test_killed_at_any_statement_every_partition_is_there_once(
    mapped, store, postgres_server, tmp_path, kind
) -> None:
    uri = postgres_server.uri if kind == "postgresql" else str(tmp_path / "out.db")
    command = [sys.executable, sql_functions.__file__, mapped.run_id, store, uri]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    ended = subprocess.run(
        command, capture_output=True, text=True, cwd=tmp_path, env=environment, timeout=120
    )
    assert ended.returncode == 0, ended.stderr
    places = int(ended.stdout)
    assert places > 20
    names = [*(f"killed_{n}" for n in range(1, places + 1)), "together"]
    read = postgres_server.rows if kind == "postgresql" else lambda query: lite(uri, query)
    for name in names:
        assert Counter(read(f"SELECT store, twice, text FROM {name}")) == wanted(mapped), name
    of_partitions = "FROM partwise_published WHERE partition_id <> ''"
    marks = read(f"SELECT table_name, count(*) {of_partitions} GROUP BY 1")
    assert [count for name, count in marks if "killed" in name or "together" in name] == (
        [9] * len(names)
    )


@pytest.mark.slow
def test_a_table_that_another_publisher_makes_meanwhile_is_found(
    postgres_server, monkeypatch
) -> None:
    table = Table("meanwhile", postgres_server.uri)
    schema = pa.schema([("store", pa.string())])

    def create_when_it_is_waited_for(target: Target) -> None:
        waiting = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
        while postgres_server.rows(waiting)[0][0] == 0:
            time.sleep(0.05)
        # The other one's transaction, in which it was told what was new by then, has begun.
        target._create(schema)
        target._connection.commit()

    with (
        Target.opened(table.database, table.name) as first,
        Target.opened(table.database, table.name) as second,
        ThreadPoolExecutor(1) as thread,
    ):
        lock, calls = first._lock, []

        def locks_later(what: str) -> None:
            calls.append(what)
            # The second look for the table is the one that decides.
            if len(calls) == 2:
                second._lock("")
                calls.append(thread.submit(create_when_it_is_waited_for, second))
            lock(what)

        monkeypatch.setattr(first, "_lock", locks_later)
        first.prepare("run", 1, lambda: schema)
        assert first.find_schema().names == ["run_id", "partition_id", "store"]


@pytest.mark.slow
def test_a_server_that_drops_the_connection_loses_and_doubles_nothing(
    mapped, postgres_server, monkeypatch
) -> None:
    from adbc_driver_manager import dbapi

    ingest, calls = dbapi.Cursor.adbc_ingest, []

    def dropped(cursor: Any, name: str, *args: Any, **kwargs: Any) -> Any:
        calls.append(name)
        done = ingest(cursor, name, *args, **kwargs)
        if len(calls) == 3:
            postgres_server.rows(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE application_name = 'partwise'"
            )
        return done

    monkeypatch.setattr(dbapi.Cursor, "adbc_ingest", dropped)
    table = Table("dropped", postgres_server.bare_uri, password=PASSWORD)
    with pytest.raises(OutputError, match=r"dropped of postgresql://partwise@.* cannot be written"):
        publish(mapped, table)
    published = publish(mapped, table)
    assert 0 < published.unchanged < 9
    assert published.partitions + published.unchanged == 9
    rows = postgres_server.rows("SELECT store, twice, text FROM dropped")
    assert Counter(rows) == wanted(mapped)


@pytest.mark.slow
def test_a_resume_appends_what_is_new_and_replaces_what_changed(
    cluster, store, postgres_server
) -> None:
    table = Table("public.grown", postgres_server.uri)
    common = {
        "run_id": "grown", "store": store, "execution": THREE_SHARDS, "cluster": cluster,
        "output": table, "on_existing_artifacts": "resume",
    }  # fmt: skip
    count = "SELECT store, count(*), min(text) FROM grown WHERE run_id = 'grown' GROUP BY 1"

    map_partitions(sales(["a", "b", "c"]), "store", twice, **common)
    assert sorted(postgres_server.rows(count)) == [(k, 4, f"it's {k}") for k in "abc"]
    marked = "SELECT partition_id, published_at FROM partwise_published WHERE run_id = 'grown'"
    before = dict(postgres_server.rows(marked))

    run = map_partitions(sales(["a", "b", "c"]), "store", twice, **common)
    assert run.executed == 0
    assert dict(postgres_server.rows(marked)) == before

    changed = pa.concat_tables([sales(["a", "b", "c"]), sales(["b"], 1)])
    run = map_partitions(changed, "store", twice, **common)
    assert run.executed == 1
    assert {k: n for k, n, _ in postgres_server.rows(count)} == {"a": 4, "b": 5, "c": 4}
    after = dict(postgres_server.rows(marked))
    assert [name for name in after if after[name] != before[name]] == [run.partition_id("b")]

    map_partitions(sales(["a", "d"]), "store", thrice, **common)
    assert sorted(postgres_server.rows(count)) == [("a", 4, "new"), ("d", 4, "new")]
    # By its short name the table has the same marks.
    again = publish(Run.open("grown", store), Table("grown", postgres_server.uri))
    assert (again.partitions, again.unchanged) == (0, 2)


@pytest.mark.slow
def test_an_older_generation_does_not_replace_a_newer_one(cluster, store, tmp_path) -> None:
    table = Table("t", str(tmp_path / "t.db"))
    common = {"run_id": "aged", "store": store, "execution": THREE_SHARDS, "cluster": cluster}
    old = map_partitions(sales(["a", "b"]), "store", twice, **common)
    assert old.predictions().num_rows == 8
    rows = list(old.iter_predictions())
    new = map_partitions(
        sales(["a"]), "store", thrice, on_existing_artifacts="overwrite", output=table, **common
    )
    assert new.generation == 2
    assert len(rows) > 0

    stale = publish_of_old(old, rows, table)

    assert lite(table.uri, "SELECT DISTINCT store, text FROM t ORDER BY 1") == stale


def publish_of_old(old: Run, rows: list[pa.Table], table: Table) -> list[Any]:
    """What a publisher of the first generation, which was paused, does when it goes on."""
    from partwise.publishing.sql_output import contents
    from partwise.publishing.sql_target import Target

    a, b = old.partition_id("a"), old.partition_id("b")
    whole = pa.concat_tables(rows).sort_by("store")
    spans = [(a, 0, 4), (b, 4, 8)]
    with Target.opened(table.database, table.name) as target:
        refused = partial(pytest.raises, OutputError, match="generation 1 is older")
        with refused():
            target.prepare("aged", 1, lambda: whole.schema)
        with refused():
            target.append("aged", 1, whole, spans, contents(whole, spans))
        with refused():
            target.remove_others("aged", 1, {a, b})
        assert target.remove_others("aged", 2, {a}) == 0
    return [("a", "new")]


@pytest.mark.slow
def test_a_run_whose_rows_do_not_fit_stays_complete(cluster, store, postgres_server) -> None:
    postgres_server.execute(
        "CREATE TABLE narrow (run_id text, partition_id text, store text, twice real)"
    )
    common = {
        "run_id": "narrow", "store": store, "execution": THREE_SHARDS, "cluster": cluster,
        "output": Table("narrow", postgres_server.uri),
    }  # fmt: skip
    with pytest.raises(
        OutputError,
        match=r"'narrow' is complete \(SUCCESS\).*no column 'text'.*on_existing_artifacts='resume'",
    ) as caught:
        map_partitions(sales(["a", "b"]), "store", twice, **common)
    assert "canary" not in str(caught.value)
    assert Run.open("narrow", store).status is RunStatus.SUCCESS
    assert postgres_server.rows("SELECT * FROM narrow") == []

    postgres_server.execute("ALTER TABLE narrow ADD COLUMN text varchar(20)")
    run = map_partitions(
        sales(["a", "b"]), "store", twice, on_existing_artifacts="resume", **common
    )
    assert run.executed == 0
    assert len(postgres_server.rows("SELECT DISTINCT twice, text, run_id FROM narrow")) == 8


@pytest.mark.parametrize(
    ("declared", "match"),
    [
        ("run_id text, partition_id text, shop text", "no column 'store'.*ALTER TABLE"),
        ("run_id text, store text", "no column 'partition_id'"),
        ("run_id text, partition_id text, store bigint", "'store' of the rows is text, .* integer"),
        ("run_id text, partition_id uuid, store text", "'partition_id' of the rows is text"),
    ],
)
def test_a_table_that_does_not_fit_is_refused_before_any_work(
    cluster, store, postgres_server, declared, match
) -> None:
    postgres_server.execute("DROP TABLE IF EXISTS unfit", f"CREATE TABLE unfit ({declared})")

    with pytest.raises(InputError, match=match):
        map_partitions(
            sales(["a"]), "store", twice, run_id="unfit", store=store, cluster=cluster,
            output=Table("unfit", postgres_server.uri),
        )  # fmt: skip
    assert not Path(store, "runs", "unfit").exists()


def test_a_role_needs_the_rights_to_rows_and_no_others(postgres_server) -> None:
    uri = postgres_server.uri.replace(f"/{USER}:", "/writer:", 1)
    table, fields = Table("theirs.sales", uri), [pa.field("store", pa.string())]

    def lacking() -> str:
        with pytest.raises(InputError, match="cannot be written to: the role lacks") as caught:
            check_table(table, fields)
        return str(caught.value)

    postgres_server.execute(
        f"CREATE ROLE writer LOGIN PASSWORD '{PASSWORD}'",
        "CREATE SCHEMA theirs",
        "GRANT USAGE ON SCHEMA theirs TO writer",
    )
    assert lacking().endswith('lacks CREATE on "theirs".')
    with Target.opened(Table(table.name, postgres_server.uri).database, table.name) as ours:
        ours.prepare("run", 1, lambda: pa.schema(fields))
    rights = [*("SELECT", "INSERT", "DELETE"), "UPDATE"]
    for name, count in ("sales", 3), ("partwise_published", 4):
        for right in rights[:count]:
            assert f'{right} on "theirs"."{name}"' in lacking()
            postgres_server.execute(f"GRANT {right} ON theirs.{name} TO writer")
    check_table(table, fields)
    with Target.opened(table.database, table.name) as target:
        target.prepare("run", 2, lambda: pa.schema(fields))
        rows = pa.table({"store": ["a", "b"]})
        assert target.append("run", 2, rows, [("p", 0, 2)], {"p": "1"}) == (2, 1, 0)
        assert target.append("run", 2, rows, [("p", 0, 1)], {"p": "2"}) == (1, 1, 1)
        assert target.remove_others("run", 2, []) == 1


@pytest.mark.parametrize(
    ("output", "match"),
    [
        ("table-block/nowhere", "No block 'table-block/nowhere'"),
        ("postgresql://u:canary@h/db", "The output is not a block's name"),
        (Table("t", "postgresql://u:canary@127.0.0.1:1/db"), "Connection refused"),
    ],
)
def test_an_output_that_leads_nowhere_is_refused(
    prefect_server, cluster, tmp_path, output, match
) -> None:
    with pytest.raises((InputError, SourceError), match=match) as caught:
        map_partitions(sales(["a"]), "store", twice, store=tmp_path, cluster=cluster, output=output)
    assert "canary" not in str(caught.value)
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_columns_of_every_type_arrive(postgres_server, tmp_path) -> None:
    import datetime as dt
    from decimal import Decimal

    from partwise.publishing.sql_output import contents
    from partwise.publishing.sql_target import Target

    moment = dt.datetime(2024, 2, 29, 12, 30, 0, 250, tzinfo=dt.UTC)
    row = {
        "b": True, "i": 3, "u": 2**64 - 1, "f": 0.1, "s": "it's \\", "y": b"\0\1",
        "d": moment.date(), "z": moment, "n": Decimal("1.50"), "c": "cat", "l": [1.5, None],
    }  # fmt: skip
    types = {"u": pa.uint64(), "z": pa.timestamp("us", "UTC"), "n": pa.decimal128(6, 2)}
    types["c"] = pa.dictionary(pa.int8(), pa.string())
    rows = pa.table({k: pa.array([v, None], types.get(k)) for k, v in row.items()})
    spans = [("one", 0, 2)]

    def appended(uri: str, rows: pa.Table) -> None:
        table = Table("typed", uri)
        with Target.opened(table.database, table.name) as target:
            target.prepare("r", 1, lambda: rows.schema)
            target.append("r", 1, rows, spans, contents(rows, spans))

    appended(postgres_server.uri, rows)
    columns = ", ".join(f'CAST("{name}" AS text)' for name in row)
    (first, second) = postgres_server.rows(f"SELECT {columns} FROM typed ORDER BY i")
    assert list(first) == [
        *("true", "3", "18446744073709551615", "0.1", "it's \\", "\\x0001", "2024-02-29"),
        *("2024-02-29 12:30:00.00025+00", "1.50", "cat", "{1.5,NULL}"),
    ]
    assert set(second) == {None}
    path = str(tmp_path / "typed.db")
    with pytest.raises(InputError, match=r"Column 'l' of type list.* has no place in .*SQLite"):
        appended(path, rows)
    with pytest.raises(InputError, match="Column 'u' holds a value that does not fit"):
        appended(path, rows.drop(["l"]))
    appended(path, rows.drop(["l", "u"]))
    assert lite(path, "SELECT b, i, f, s, y, d, z, n, c FROM typed")[0] == (
        *(1, 3, 0.1, "it's \\", b"\0\1", "2024-02-29", "2024-02-29T12:30:00.000250+00:00"),
        *("1.50", "cat"),
    )


@pytest.fixture(scope="module")
def blocks(postgres_server: Postgres, prefect_server: str) -> None:
    """A table of sales in the database, and blocks that know the password to it."""
    postgres_server.execute(
        "CREATE TABLE shop AS SELECT 's' || i % 5 AS store, i AS day, CAST(i AS float8) AS value "
        "FROM generate_series(1, 100) AS i"
    )
    common = {"uri": postgres_server.bare_uri, "password": SecretStr(PASSWORD)}
    QueryBlock(query="SELECT * FROM shop", order_by=["day"], **common).save("shop", overwrite=True)
    TableBlock(table="forecasts", **common).save("prod", overwrite=True)


@pytest.mark.slow
def test_blocks_go_by_their_names_and_tell_no_password(
    blocks, cluster, store, postgres_server
) -> None:
    common = {"store": store, "serde": PickleSerde(), "cluster": cluster, "execution": THREE_SHARDS}
    data = "query-block/shop"
    training = train_models(data, "store", fit, run_id="from-sql", **common)
    used = run_inference(
        data, "store", "from-sql", predict, run_id="to-sql", keep_columns=["day"],
        filter=[("day", "<=", 50)], output="table-block/prod", **common,
    )  # fmt: skip

    assert training.counts == {"DONE": 5}
    found = postgres_server.rows(
        "SELECT store, day, mean FROM forecasts WHERE run_id = 'to-sql' ORDER BY day"
    )
    assert [row["mean"] for row in used.predictions().sort_by("day").to_pylist()] == [
        mean for _, _, mean in found
    ]
    assert len(found) == 50

    resumed = train_models(
        QueryBlock.load("shop"), "store", fit, run_id="from-sql",
        on_existing_artifacts="resume", **common,
    )  # fmt: skip
    assert (resumed.kept, resumed.executed) == (5, 0)
    kind, arguments = read_arguments(used.read_generation_document().call)
    assert (kind, arguments["data"], arguments["output"]) == (
        InferCall, "query-block/shop", "table-block/prod",
    )  # fmt: skip
    for path in Path(store).rglob("*"):
        assert path.is_dir() or b"canary" not in path.read_bytes(), path
    value = Query("shop", postgres_server.uri)
    table = Table("forecasts", postgres_server.uri)
    stored = run_inference.serialize_parameters(
        {
            "data": value,
            "output": table,
            "blocks": TableBlock.load("prod"),
            "mistaken": "postgresql://u:canary/x@h/db",
        }
    )
    assert "canary" not in json.dumps(stored)
    assert "canary" not in f"{value!r} {table!r}"


@pytest.mark.parametrize("wrong", ["query-block/nowhere", "table-block/nowhere"])
def test_the_command_line_takes_blocks(blocks, tmp_path, monkeypatch, capsys, wrong) -> None:
    monkeypatch.chdir(tmp_path)
    pq.write_table(sales(["a"]), "rows.parquet")
    data = wrong if "query" in wrong else "rows.parquet"
    words = ["map", data, "-p", "store", "--function", "operator:add", "--workers", "1"]

    code = main([*words, "--output", wrong if "table" in wrong else ""])

    assert code == 2
    assert f"error: No block '{wrong}' can be loaded" in capsys.readouterr().err
    assert not Path("artifacts").exists()


def test_blocks_take_no_password_in_their_uri() -> None:
    for kind, names in ((QueryBlock, {"query": "t"}), (TableBlock, {"table": "t"})):
        for uri in (
            *("postgresql://u:canary@h/db", "postgresql://u@h/db?password=canary"),
            *("u:c@nary@account/db", "host=h password = canary"),
        ):
            with pytest.raises(InputError, match="the URI has a password in it"):
                kind(uri=uri, **names)
        for uri in ("u@account/db", "data/a:b@c.db", "host=h options=-cx:y user=u@h"):
            assert kind(uri=uri, **names).uri == uri
        with pytest.raises(InputError, match=r"asterisks.*'query-block/prod'"):
            kind(uri="postgresql://u@h/db", password="********", **names)


def test_a_table_of_another_kind_is_refused() -> None:
    with pytest.raises(InputError, match="PostgreSQL and SQLite only, not to snowflake"):
        Table("t", "snowflake://u@account/db")
    with pytest.raises(InputError, match="is not the name of a table"):
        Table("t; DROP TABLE x", "postgresql://h/db")
    with pytest.raises(InputError, match="names a schema"):
        Table("public.t", "out.db")
    assert repr(Table('"Odd; name"', "postgresql://u:canary@h/db")) == (
        "Table('\"Odd; name\"', 'postgresql://u:***@h/db')"
    )
