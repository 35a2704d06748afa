"""Queries of a session: what Snowflake answers, or a sentence."""

# ruff: noqa: DTZ001, ISC004 (times without a zone are values as well; long queries)
import datetime as dt
import sys
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from partwise.compat.snowflake.ml.data import DataConnector
from partwise.compat.snowflake.snowpark import Session, dialect, functions
from partwise.compat.snowflake.snowpark.functions import col
from partwise.errors import ColumnError, InputError

ROWS = pa.table(
    {
        "A": pa.array([1, 2, 2, None], pa.int8()),
        "X": [10, None, 30, 0],
        "b": ["é", "x", None, "y"],
        "D": [dt.date(2020, 1, 31), None, dt.date(2021, 2, 1), dt.date(2020, 1, 5)],
        "TS": [datetime(2020, 1, 1, 23, 5), None, datetime(2021, 1, 1), None],
        "F": [2.5, float("inf"), None, -2.5],
    }
)


@pytest.fixture
def session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Session:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Session, "active", None)
    session = Session.builder.create()
    session.write_rows("t", ROWS, "overwrite")
    session.write_rows("u", pa.table({"A": [1, 2, 3], "Y": [0.5, 0.25, 1.0]}), "overwrite")
    return session


def answer(session: Session, query: str, params: list[Any] | None = None) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in session.sql(query, params).collect()]


@pytest.mark.parametrize(
    ("query", "names", "rows"),
    [
        # Names: upper case unless quoted, also where two differ in that alone.
        ('select a, "b", count(*) from t where x = 10 group by all', "A b COUNT(*)", [(1, "é", 1)]),
        ('select a, a as "a", a+1 as "Ab" from u limit 1', "A a Ab", [(1, 1, 2)]),
        ("select max(x), sum(x) as s from local.public.t", "MAX(X) S", [(30, 40)]),
        ("select public.t.a from public.t where x = 0", "A", [(None,)]),
        # A column stands before an alias of its name.
        ("select a%2 as a, count(*) n from t group by a having n > 1", "A N", [(0, 2)]),
        # Nulls are largest.
        ("select a from t order by a desc", "A", [(None,), (2,), (2,), (1,)]),
        ("select x from t order by x limit 2 offset 2", "X", [(30,), (None,)]),
        ("select percentile_cont(0.25) within group (order by x desc) p from t", "P", [(20.0,)]),
        ("select decode(a, null, 'none', 1, 'one') d from t where x = 0", "D", [("none",)]),
        (
            "select x from t qualify row_number() over (partition by a order by x desc) = 1 "
            "order by 1 nulls first",
            "X",
            [(None,), (0,), (10,)],
        ),
        ("with c as (select a, sum(x) n from t group by 1) select c.*, y from c join u using (a) "
         "order by n", "A N Y", [(1, 10, 0.5), (2, 30, 0.25)]),
        ("select a from u minus select a from t union all select 9 order by a", "A", [(3,), (9,)]),
        ("select column1 from values (1, 'a'), (2, 'b') where column2 = 'b'", "COLUMN1", [(2,)]),
        ("select n from (values (1, 'a'), (2, 'b')) as v(n, m) where m = 'a'", "N", [(1,)]),
        ("select a, exists (select 1 from t where t.a = u.a) e from u where a > 1 order by a",
         "A E", [(2, True), (3, False)]),
        ("select last_value(x) over (partition by a order by d) l from t where a = 2 limit 1",
         "L", [(None,)]),
        ("select sum(x) s from t group by grouping sets ((), (a)) order by s desc limit 1", "S",
         [(40,)]),
        # Functions.
        ("select iff(a > 1, 'y', 'n') i, nvl(x, -1) v, zeroifnull(x) z, nvl2(x, 1, 2) w, "
         "decode(a, 2, 'two', 3, 'x', 'y') d from t where x is null",
         "I V Z W D", [("y", -1, 0, 2, "two")]),
        ("select 7/2 h, div0(x, 0) z, 7 % 2 m, -7 % 3 n from t where x = 10", "H Z M N",
         [(3.5, 0, 1, -1)]),
        ("select 2.5::float::int a, f::int b, '2.5'::int c, '1.25'::number(10,1) d from t "
         "where f = -2.5", "A B C D", [(3, -3, 3, Decimal("1.3"))]),
        ("select 'a' || x || d t, concat('a', null) n from t where x = 10", "T N",
         [("a102020-01-31", None)]),
        ("select listagg(\"b\", ',') within group (order by x) l from t", "L", [("y,é,x",)]),
        ("select listagg(distinct x) l from t where x = 10", "L", [("10",)]),
        ("select listagg(\"b\") l from t where x > 99", "L", [("",)]),
        ("select greatest(a, null) g, substr('abc', 0, 2) s, left('abc', -1) l from u limit 1",
         "G S L", [(None, "ab", "")]),
        ("select dateadd(day, 1, d) a, dateadd('hour', 1, d) b, dateadd(month, 1, d) c, "
         "date_trunc('month', d) e, datediff(month, d, '2020-03-01'::date) f, last_day(d) g, "
         "year(ts) h from t where x = 10", "A B C E F G H",
         [(dt.date(2020, 2, 1), datetime(2020, 1, 31, 1), dt.date(2020, 2, 29),
           dt.date(2020, 1, 1), 2, dt.date(2020, 1, 31), 2020)]),
        ("select datediff(week, '2020-01-05'::date, to_date('2020-01-06')) w", "W", [(1,)]),
        ("select date_trunc('month', '2020-01-05'::date) a, date_part('mm', ts) b, "
         "extract(hour from ts) c from t where x = 10", "A B C", [(dt.date(2020, 1, 1), 1, 23)]),
        ("select to_timestamp('2020-01-02 03:04:05') t", "T", [(datetime(2020, 1, 2, 3, 4, 5),)]),
        ("select count(*) c from t where uniform(1, 3, random()) not between 1 and 3", "C", [(0,)]),
        ("select a -- a comment\n from u where 'a  b' = 'a' || '  b' and a = 3;", "A", [(3,)]),
    ],
)  # fmt: skip
def test_queries_are_answered_as_there(
    session: Session, query: str, names: str, rows: list[tuple[Any, ...]]
) -> None:
    frame = session.sql(query)
    assert [name.strip('"') for name in frame.columns] == names.split()
    assert [tuple(row) for row in frame.collect()] == rows


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("select b from t", r"Column 'B' could not be resolved"),
        ('select "a" from t', r"Column 'a' could not be resolved"),
        ("select x / (x - 10) from t", "Division by zero"),
        ("select x % 0 from t", "Division by zero"),
        ("select f::varchar from t", "The text of a DOUBLE is another one in Snowflake"),
        ("select 'a' || ts from t", "The text of a TIMESTAMP"),
        ("select '2020-01-01 00:00:00+02'::timestamp", "depends on a time zone"),
        ("select datediff(day, '2020-01-01', d) from t", "one is of type VARCHAR: write ::DATE"),
        ("select ts - ts from t", "an interval as a value"),
        ('select a from t union all select "b" from t', r'"A", .*"b" are texts and numbers: cast'),
        ("select a from u where a = '2.4'", "are texts and numbers"),
        ("select a + '2.4' from u", "are texts and numbers"),
        ('select a from t where "b" in (1, 2)', "are texts and numbers"),
        ("select coalesce(x, '2.4'), nvl(x, 'no') from t", "are texts and numbers"),
        ("select decode(a, 1, 'x', 2) from t", "are texts and numbers"),
        ("select nvl2(a, '1.5', x) from t", "are texts and numbers"),
        ("select iff(a > 1, '1', x) from t", "are texts and numbers"),
        ("select upper(f) from t", "takes texts: write ::VARCHAR"),
        ("select case when a > 1 then x else '2.4' end from t", "are texts and numbers"),
        ("select x::text(2) from t", r"the type VARCHAR\(2\) is not among"),
        ("select to_date('1/2/2020', 'DD/MM/YYYY')", "only its first arguments"),
        ("select uniform(1, 3, 7)", "RANDOM.. without a seed"),
        ("select random(7)", "what a seed draws"),
        ("select count(t.*) from t", "rows without a null are counted there"),
        ("select random() as r, r + 1 as s from t", "the alias of a random number is used"),
        # DuckDB leaves out rows of which the value is null.
        ("select max_by(x, a) from t", "MAX_BY.x, a. is not among"),
        ("select * from values (1), ('2.5')", "are texts and numbers"),
        ("select hash(a) from t", r"HASH\(a\) is not among what is known here"),
        ("select array_agg(a), object_construct('a', 1) from t", "is not among what is known"),
        ("select $1 from values (1)", r"\$1 is not among"),
        ("select * from t natural join u", "a join says ON or USING"),
        ("select * from t at(offset => -60)", "as they are now"),
        ("select * from t, lateral flatten(input => x)", "is not among"),
        ("select 1; select 2", "is not one statement"),
        ("select ?", "1 places for parameters, and 0 came"),
        ("selec", "it is no SELECT"),
        ("create view v as select 1", "a table is written by CREATE TABLE name AS"),
        ("create table v clone t", "a table is written by CREATE TABLE name AS"),
        ("update t set a = 1", "it is no SELECT"),
        ("call refresh('t')", "it is no SELECT"),
        ("show columns in table t", "only SELECT, CREATE TABLE AS and SHOW TABLES are known"),
    ],
)
def test_what_may_mean_something_else_is_refused(
    session: Session, query: str, words: str, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(InputError, match=f"The statement .* cannot be carried out: .*{words}"):
        session.sql(query).collect()
    assert caplog.messages == []


@pytest.mark.parametrize(
    "query",
    [
        "select * from read_csv('{}')",
        "select read_text('{}')",
        "select * from '{}'",
        'select * from "{}"',
        "select * from @stage/file.parquet",
        "copy (select 1) to '{}.new'",
        "attach '{}.new'",
        "install httpfs",
        "pragma version",
        "set enable_external_access = true",
        "create table x as select * from read_csv('{}')",
        "insert into t select * from glob('{}')",
        "select * from rows",
    ],
)
def test_nothing_but_tables_is_read_and_written(
    session: Session, tmp_path: Path, query: str
) -> None:
    rows = pa.table({"A": [1]})  # a variable that DuckDB alone would find
    secret = tmp_path / "secret.csv"
    secret.write_text("a\n1\n")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(InputError, match=r"cannot be carried out|is no name|There is no table"):
        session.sql(query.format(secret)).collect()
    assert sorted(tmp_path.rglob("*")) == before
    assert rows.num_rows == 1


@pytest.mark.parametrize(
    "text",
    [
        "select * from read_csv('{}')",
        "select content from read_text('{}')",
        "select * from '{}'",
        "copy (select 1) to '{}.new'",
        "attach '{}.new'",
        "set enable_external_access = true",
    ],
)
def test_duckdb_itself_is_locked_whatever_gets_through_to_it(
    session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    secret = tmp_path / "secret.csv"
    secret.write_text("a\n1\n")
    before = sorted(tmp_path.rglob("*"))
    # As if the list of what is known had a hole.
    monkeypatch.setattr(dialect, "translated", lambda *_: text.format(secret))
    with pytest.raises(InputError, match=r"disabled|locked"):
        session.sql("select 1").collect()
    assert sorted(tmp_path.rglob("*")) == before


def test_parameters_come_in_the_order_of_the_text(session: Session) -> None:
    query = "with c as (select ? as q) select a, q, ? r from t, c where a between ? and ? limit ?"
    assert answer(session, query, ["it's ?", 0.1, 1, 1, 5]) == [(1, "it's ?", 0.1)]
    dates = [dt.date(2021, 2, 1), None, True]
    assert answer(session, "select x from t where d = ? and ? is null and ?", dates) == [(30,)]
    assert answer(session, "select x-? d, ? t from t where x = 0", [-1, "a\\nb\n"]) == [
        (1, "a\\nb\n")
    ]
    with pytest.raises(InputError, match=r"<object object .* is no value of SQL"):
        session.sql("select ?", [object()])


def test_rows_of_a_query_become_a_table(session: Session) -> None:
    answer(session, 'create table n as select a, "b", count(*) from t group by all')
    assert session.table("n").columns == ["A", '"b"', '"COUNT(*)"']
    with pytest.raises(InputError, match=r"LOCAL.PUBLIC.N is there"):
        answer(session, "create transient table n as select 1 as a")
    answer(session, "create table if not exists n as select 1 as a")
    assert session.table("n").count() == 4
    assert answer(session, "insert into n values (7, 'x', 8), (9, null, 2.0)") == [(2,)]
    assert answer(session, "insert into n (a) select x from t where x > 10") == [(1,)]
    assert answer(session, "select * from n where a > 6 order by a") == [
        (7, "x", 8),
        (9, None, 2),
        (30, None, None),
    ]
    assert answer(session, 'insert into n (a, "COUNT(*)") select 1, 1') == [(1,)]
    with pytest.raises(InputError, match=r"1 value came for the columns \['A', '\"b\"'"):
        answer(session, "insert into n select 1")
    with pytest.raises(InputError, match='"b" is of texts, and that of a double is another one'):
        answer(session, "insert into n select a, f, x from t")
    with pytest.raises(InputError, match="Failed to parse"):
        answer(session, "insert into n values ('x', 'x', 1)")
    answer(session, "create or replace table n as select 1 as a")
    assert answer(session, "select * from n") == [(1,)]
    assert answer(session, "show tables") == [("N",), ("T",), ("U",)]


def test_no_temporary_table_takes_the_place_of_another(session: Session) -> None:
    for number in (1, 2):
        answer(session, f"create or replace temp table n as select {number} as a")
        assert answer(session, "select a from n") == [(number,)]
    with pytest.raises(InputError, match="t is no temporary table"):
        answer(session, "create or replace temporary table t as select 1 as a")
    assert session.table("t").count() == 4


def test_a_query_is_carried_out_when_its_rows_are_asked_for(session: Session) -> None:
    frame = session.sql("select count(*) as n from later")
    with pytest.raises(InputError, match=r"no table LOCAL.PUBLIC.LATER in .+; there are: LOCAL"):
        frame.collect()
    session.write_rows("later", ROWS, "overwrite")
    assert frame.collect()[0].N == 4
    session.write_rows("later", ROWS, "append")
    assert frame.collect()[0].N == 8


def test_two_columns_of_one_name_are_no_answer(session: Session) -> None:
    with pytest.raises(ColumnError, match=r"The result would have more than one column named 'A'"):
        answer(session, "select * from t join u on t.a = u.a")


def test_a_frame_is_subtracted_by_the_places_of_its_columns(session: Session) -> None:
    def kept(rows: list[Any], others: list[Any]) -> list[Any]:
        frame, other = pa.table({"A": rows}), pa.table({"B": others})
        return (
            session.create_dataframe(frame.to_pandas())
            .subtract(session.create_dataframe(other.to_pandas()))
            .collect()
        )

    assert kept([[1], [2], [2]], [[1]]) == [([2],)]
    assert kept([0.0, 1.0], [-0.0]) == [(1.0,)]
    frame = session.create_dataframe([(1, 3), (2, 4)], schema=["A", "B"])
    assert frame.subtract(session.create_dataframe([(1, 3)], schema=["B", "A"])).count() == 1
    with pytest.raises(InputError, match=r"EXCEPT.* same number of result columns"):
        frame.subtract(frame.select("A"))


def test_frames_are_joined_and_put_together(session: Session) -> None:
    table, other = session.table("t").select("a", "x", '"b"'), session.table("u")
    assert [row.X for row in table.filter('x > 5 and "b" is not null').collect()] == [10]
    assert table.where("a in (select a from u where y < 0.5)").count() == 2
    assert sorted(table.select("a").distinct().collect(), key=str) == [(1,), (2,), (None,)]
    assert table.select("a").union_all(other.select("a")).count() == 7
    assert table.select("a").union(other.select("a")).count() == 4
    joined = table.join(other, on="a")
    assert joined.columns == ["A", "X", '"b"', "Y"]
    rows = [(1, 10, "é", 0.5), (2, 30, None, 0.25), (2, None, "x", 0.25)]
    assert sorted(joined.collect(), key=str) == rows
    ways = ("left", "right_outer", "outer")
    counts = {how: table.join(other, ["a"], how).count() for how in ways}
    assert counts == {"left": 4, "right_outer": 4, "outer": 5}
    with pytest.raises(InputError, match="Column 'B' could not be resolved"):
        table.filter("b = 'x'")
    with pytest.raises(InputError, match=r"how= of inner, left, right, full, not 'cross'"):
        table.join(other, "a", "cross")
    with pytest.raises(InputError, match=r"join takes names of columns"):
        table.join(other, table["A"] == other["A"])  # type: ignore[arg-type]
    with pytest.raises(ColumnError, match=r"more than one column named 'X'"):
        table.join(table, "a")


def test_groups_of_a_frame_are_counted_and_computed(session: Session) -> None:
    table = session.table("t")
    counted = table.group_by("a").count().sort("A")
    assert [each.as_dict() for each in counted.collect()[:2]] == [
        {"A": None, "COUNT": 1},
        {"A": 1, "COUNT": 1},
    ]
    totals = table.group_by(["a"]).agg(functions.sum("x").alias("total"), functions.max(col("D")))
    assert totals.columns == ["A", "TOTAL", '"MAX(D)"']
    assert sorted(row.TOTAL for row in totals.collect()) == [0, 10, 30]
    pairs = table.group_by(col("A")).agg({"x": "sum", '"b"': "count"}).sort("A", ascending=False)
    assert pairs.columns == ["A", '"SUM(X)"', '"COUNT("B")"']
    assert pairs.first() == (2, 30, 1)
    assert table.agg(("x", "avg"), ("*", "count")).collect() == [(40 / 3, 4)]
    assert table.select(functions.min("x"), functions.stddev("a")).first()[0] == 0
    assert table.group_by().sum("x", col("A")).collect() == [(40, 5)]
    for ask in (lambda: table.agg(), lambda: table.agg("x"), lambda: table.agg(col("x"))):
        with pytest.raises(InputError, match=r"agg takes sum\("):
            ask()
    with pytest.raises(InputError, match=r"ARRAY_AGG.* is not among"):
        table.agg({"x": "array_agg"})
    with pytest.raises(InputError, match="SUM of a computed column: make it by with_column"):
        functions.sum(col("x") + 1)
    with pytest.raises(AttributeError, match=r"RelationalGroupedDataFrame.pivot is not"):
        table.group_by("a").pivot("x")


def test_decimals_leave_the_session_as_floats(session: Session) -> None:
    frame = session.sql("select x * 1.5 as y from t where x > 0 order by x")
    assert Decimal("15.0") == frame.collect()[0].Y
    assert frame.to_pandas()["Y"].dtype == float
    whole = pa.table({"N": pa.array([Decimal(7)]), "L": pa.array([Decimal(10**30)])})
    session.write_rows("w", whole, "overwrite")
    assert list(session.table("w").to_pandas().iloc[0]) == [7, Decimal(10**30)]
    assert DataConnector.from_dataframe(frame).to_pandas()["Y"].tolist() == [15.0, 45.0]


def test_what_is_drawn_in_a_subquery_is_drawn_once(session: Session) -> None:
    drawn = "select r - r as d, r from (select uniform(0::float, 1::float, random()) as r from t)"
    rows = answer(session, drawn)
    assert [d for d, _ in rows] == [0] * 4
    assert len({r for _, r in rows}) == 4


@pytest.mark.parametrize("package", ["duckdb", "sqlglot"])
def test_what_is_to_be_installed_is_said(
    session: Session, monkeypatch: pytest.MonkeyPatch, package: str
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(InputError, match=r"is not installed: pip install 'partwise\[snowpark\]'"):
        session.sql("select a from t")
    assert session.sql("select count(*) from t").collect()[0][0] == 4
    # What no package carries out asks for none.
    with pytest.raises(InputError, match=r"cannot be carried out: it is no SELECT"):
        session.sql("-- all of it\n/* x */ delete from t").collect()


def test_types_of_tables_come_back(session: Session) -> None:
    kinds = {
        "BYTES": pa.array([b"\x00\xff", None]),
        "FLAG": pa.array([True, None]),
        "MONEY": pa.array([Decimal("1.10"), None], pa.decimal128(38, 2)),
        "LARGE": pa.array([Decimal(10**37), None], pa.decimal128(38, 0)),
        "ZONED": pa.array([0, None], pa.timestamp("us", "UTC")),
        "NANO": pa.array([1, None], pa.timestamp("ns")),
        "LIST": pa.array([[1, None], None], pa.list_(pa.int64())),
        "CATEGORY": pa.array(["x", None]).dictionary_encode(),
        "NAN": pa.array([float("nan"), None]),
        "NOTHING": pa.nulls(2),
        "UNSIGNED": pa.array([2**64 - 1, None], pa.uint64()),
        "TIME": pa.array([dt.time(1, 2, 3), None]),
    }  # fmt: skip
    rows = pa.table(kinds)
    session.write_rows("k", rows, "overwrite")
    found = session.sql("select * from k where money is null or flag")._read()
    assert found.column_names == rows.column_names
    for name, column in kinds.items():
        assert str(found[name].to_pylist()) == str(column.to_pylist()), name
    sums = session.sql("select sum(large) s, sum(money) m, sum(unsigned) u from k").collect()[0]
    assert tuple(sums) == (10**37, Decimal("1.10"), 2**64 - 1)
    assert session.sql("select * from k limit 0")._read().column_names == rows.column_names


VALUES = {
    "K": st.sampled_from(["a", "A", "é", "", None]),
    "n": st.one_of(st.none(), st.integers(-(2**31), 2**31)),
    "F": st.one_of(st.none(), st.floats(-1e6, 1e6)),
    "D": st.one_of(st.none(), st.dates()),
    "B": st.one_of(st.none(), st.booleans()),
}
TYPES = dict(
    zip(VALUES, [pa.string(), pa.int64(), pa.float64(), pa.date32(), pa.bool_()], strict=True)
)


@settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(st.lists(st.tuples(*VALUES.values()), max_size=12))
def test_any_table_comes_back_and_is_grouped(session: Session, rows: list[tuple[Any, ...]]) -> None:
    columns = list(zip(*rows, strict=True)) or [()] * len(TYPES)
    table = pa.table(
        {name: pa.array(column, TYPES[name]) for name, column in zip(TYPES, columns, strict=True)}
    )
    session.write_rows("r", table, "overwrite")
    assert session.sql("select * from r where true")._read().equals(table)
    grouped = answer(
        session, 'select k, count(*), count("n"), sum("n"), min(f), max(d) from r group by k'
    )
    wanted = table.group_by("K").aggregate(
        [([], "count_all"), ("n", "count"), ("n", "sum"), ("F", "min"), ("D", "max")]
    )
    assert sorted(grouped, key=repr) == sorted(
        zip(*(column.to_pylist() for column in wanted.columns), strict=True), key=repr
    )
    places = pc.sort_indices(table["n"], sort_keys=[("", "ascending")])
    ordered = [each for (each,) in answer(session, 'select "n" from r order by "n"')]
    assert ordered == table["n"].take(places).to_pylist()
