"""Frames that are computed as they are read: again each time, in pieces, without a copy."""

import datetime as dt
import threading

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset as pads
import pyarrow.parquet as pq
import pytest

from partwise.connector.returned_rows import returned_table
from partwise.errors import ColumnError, SourceError
from partwise.sources.opening import open_source

TABLE = pa.table({"n": range(6), "text": ["a", "b", None] * 2})


def rows(source) -> list[dict]:
    return [row for batch in source.batches() for row in batch.to_pylist()]


def test_a_duckdb_relation_is_executed_at_each_reading():
    connection = duckdb.connect()
    connection.execute('create table sales (n int, "odd ""name" decimal(6, 2), day date)')
    source = open_source(connection.table("sales"))
    assert source.schema.field("day").type == pa.date32()
    assert source.schema.field('odd "name').type == pa.decimal128(6, 2)
    assert rows(source) == []
    connection.execute("insert into sales values (1, 2.5, '2026-01-01')")
    assert len(rows(source)) == 1
    connection.execute("insert into sales select range, 1, null from range(300000)")
    sizes = [batch.num_rows for batch in source.batches()]
    assert sum(sizes) == 300_001
    assert max(sizes) < 200_000, "it comes in pieces"
    only = open_source(connection.sql("from sales"), columns=['odd "name'], filter=[("n", "=", 1)])
    assert {str(row['odd "name']) for row in rows(only)} == {"2.50", "1.00"}


def test_a_query_that_fails_says_why():
    connection = duckdb.connect()
    bad = connection.sql("select cast(x as int) as n from (values ('7'), ('z')) t(x)")
    source = open_source(bad)
    with pytest.raises(SourceError, match=r"DuckDB relation cannot be read: .*Could not convert"):
        rows(source)
    relation = duckdb.connect().sql("select 1 as a, 2 as a")
    with pytest.raises(ColumnError, match="more than one column named 'a'"):
        open_source(relation)


def test_a_lazy_frame_is_computed_at_each_reading_in_pieces(tmp_path):
    path = tmp_path / "x.parquet"
    pl.DataFrame({"n": range(400_000), "text": "t"}).write_parquet(path)
    source = open_source(pl.scan_parquet(path).filter(pl.col("n") >= 100_000), columns=["n"])
    sizes = [batch.num_rows for batch in source.batches()]
    assert sum(sizes) == 300_000
    assert len(sizes) > 1
    stream = source.batches()
    assert next(stream).num_rows == sizes[0]
    stream.close()
    assert "partwise-polars" not in [thread.name for thread in threading.enumerate()]
    # Polars itself panics over a file that became shorter; that must not pass for the end of rows.
    pl.DataFrame({"n": [100_000], "text": "t"}).write_parquet(path)
    with pytest.raises(SourceError, match="polars LazyFrame cannot be read: PanicException"):
        rows(source)


def test_a_lazy_frame_that_cannot_be_computed_says_why():
    with pytest.raises(SourceError, match="polars LazyFrame cannot be read: ColumnNotFoundError"):
        open_source(pl.LazyFrame({"a": [1]}).select("b"))
    source = open_source(pl.LazyFrame({"a": ["x"]}).select(pl.col("a").cast(pl.Int64)))
    with pytest.raises(SourceError, match="polars LazyFrame cannot be read: InvalidOperationError"):
        rows(source)


def test_types_of_polars_are_kept():
    frame = pl.DataFrame(
        {"category": ["x", "y"], "list": [[1], None], "duration": [1, None]},
        schema={
            "category": pl.Enum(["y", "x"]),
            "list": pl.List(pl.Int16),
            "duration": pl.Duration("us"),
        },
    )
    lazy, eager = open_source(frame.lazy()), open_source(frame)
    assert lazy.schema.equals(eager.schema)
    assert rows(lazy) == rows(eager) == frame.to_dicts()


def test_a_dataset_is_read_in_fragments_with_its_own_partitions(tmp_path):
    for year in (2025, 2026):
        (tmp_path / f"year={year}").mkdir()
        pq.write_table(TABLE, tmp_path / f"year={year}" / "x.parquet")
    dataset = pads.dataset(tmp_path, partitioning="hive")
    source = open_source(dataset)
    assert len(source.fragments()) == 2
    assert [row["year"] for row in rows(source)] == [2025] * 6 + [2026] * 6
    picked = open_source(dataset, filter=[("year", "=", 2026), ("n", "<", 2)], columns=["n"])
    assert len(picked.fragments()) == 1, "the other file is left out"
    assert rows(picked) == [{"n": 0}, {"n": 1}]
    assert rows(open_source(pads.dataset(TABLE))) == TABLE.to_pylist()


class Countdown:
    """An Arrow stream whose reading consumes it, and which does not say so."""

    def __init__(self, table: pa.Table) -> None:
        self.reader = table.to_reader()

    def __arrow_c_stream__(self, requested_schema=None):
        schema, batches = self.reader.schema, list(self.reader)
        return pa.RecordBatchReader.from_batches(schema, batches).__arrow_c_stream__()


@pytest.mark.parametrize(
    "make", [TABLE.to_reader, lambda: Countdown(TABLE), lambda: open_reader(TABLE)]
)
def test_a_stream_is_read_once_and_a_second_reading_says_so(make):
    source = open_source(make())
    assert rows(source) == TABLE.to_pylist()
    with pytest.raises(SourceError, match=r"was read already, and its rows are gone: give a table"):
        rows(source)


def open_reader(table: pa.Table) -> pa.RecordBatchReader:
    return duckdb.connect().from_arrow(table).to_arrow_reader(2)


def test_a_stream_is_not_copied_into_memory():
    made = []

    def batches():
        for number in range(100):
            made.append(number)
            yield pa.record_batch({"n": [number]})

    reader = pa.RecordBatchReader.from_batches(pa.schema([("n", pa.int64())]), batches())
    stream = open_source(reader, columns=["n"]).batches()
    assert made == []
    assert next(stream).to_pylist() == [{"n": 0}]
    assert len(made) < 5


def test_a_stream_that_breaks_off_says_so():
    def batches():
        yield pa.record_batch({"n": [1]})
        raise RuntimeError("the line is dead")

    reader = pa.RecordBatchReader.from_batches(pa.schema([("n", pa.int64())]), batches())
    with pytest.raises(SourceError, match=r"RecordBatchReader cannot be read: .*the line is dead"):
        rows(open_source(reader))


@pytest.mark.parametrize(
    "make",
    [
        lambda: pl.LazyFrame({"a": [1]}),
        lambda: duckdb.connect().sql("select 1 as a"),
        lambda: pads.dataset(TABLE),
        TABLE.to_reader,
    ],
    ids=["polars", "duckdb", "dataset", "reader"],
)
def test_of_what_is_computed_nothing_is_known_before(make):
    data = make()
    first, second = open_source(data).description(), open_source(make()).description()
    assert first.fingerprint != second.fingerprint
    assert (first.rows, first.size_bytes, first.recipe) == (None, 0, None)


def test_frames_of_several_kinds_are_one_source():
    frame = pd.DataFrame({"text": ["z"], "n": [9.5]})
    mixed = [TABLE, frame, pl.LazyFrame({"n": [7], "text": ["y"], "more": [0]}), TABLE.to_reader()]
    source = open_source(mixed)
    assert source.schema.field("n").type == pa.float64()
    found = rows(source)
    assert [row["n"] for row in found] == [*range(6), 9.5, 7, *range(6)]
    assert [row["text"] for row in found][6:8] == ["z", "y"]
    with pytest.raises(SourceError, match="was read already"):
        rows(source)
    with pytest.raises(ColumnError, match="'text' of item 0 of the list is missing in item 1"):
        open_source([TABLE, pl.LazyFrame({"n": [1]})])


DATE, NAIVE = dt.date(2024, 1, 1), dt.datetime.fromisoformat("2024-01-01 05:00")
AWARE = NAIVE.replace(tzinfo=dt.UTC)
OF_TIMES = {
    "plain": lambda values: pd.DataFrame({"t": pd.Series(values, dtype=object)}),
    "categories": lambda values: pd.DataFrame({"t": pd.Categorical(values)}),
    "index": lambda values: pd.DataFrame({"x": 1}, pd.Index(values, dtype=object, name="t")),
}


@pytest.mark.parametrize("form", OF_TIMES)
@pytest.mark.parametrize(
    ("values", "kinds"),
    [
        ([DATE, None, NAIVE], "dates and times without a zone"),
        ([DATE, AWARE], "dates and times with a zone"),
        ([NAIVE, pd.NaT, AWARE], "times without a zone and times with a zone"),
        ([AWARE, pd.Timestamp(NAIVE)], "times with a zone and times without a zone"),
    ],
)
def test_times_of_several_kinds_in_a_column_are_refused(form, values, kinds):
    """Arrow cuts the hour off, or takes times without a zone for those of UTC."""
    if form == "categories":
        values = [value for value in values if not pd.isna(value)]
    with pytest.raises(ColumnError, match=f"Column 't' of the frame holds {kinds}: cast it"):
        open_source(OF_TIMES[form](values))


@pytest.mark.parametrize("form", OF_TIMES)
@pytest.mark.parametrize("values", [[DATE, None], [NAIVE, pd.Timestamp(NAIVE)], [AWARE, pd.NaT]])
def test_times_of_one_kind_are_taken(form, values):
    values = values[:1] if form == "categories" else values
    assert rows(open_source(OF_TIMES[form](values)))[0]["t"] == values[0]


def test_a_returned_frame_with_times_of_several_kinds_is_refused():
    with pytest.raises(ColumnError, match="holds dates and times without a zone"):
        returned_table(OF_TIMES["plain"]([DATE, NAIVE]), "value")


def test_of_an_index_only_levels_with_names_of_their_own_are_columns():
    """Else __index_level_0__ would be a feature of models."""
    frame = pd.DataFrame({"k": [1, 2], "j": [3, 4], "x": [5, 6]})
    cases = {
        ("k", "j", "x"): frame.set_index("k", drop=False),
        ("k", "x", "j"): frame.set_index(["k"], drop=False).set_index("j", append=True),
        ("j", "x", "k"): frame.set_index("k"),
        ("j", "k", "x"): frame.set_index("k", drop=False).set_index(["j", "k"], drop=False)[
            ["j", "k", "x"]
        ],
    }
    for names, each in cases.items():
        assert open_source(each).schema.names == list(names)
    unnamed = frame.set_index(["k", "j"]).rename_axis(["k", None])
    assert open_source(unnamed).schema.names == ["x", "k"]


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (pd.arrays.SparseArray([0, 1, 0]), [0, 1, 0]),
        (pd.arrays.SparseArray([np.nan, 1.5, 0]), [None, 1.5, 0]),
        (pd.arrays.SparseArray([False, True, False]), [False, True, False]),
        (np.array([1, 2, 3], ">i4"), [1, 2, 3]),
        (np.array([1.5, np.nan, 3], ">f8"), [1.5, None, 3]),
    ],
    ids=lambda value: str(getattr(value, "dtype", "")),
)
def test_sparse_columns_and_bytes_of_another_order_are_plain_values(column, expected):
    frame = pd.DataFrame({"k": ["a", "b", "c"], "x": column})
    assert [row["x"] for row in rows(open_source(frame))] == expected
    assert frame["x"].dtype == column.dtype


def test_columns_of_a_lazy_frame_may_be_called_as_patterns_of_polars_are():
    columns = {"a": [1], "^a$": [2], "*": [3], "": [4]}
    source = open_source(pl.LazyFrame(columns))
    assert rows(source) == [{"a": 1, "^a$": 2, "*": 3, "": 4}]
    assert rows(open_source(pl.LazyFrame(columns), columns=["*", "^a$"])) == [{"*": 3, "^a$": 2}]
