"""A filter compares as SQL does, wherever the rows come from: a null passes no comparison."""

import sqlite3
from contextlib import closing

import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.orc as orc
import pyarrow.parquet as pq
import pytest
from pyarrow.dataset import dataset

from partwise.sources.files.file_set import Files
from partwise.sources.files.reading_options import CsvOptions
from partwise.sources.opening import open_source
from partwise.sources.sql.query import Query

ROWS = pa.table({"id": [1, 2, 3, 4], "kind": ["sold", None, "new", "sold"]})


def parquet(folder):
    pq.write_table(ROWS, folder / "a.parquet", row_group_size=1)
    return str(folder / "a.parquet")


def orc_file(folder):
    orc.write_table(ROWS, folder / "a.orc")
    return str(folder / "a.orc")


def csv(folder):
    (folder / "a.csv").write_text('id,kind\n1,sold\n2,NA\n3,new\n4,"sold"\n')
    return Files(str(folder / "a.csv"), csv=CsvOptions(null_words=("NA",)))


def json_lines(folder):
    (folder / "a.jsonl").write_text(ROWS.to_pandas().to_json(orient="records", lines=True))
    return str(folder / "a.jsonl")


def sqlite(folder):
    with closing(sqlite3.connect(folder / "a.db")) as connection:
        connection.execute("create table t (id integer, kind text)")
        connection.executemany(
            "insert into t values (?, ?)", zip(*ROWS.to_pydict().values(), strict=True)
        )
        connection.commit()
    return Query("t", str(folder / "a.db"), order_by=["id"])


def delta(folder):
    deltalake = pytest.importorskip("deltalake")
    for row in range(ROWS.num_rows):
        deltalake.write_deltalake(folder / "delta", ROWS.slice(row, 1), mode="append")
    return str(folder / "delta")


def hive(folder):
    pq.write_to_dataset(ROWS, folder / "hive", partition_cols=["kind"])
    return str(folder / "hive")


SOURCES = {
    "table": lambda _: ROWS,
    "pandas": lambda _: ROWS.to_pandas(),
    "nullable pandas": lambda _: ROWS.to_pandas(types_mapper=pd.ArrowDtype),
    "polars": lambda _: pl.from_arrow(ROWS),
    **{each.__name__: each for each in (parquet, orc_file, csv, json_lines, sqlite, delta, hive)},
}
FILTERS = [
    (("kind", "!=", "sold"), [3]),
    (("kind", "not in", ["sold"]), [2, 3]),
    (("kind", "==", "sold"), [1, 4]),
    (("kind", ">", "a"), [1, 3, 4]),
]


@pytest.mark.parametrize("name", SOURCES)
def test_null_passes_no_comparison_but_not_in(name, tmp_path):
    data = SOURCES[name](tmp_path)
    for condition, expected in FILTERS:
        source = open_source(data, filter=[condition])
        found = [row for batch in source.batches() for row in batch["id"].to_pylist()]
        assert sorted(found) == expected, condition


NUMBERS = pa.table({"id": [1, 2, 3, 4, 5], "x": [3.0, float("nan"), 3.0, None, 3.0]})


def groups_of(rows):
    def parquet(folder):
        pq.write_table(NUMBERS, folder / "a.parquet", row_group_size=rows)
        return str(folder / "a.parquet")

    return parquet


def nan_delta(folder):
    deltalake = pytest.importorskip("deltalake")
    deltalake.write_deltalake(folder / "delta", NUMBERS)
    return str(folder / "delta")


NAN_SOURCES = {
    "table": lambda _: NUMBERS,
    "polars": lambda _: pl.from_arrow(NUMBERS),
    **{f"groups of {rows}": groups_of(rows) for rows in (1, 2, 3, 5)},
    "dataset": lambda folder: dataset(groups_of(5)(folder)),
    "lazy frame": lambda folder: pl.scan_parquet(groups_of(5)(folder)),
    "delta": nan_delta,
}
NAN_FILTERS = [
    ([("x", "!=", 3)], [2]),
    ([("x", "not in", [3.0])], [2, 4]),
    ([[("x", "!=", 3), ("id", "<", 4)], [("id", "==", 5)]], [2, 5]),
    ([("x", "==", 3)], [1, 3, 5]),
    ([("x", "in", [3, 4])], [1, 3, 5]),
    ([("x", "<", 10)], [1, 3, 5]),
]


@pytest.mark.parametrize("name", NAN_SOURCES)
def test_nan_is_unequal_to_every_number_however_rows_are_grouped(name, tmp_path):
    """Statistics of a row group of 3 and NaN say that all is 3."""
    data = NAN_SOURCES[name](tmp_path)
    for conditions, expected in NAN_FILTERS:
        source = open_source(data, filter=conditions)
        found = [row for batch in source.batches() for row in batch["id"].to_pylist()]
        assert sorted(found) == expected, conditions
