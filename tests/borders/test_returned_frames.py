"""Frames that a function returns: with the values that they have as sources, or refused by name."""

from decimal import Decimal
from itertools import chain

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from partwise.connector.data_connector import DataConnector
from partwise.connector.returned_rows import returned_table
from partwise.engine.works import produce_rows
from partwise.errors import ColumnError
from partwise.runs.contents import output_rows
from partwise.runs.ledger import write_table
from partwise.sources.opening import open_source

KEYS = DataConnector(pa.table({"key": ["a", "a", "a"]}))


def kept(outcome):
    """The column "x" of what a function returned, as it is in the rows of a run."""
    rows = produce_rows(outcome, KEYS, ["key"], None, "value").rows
    return output_rows(write_table(rows), "rows", None, rows.num_rows)["x"]


@pytest.mark.parametrize("kind", [pl.Categorical, pl.Enum(["b", "a"])], ids=str)
def test_categories_of_polars_are_kept_as_text(kind):
    frame = pl.DataFrame({"x": pl.Series(["a", None, "b"], dtype=kind)})
    assert kept(frame).to_pylist() == ["a", None, "b"]


@pytest.mark.parametrize("ordered", [False, True])
def test_a_null_among_the_values_of_a_returned_dictionary_is_a_null(ordered):
    values = pa.array(["b", None, "a"])
    codes = pa.array([2, 1, 0], pa.int8())
    column = pa.DictionaryArray.from_arrays(codes, values, ordered=ordered)
    found = kept(pa.table({"x": column}))
    assert found.to_pylist() == ["a", None, "b"]
    assert not found.type.ordered


def of_partition(values, order, **options):
    """Rows of a partition with categories of pandas: codes of one byte, and no value of others."""
    frame = pd.DataFrame({"x": pd.Categorical(values, order, **options)})
    return produce_rows(frame, KEYS, ["key"], None, "value").rows


def test_categories_that_partitions_order_each_for_itself_have_no_order_in_one_file():
    parts = [
        of_partition(["low", "high"], ["low", "high"], ordered=True),
        of_partition(["mid"], ["low", "mid", "high"], ordered=True),
    ]
    found = output_rows(write_table(pa.concat_tables(parts)), "rows", None, 3)["x"]
    assert found.to_pylist() == ["low", "high", "mid"]
    assert not found.type.ordered


def test_the_order_that_an_earlier_release_gave_such_a_file_is_none():
    column = pa.array(["low", "high", "mid"]).dictionary_encode()
    column = pa.DictionaryArray.from_arrays(column.indices, column.dictionary, ordered=True)
    found = output_rows(write_table(pa.table({"x": column})), "rows", None, 3)["x"]
    assert found.to_pylist() == ["low", "high", "mid"]
    assert not found.type.ordered


def test_partitions_have_more_categories_together_than_one_byte_can_count():
    names = [[f"{part}-{number}" for number in range(100)] for part in range(3)]
    rows = pa.concat_tables([of_partition(each, each) for each in names])
    found = output_rows(write_table(rows), "rows", None, 300)["x"]
    assert found.to_pylist() == list(chain(*names))


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("'0101'::BIT", "0101"),
        (f"{2**70}::BIGNUM", str(2**70)),
        (f"{2**70}::HUGEINT", Decimal(2**70)),
        ("1.5::DOUBLE", 1.5),
    ],
)
def test_a_relation_of_duckdb_gives_what_it_gives_as_a_source(expression, value):
    duckdb = pytest.importorskip("duckdb")
    relation = duckdb.sql(f"SELECT {expression} AS x FROM range(3)")
    assert kept(relation).to_pylist() == [value] * 3


@pytest.mark.parametrize("kind", [pl.Object, pl.Int128], ids=str)
def test_types_of_polars_that_arrow_lacks_are_refused_where_they_are_returned(kind):
    frame = pl.DataFrame({"x": pl.Series([1, 2, 3], dtype=kind)})
    with pytest.raises(ColumnError, match=r"^Column 'x' of the polars frame is of type"):
        returned_table(frame, "value")


def test_sparse_columns_of_pandas_are_sources_and_rows():
    values = [0.0, 1.5, np.nan]
    frame = pd.DataFrame({"x": pd.arrays.SparseArray(values, fill_value=0.0), "row": range(3)})
    (batch,) = open_source(frame).batches()
    assert batch["x"].to_pylist() == [0.0, 1.5, None]
    assert kept(frame).to_pylist() == [0.0, 1.5, None]
    assert returned_table(frame["x"], "value")["value"].to_pylist() == [0.0, 1.5, None]


def test_days_in_milliseconds_are_dates_in_polars():
    column = pa.array([0, 86_400_000], pa.date64())
    assert DataConnector(pa.table({"x": column})).to_polars()["x"].dtype == pl.Date


def test_a_zone_that_is_an_offset_has_no_form_in_polars():
    column = pa.array([0], pa.timestamp("us", "+05:30"))
    with pytest.raises(ColumnError, match=r"^Column 'x' of type .*\+05:30\] has no form in polars"):
        DataConnector(pa.table({"x": column})).to_polars()


def test_structs_of_views_in_list_views_are_refused_where_they_are_returned():
    kind = pa.list_view(pa.struct([("a", pa.string_view())]))
    rows = pa.table({"x": pa.array([[{"a": "b"}]], kind)})
    with pytest.raises(ColumnError, match=r"column 'x' of type list_view.* Parquet cannot hold"):
        kept(rows)
    # Of these alone the writer of Parquet says so.
    kind = pa.list_view(pa.map_(pa.string(), pa.string_view()))
    assert kept(pa.table({"x": pa.array([[[("a", "b")]]], kind)})).to_pylist() == [[[("a", "b")]]]
