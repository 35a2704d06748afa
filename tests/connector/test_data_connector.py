"""The forms in which a partition reaches the user's function."""

import datetime as dt
from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from partwise.connector.data_connector import DataConnector
from partwise.errors import ColumnError, InputError

TABLE = pa.table(
    {
        "key": ["a", "a", "a"],
        "int": [1, None, 3],
        "int8": pa.array([1, 2, 3], pa.int8()),
        "float": pa.array([1.5, None, 3.5], pa.float32()),
        "double": [1.5, 2.5, 3.5],
        "flag": [True, None, False],
        "bool": [True, False, True],
        "time": pa.array([dt.datetime(2020, 1, 1), None, None], pa.timestamp("us")),  # noqa: DTZ001
        "decimal": [Decimal("1.5"), None, Decimal("-2")],
        "null": pa.nulls(3),
        "category": pa.array(["x", None, "x"]).dictionary_encode(),
    }
)
DATA = DataConnector(TABLE)


def test_it_knows_its_rows_and_columns():
    assert (DATA.num_rows, len(DATA), DATA.schema) == (3, 3, TABLE.schema)
    assert DATA.column_names == TABLE.column_names
    assert DATA.to_arrow() is TABLE
    assert repr(DATA).startswith("DataConnector(3 rows, columns 'key', 'int', ")


VECTORS = [
    ("int", np.float64, [1, np.nan, 3]),
    ("int8", np.int8, [1, 2, 3]),
    ("float", np.float32, [1.5, np.nan, 3.5]),
    ("flag", np.float64, [1, np.nan, 0]),
    ("bool", np.bool_, [True, False, True]),
    ("decimal", np.float64, [1.5, np.nan, -2]),
    ("null", np.float64, [np.nan] * 3),
    ("key", object, ["a", "a", "a"]),
    ("category", object, ["x", None, "x"]),
    ("time", "datetime64[us]", np.array(["2020-01-01", "NaT", "NaT"], "datetime64[us]")),
]


@pytest.mark.parametrize(("name", "dtype", "expected"), VECTORS)
def test_one_column_is_a_vector(name, dtype, expected):
    found = DATA.to_numpy(name)
    assert found.dtype == dtype
    np.testing.assert_array_equal(found, np.array(expected, dtype))


MATRICES = [
    (["int8", "float"], np.float32),
    (["int8", "bool"], np.float32),
    (["float", "double"], np.float64),
    (["int", "int8"], np.float64),
    (["flag", "decimal", "null"], np.float64),
    ([], np.float64),
]


@pytest.mark.parametrize(("names", "dtype"), MATRICES)
def test_several_columns_are_a_matrix_of_floats(names, dtype):
    found = DATA.to_numpy(names)
    assert (found.dtype, found.shape) == (dtype, (3, len(names)))
    for index, name in enumerate(names):
        np.testing.assert_array_equal(found[:, index], DATA.to_numpy(name).astype(dtype))


def test_all_columns_are_a_matrix_where_all_are_numbers():
    numbers = DataConnector(TABLE.select(["int", "double"]))
    np.testing.assert_array_equal(numbers.to_numpy(), numbers.to_numpy(["int", "double"]))
    with pytest.raises(ColumnError, match=r"'key' of type string does not fit into a matrix"):
        DATA.to_numpy()


def test_numbers_without_nulls_are_not_copied():
    values = np.random.default_rng(0).random(10)
    found = DataConnector(pa.table({"x": values})).to_numpy("x")
    assert np.shares_memory(found, values)
    assert not found.flags.writeable


@pytest.mark.parametrize("columns", ["nope", ["double", "nope"]])
def test_a_missing_column_is_named(columns):
    with pytest.raises(ColumnError, match=r"no column 'nope' .*its columns are 'key', 'int'"):
        DATA.to_numpy(columns)


@pytest.mark.parametrize("kind", [pd.Index, np.array, tuple])
def test_columns_may_be_those_of_a_frame(kind):
    names = kind(["double", "int8"])
    assert DATA.to_numpy(names).tolist() == [[1.5, 1], [2.5, 2], [3.5, 3]]
    assert DATA.to_dmatrix("double", columns=names[1:]).num_col() == 1
    chosen = DataConnector.from_sources(TABLE, columns=names)
    assert chosen.column_names == ["double", "int8"]


def test_a_wide_partition_gives_its_columns_in_the_order_of_the_call():
    names = [f"c{i}" for i in range(2_000)]
    wide = DataConnector(pa.table({name: [float(i)] * 3 for i, name in enumerate(names)}))
    found = wide.to_numpy(names[::-1])
    assert found.tolist() == [[float(i) for i in reversed(range(2_000))]] * 3
    with pytest.raises(ColumnError, match="There is no column 'c2000' in the partition"):
        wide.to_numpy([*names, "c2000"])


def test_pandas_gets_the_types_of_read_parquet(tmp_path):
    frame = pd.DataFrame(
        {
            "key": ["a", "b", "a"],
            "int": [1, 2, 3],
            "nullable": pd.array([1, None, 3], "Int64"),
            "category": pd.Categorical(["x", "y", "x"], ["y", "z", "x"], ordered=True),
            "time": pd.to_datetime(["2020-01-01", None, "2020-01-03"]).tz_localize("UTC"),
            "day": [dt.date(2020, 1, 1), None, dt.date(2020, 1, 3)],
        }
    )
    frame.to_parquet(tmp_path / "x.parquet")
    read = pd.read_parquet(tmp_path / "x.parquet")
    rows = pq.read_table(tmp_path / "x.parquet").take([0, 2])
    expected = read[read["key"] == "a"].reset_index(drop=True)
    pd.testing.assert_frame_equal(DataConnector(rows).to_pandas(), expected)


def test_polars():
    frame = DataConnector(TABLE.select(["key", "int", "category"])).to_polars()
    assert dict(frame.schema) == {"key": pl.String, "int": pl.Int64, "category": pl.Categorical}
    assert frame["int"].to_list() == [1, None, 3]


@pytest.mark.parametrize("size", [1, 2, 3, 100])
def test_batches_are_full_whatever_the_chunks(size):
    table = pa.concat_tables([pa.table({"x": range(3)}), pa.table({"x": range(3, 10)})])
    found = list(DataConnector(table).batches(size))
    assert [b.num_rows for b in found] == [min(size, 10 - i) for i in range(0, 10, size)]
    assert [value for b in found for value in b.column(0).to_pylist()] == list(range(10))


def test_batches_of_no_size_are_refused_at_once():
    with pytest.raises(InputError, match=r"batches\(size=0\)"):
        DATA.batches(0)


@pytest.mark.parametrize(
    "empty", [TABLE.slice(0, 0), pa.Table.from_batches([], TABLE.schema)], ids=["slice", "bare"]
)
def test_no_rows_are_no_trouble(empty):
    data = DataConnector(empty)
    assert len(data) == 0
    assert data.to_numpy("int").shape == (0,)
    assert data.to_numpy(["int", "double"]).shape == (0, 2)
    assert data.to_pandas().shape == (0, 11)
    assert data.to_polars().shape == (0, 11)
    assert list(data.batches(5)) == []
