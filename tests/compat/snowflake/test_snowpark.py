"""Snowpark's session and frames: what the vendor's samples do with them."""

import pickle
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import numpy as np
import pandas as pd
import pytest

import partwise
from partwise.compat.snowflake.ml.data import DataConnector
from partwise.compat.snowflake.ml.modeling.distributors.distributed_partition_function.dpf import (
    DPF,
)
from partwise.compat.snowflake.ml.modeling.distributors.distributed_partition_function.entities import (  # noqa: E501
    RunStatus,
)
from partwise.compat.snowflake.ml.modeling.distributors.distributed_partition_function.partition_context import (  # noqa: E501
    PartitionContext,
)
from partwise.compat.snowflake.snowpark import Row, Session
from partwise.compat.snowflake.snowpark.context import get_active_session
from partwise.compat.snowflake.snowpark.functions import col, lit, when
from partwise.errors import ColumnError, InputError

ROWS = pd.DataFrame({"REGION": ["EU", "EU", "US", None], "X": [1, 2, 3, 4], "target": [0.5] * 4})


@pytest.fixture
def session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Session:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Session, "active", None)
    return Session.builder.configs({"user": "me", "database": "db"}).config("schema", "s").create()


def test_tables_are_written_and_read_by_their_names(session: Session) -> None:
    assert get_active_session() is session is Session.builder.getOrCreate()
    frame = session.create_dataframe(ROWS)
    frame.write.save_as_table("sales")
    table = session.table(f"{session.get_current_database()}.{session.get_current_schema()}.Sales")
    with pytest.raises(InputError, match=r"DB.S.SALES is there"):
        frame.write.save_as_table("DB.S.SALES")
    frame.write.mode("append").save_as_table("s.sales")
    assert table.count() == 8
    frame.limit(1).write.mode("overwrite").save_as_table("sales")
    assert table.count() == 1
    with pytest.raises(InputError, match="has the columns"):
        frame.drop("X").write.mode("append").save_as_table("sales")
    with pytest.raises(InputError, match=r"has columns of other types: .* X has incompatible"):
        frame.with_column("X", lit("x")).write.mode("append").save_as_table("sales")
    frame.with_column("X", lit(0.5)).write.mode("append").save_as_table("sales")
    assert table.count() == 5
    session.use_schema("other.s")
    with pytest.raises(InputError, match=r"no table OTHER.S.SALES"):
        session.table("sales").to_pandas()
    assert session.write_pandas(ROWS, "p", auto_create_table=True).count() == 4
    with pytest.raises(InputError, match="is no name"):
        session.table("../../etc")


def test_columns_of_lower_case_are_in_quotes(session: Session) -> None:
    frame = session.create_dataframe(ROWS)
    assert frame.columns == ["REGION", "X", '"target"']
    assert list(frame.to_pandas()) == ["REGION", "X", "target"]
    rows = DataConnector.from_dataframe(frame).to_pandas()
    assert list(rows.drop(columns=['"target"'])) == ["REGION", "X"]
    assert frame.drop(['"target"']).columns == frame.select("region", col("x")).columns
    with pytest.raises(ColumnError, match=r"no column 'target'.*in quotes"):
        frame.select("target")


def test_frames_compute_what_samples_compute(session: Session) -> None:
    frame = session.create_dataframe(ROWS).drop('"target"')
    assert frame.filter((col("X") > 1) & col("REGION").isin(["EU", "US"])).count() == 2
    assert frame.where(~(frame["REGION"] == "EU") | frame["REGION"].is_null()).count() == 2
    kind = when(col("REGION") == "EU", "near").when(col("X") == 3, "far").otherwise(lit("?"))
    made = frame.with_column("HALF", col("X") / 2).with_columns(["KIND", "X"], [kind, 1 - col("X")])
    # A column in the place of another stands last, as theirs.
    assert made.collect()[0] == ("EU", 0.5, "near", 0)
    assert [row["kind"] for row in made.collect()] == ["near", "near", "far", "?"]
    assert made.select(col("HALF").alias("h"), "x").with_column_renamed("H", "i").columns == [
        "I",
        "X",
    ]
    assert [row.X for row in frame.sort("X", ascending=False).collect()] == [4, 3, 2, 1]
    assert frame.drop("nowhere", "x").columns == ["REGION"]
    with pytest.raises(InputError, match=r"filter takes a condition such as .*, not True"):
        frame.filter(True)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="neither true nor false"):
        frame.filter(col("X") > 1 and col("X") < 3)
    for ask in (lambda: frame.select(col("X") * 2), lambda: frame.sort(-col("X"))):
        with pytest.raises(InputError, match=r"needs a name here: write .alias"):
            ask()
    for ask in (lambda: frame.filter(col("y") > 1), lambda: frame.with_column("z", col("y") + 1)):
        with pytest.raises(ColumnError, match=r"has \['REGION', 'X'\], and No match .*Y"):
            ask()
    with pytest.raises(AttributeError, match=r"DataFrame.pivot is not among"):
        frame.pivot("X")


def test_two_columns_of_one_name_are_refused(session: Session) -> None:
    frame = session.create_dataframe(ROWS)
    one = lit(1)
    for ask in (
        lambda: frame.select("X", "x"),
        lambda: frame.select("X", col("REGION").alias("X")),
        lambda: frame.with_columns(["N", "n"], [one, one]),
        lambda: frame.with_column_renamed("REGION", "X"),
    ):
        with pytest.raises(ColumnError, match=r"would have more than one column named '[XN]'"):
            ask()


def test_whether_null_is_among_values_nobody_knows(session: Session) -> None:
    frame = session.create_dataframe([(1,), (2,), (None,)], schema=["a"])

    def among(*values: Any) -> tuple[list[int], list[int]]:
        is_in = col("A").isin(*values)
        found = (frame.filter(each).collect() for each in (is_in, ~is_in))
        return tuple([row.A for row in rows] for rows in found)

    assert among(1) == ([1], [2])
    assert among(1, None) == ([1], [])
    assert among([]) == ([], [1, 2])
    assert among([None]) == ([], [])


def test_rows_are_drawn_and_divided(session: Session) -> None:
    frame = session.create_dataframe([(each,) for each in range(1000)], schema=["n"])
    parts = frame.random_split([8, 2], seed=1)
    assert 750 < parts[0].count() < 850
    assert sorted(row.N for part in parts for row in part.collect()) == list(range(1000))
    assert frame.random_split([8, 2], seed=1)[0].collect() == parts[0].collect()
    drawn = frame.sample(0.9)
    assert 850 < drawn.count() < 950
    assert frame.subtract(drawn).count() + drawn.count() == 1000
    assert frame.sample(n=7).count() == 7
    assert frame.limit(np.int64(3)).count() == 3
    for wrong in (
        lambda: frame.random_split([-1, 2]),
        lambda: frame.random_split([0, 0]),
        lambda: frame.sample(5),
        lambda: frame.sample(n=-1),
        lambda: frame.limit(-1),
        lambda: frame.limit(0.5),  # type: ignore[arg-type]
    ):
        with pytest.raises(InputError, match=r"above 0|from 0"):
            wrong()
    nulls = session.create_dataframe(ROWS).select("REGION")
    assert nulls.subtract(nulls.limit(3)).collect() == [(None,)]


def test_rows_have_names(session: Session) -> None:
    (row,) = session.create_dataframe([Row(A=1, B="x")]).collect()
    assert (row[0], row["B"], row.a, row.as_dict()) == (1, "x", 1, {"A": 1, "B": "x"})
    assert repr(pickle.loads(pickle.dumps(row))) == "Row(A=1, B='x')"
    assert session.create_dataframe([{"a": 1}, {"a": 2}]).first() == (1,)
    assert session.create_dataframe([1, 2]).columns == ["_1"]
    with pytest.raises(InputError, match="list of names"):
        session.create_dataframe([(1,)], schema=[int])  # type: ignore[list-item]


def test_values_with_names_go_by_their_names(session: Session) -> None:
    rows = [{"a": 1, "b": 2}, {"b": 20, "a": 10}, {"c": "x", "A": 100}]
    expected = [(1, 2, None), (10, 20, None), (100, None, "x")]
    frame = session.create_dataframe(rows)
    assert (frame.columns, frame.collect()) == (["A", "B", "C"], expected)
    named = [Row(A=1, B=2), Row(B=20, A=10)]
    assert session.create_dataframe(named).collect() == [(1, 2), (10, 20)]
    frame = session.create_dataframe(named, schema=["b", "a"])
    assert (frame.columns, frame.collect()) == (["B", "A"], [(2, 1), (20, 10)])


@pytest.mark.parametrize(
    ("rows", "schema", "message"),
    [
        ([{"a": 1, "b": 2}], ["a", "c"], r"schema names .*'C'.* the rows have \['A', 'B'\]"),
        ([{"a": 1}, (2,)], None, "or all have names"),
        ([Row(1), Row(A=2)], None, "or all have names"),
        ([(1, 2), (3,)], None, "as many values"),
        ([(1, 2)], ["a"], "as many values"),
        ([{"a": 1, "A": 2}], None, "not as many columns"),
    ],
)
def test_rows_that_are_no_table_are_refused(
    session: Session, rows: list[Any], schema: list[str] | None, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        session.create_dataframe(rows, schema=schema)


def test_each_column_is_sorted_as_it_is_said(session: Session) -> None:
    frame = session.create_dataframe([(1, 1), (2, 3), (1, 2)], schema=["a", "b"])
    assert frame.sort("A", "B", ascending=[True, False]).collect() == [(1, 2), (1, 1), (2, 3)]
    assert frame.order_by(["A", col("B")], ascending=[0, 1]).collect() == [(2, 3), (1, 1), (1, 2)]
    assert frame.sort("B", ascending=None).collect() == [(1, 1), (1, 2), (2, 3)]
    gaps = session.create_dataframe([(2, 1), (None, 2), (1, None), (1, 3)], schema=["a", "b"])
    assert gaps.sort("A", "B").collect() == [(None, 2), (1, None), (1, 3), (2, 1)]
    assert gaps.sort("A", "B", ascending=[0, 1]).collect() == [(2, 1), (1, None), (1, 3), (None, 2)]
    for wrong in ([True], ["asc", "desc"], "no"):
        with pytest.raises(InputError, match="one for each of the 2 columns"):
            frame.sort("A", "B", ascending=wrong)  # type: ignore[arg-type]


def test_statements_of_the_samples(session: Session, capsys: pytest.CaptureFixture[str]) -> None:
    session.create_dataframe(ROWS).write.save_as_table("sales")
    session.sql("CREATE STAGE IF NOT EXISTS db.s.IN;").collect()
    session.sql("CREATE SCHEMA IF NOT EXISTS db.s").collect()
    copy = """COPY INTO @db.s.IN/sales/
        FROM DB.S.SALES PARTITION BY REGION
        FILE_FORMAT = (TYPE = PARQUET COMPRESSION = SNAPPY) HEADER = TRUE"""
    session.sql(copy).collect()
    names = [row["name"] for row in session.sql("LIST @db.s.in/sales/").collect()]
    assert [name.split("/")[2] for name in names] == ["EU", "US", "__NULL__"]
    assert all(name.startswith("db.s.in/sales/") for name in names)
    assert session.sql("SELECT COUNT(*) FROM sales").collect()[0][0] == 4
    session.sql("select * from sales limit 1").show()
    assert capsys.readouterr().out.splitlines()[1:4:2] == [
        '|"REGION"  |"X"  |"target"  |',
        "|EU        |1    |0.5       |",
    ]
    session.sql("DROP TABLE IF EXISTS sales")
    assert session.table("sales").count() == 4, "A statement waits until it is collected."
    session.sql("REMOVE @db.s.in/sales/EU/data_0.snappy.parquet").collect()
    assert session.sql("ls @db.s.in").count() == 2
    for each in ("REMOVE @db.s.in/sales/", "DROP TABLE sales", "DROP STAGE IF EXISTS db.s.in"):
        session.sql(each).collect()
    assert not list(Path("artifacts").rglob("*.parquet"))
    session.sql("USE DATABASE d").collect()
    assert session.get_current_database() == '"D"'


def test_a_stage_that_is_replaced_is_empty_and_one_that_is_there_stays(session: Session) -> None:
    settings = "DIRECTORY = (ENABLE = TRUE) ENCRYPTION=(TYPE='SNOWFLAKE_SSE') COMMENT='a'"
    session.sql("create stage s").collect()
    (session.stage_folder("@s") / "old").touch()
    session.sql(f"CREATE STAGE IF NOT EXISTS s {settings}").collect()
    assert session.sql("LIST @s").count() == 1
    session.sql(f"CREATE OR REPLACE STAGE s {settings}").collect()
    assert session.sql("LIST @s").count() == 0


@pytest.mark.parametrize(
    "query",
    [
        "DROP TABLE t; DROP TABLE u",
        "REMOVE @s/../../x",
        "COPY INTO t FROM @s",
        "CREATE STAGE s URL = 's3://bucket/folder'",
        'DROP STAGE ".git"',
    ],
)
def test_other_statements_are_refused(session: Session, query: str) -> None:
    with pytest.raises(InputError, match=r"compute it in pandas|write @STAGE"):
        session.sql(query).collect()


def test_files_are_put_into_stages_and_got_from_them(session: Session) -> None:
    Path("a.csv").write_text("1")
    assert session.file.put("file://*.csv", "@s/in")[0].status == "UPLOADED"
    assert session.file.put("a.csv", "@s/in")[0]["status"] == "SKIPPED"
    session.file.get("@s/in/a.csv", "out")
    assert Path("out/a.csv").read_text() == "1"
    Path("in", "below").mkdir(parents=True)
    Path("in", "b.csv").write_text("2")
    assert [each.target for each in session.file.put("in/*", "@s/other")] == ["b.csv"]
    session.sql("CREATE STAGE empty").collect()
    assert session.file.get("@empty", "out") == []
    with pytest.raises(InputError, match="There is no '@s/b'"):
        session.file.get("@s/b", "out")


def test_each_value_has_a_folder_of_its_own_in_the_stage(session: Session) -> None:
    texts = ["..", ".c", "__NULL__", "_b", "a b", "x/y", None]
    session.create_dataframe(pd.DataFrame({"K": texts})).write.save_as_table("t")
    copy = "COPY INTO @s/t FROM t PARTITION BY (K) FILE_FORMAT = (TYPE = PARQUET)"
    session.sql(copy).collect()
    names = [each["name"].split("/", 2)[2] for each in session.sql("LIST @s").collect()]
    folders = ["%2E.", "%2Ec", "%5F_NULL__", "%5Fb", "__NULL__", "a b", "x%2Fy"]
    assert names == [f"{each}/data_0.snappy.parquet" for each in folders]
    assert len({unquote(each) for each in folders}) == 6, "texts, and the folder of nulls"


def test_categories_are_sorted_and_divided_as_what_they_stand_for(session: Session) -> None:
    frame = session.create_dataframe(pd.DataFrame({"K": pd.Categorical(["b", None, "a", "b"])}))
    assert [each.K for each in frame.sort("K").collect()] == [None, "a", "b", "b"]
    frame.write.save_as_table("t")
    session.sql("COPY INTO @s FROM t PARTITION BY (K) FILE_FORMAT = (TYPE = PARQUET)").collect()
    names = [each["name"].split("/")[1] for each in session.sql("LIST @s").collect()]
    assert names == ["__NULL__", "a", "b"]


def test_rows_of_minus_zero_are_copied_with_those_of_zero(session: Session) -> None:
    frame = pd.DataFrame({"F": [0.0, -0.0, 0.0, 1.0], "X": range(4)})
    session.create_dataframe(frame).write.save_as_table("t")
    session.sql("COPY INTO @s FROM t PARTITION BY (F) FILE_FORMAT = (TYPE = PARQUET)").collect()
    copied = {each.name: pd.read_parquet(each) for each in session.stage_folder("s").iterdir()}
    assert {name: list(rows["X"]) for name, rows in copied.items()} == {
        "0.0": [0, 1, 2],
        "1.0": [3],
    }


def test_no_file_is_copied_over_another_of_its_name(session: Session) -> None:
    session.create_dataframe(ROWS).write.save_as_table("sales")
    copy = "COPY INTO @s/x FROM sales PARTITION BY REGION FILE_FORMAT = (TYPE = PARQUET)"
    session.sql(copy).collect()
    session.file.get("@s/x", "all")
    got = [pd.read_parquet(each) for each in Path("all").rglob("*.parquet")]
    assert sorted(pd.concat(got)["X"]) == [1, 2, 3, 4]
    assert [each.target for each in session.file.get("@s/x/EU", "one")] == ["data_0.snappy.parquet"]
    with pytest.raises(InputError, match="have one name"):
        session.file.put("all/*/*", "@s/y", overwrite=True)


def solve(data: Any, context: Any) -> None:
    frame = data.to_pandas()
    answer = pd.DataFrame({"REGION": [context.partition_id], "N": [len(frame)]})
    context.with_session(
        lambda session: session.create_dataframe(answer).write.mode("append").save_as_table("out")
    )
    path = context.session.table_folder("tried")
    if not path.exists():
        path.mkdir(parents=True)
        raise RuntimeError("The second attempt appends once more.")


def context_of(attempt: int) -> partwise.PartitionContext:
    return partwise.PartitionContext(key="EU", partition_id="eu", run_id="v1", attempt=attempt)


def test_an_attempt_begins_without_the_rows_of_an_earlier_one(session: Session) -> None:
    first, own = session.of_store("a"), session.create_dataframe([("own",)], schema=["N"])
    own.write.mode("append").save_as_table("log")

    def log(text: str, table: str, attempt: PartitionContext) -> None:
        def put(theirs: Session) -> None:
            frame = theirs.create_dataframe([(text,)], schema=["N"])
            frame.write.mode("append").save_as_table(table)

        attempt.with_session(put)

    failed = PartitionContext(context_of(1), first)
    for text, table in (("1a", "log"), ("1b", "log"), ("1c", "other")):
        log(text, table, failed)
    log("2", "log", PartitionContext(context_of(2), first))
    assert sorted(session.table("log").collect()) == [("2",), ("own",)]
    with pytest.raises(InputError, match="no table"):
        session.table("other").collect()
    # A run of this name in another stage.
    log("b", "log", PartitionContext(context_of(1), session.of_store("b")))
    assert sorted(session.table("log").collect()) == [("2",), ("b",), ("own",)]


@pytest.mark.usefixtures("shared_cluster")
def test_a_function_appends_to_a_table_once(session: Session) -> None:
    session.create_dataframe(ROWS).filter(col("REGION").is_not_null()).write.save_as_table("sales")
    run = DPF(solve, str(Path("stage").absolute())).run(
        partition_by="REGION", snowpark_dataframe=session.table("sales"), run_id="v1"
    )
    assert run.wait() is RunStatus.SUCCESS
    rows = session.table("out").sort("REGION").collect()
    assert rows == [("EU", 2), ("US", 1)]
    names = {each.name.partition("-")[0] for each in session.table_folder("out").iterdir()}
    assert names == {session.of_store("stage")._writer}, "Runs of other stages have other names."
