"""Connectors outside of flows, their parts, and what they share with other libraries' frames."""

import gc
import os
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from partwise.connector.data_connector import DataConnector
from partwise.errors import ColumnError, InputError, SourceError

VALUES = np.arange(100.0)
DATA = DataConnector(pa.table({"x": VALUES, "text": [f"row {i}" for i in range(100)]}))


def addresses(table: pa.Table, name: str) -> list[int]:
    """Where the values of a column lie."""
    return [chunk.buffers()[-1].address for chunk in table.column(name).chunks]


@pytest.mark.parametrize(
    "data",
    [
        pa.table({"x": [1, 2]}),
        pa.record_batch({"x": [1, 2]}),
        pd.DataFrame({"x": [1, 2]}),
        pl.DataFrame({"x": [1, 2]}),
    ],
    ids=lambda data: f"{type(data).__module__.split('.')[0]}-{type(data).__name__}",
)
def test_any_frame_in_memory(data):
    assert DataConnector.from_dataframe(data).to_numpy("x").tolist() == [1, 2]


def test_a_frame_in_memory_is_not_copied():
    table = DATA.to_arrow()
    assert DataConnector.from_dataframe(table).to_arrow() is table
    with pytest.raises(SourceError, match=r"of type builtins\.dict is not a source"):
        DataConnector.from_dataframe({"x": [1]})


def test_the_text_of_a_polars_frame_reaches_tensors_and_polars_again():
    columns = {"x": ["a", None], "kind": pl.Series(["b", "c"], dtype=pl.Categorical)}
    data = DataConnector.from_dataframe(pl.DataFrame(columns))
    (batch,) = data.to_torch_dataset(batch_size=2)
    assert batch["x"] == ["a", None]
    assert data.categories("kind").take(batch["kind"].numpy()).to_pylist() == ["b", "c"]
    assert data.to_polars()["x"].to_list() == ["a", None]
    assert data.to_arrow().take([1, 0])["x"].to_pylist() == [None, "a"]


def test_sources_are_read_together_with_columns_and_filter(tmp_path):
    for name, start in [("a", 0), ("b", 50)]:
        part = DATA.to_arrow().slice(start, 50)
        kinds = pa.array([f"{name}{i % 2}" for i in range(50)]).dictionary_encode()
        pq.write_table(part.append_column("kind", kinds), tmp_path / f"{name}.parquet")
    paths = [tmp_path / "a.parquet", tmp_path / "b.parquet"]
    data = DataConnector.from_sources(paths, columns=["kind", "x"], filter=[("x", ">=", 48)])
    assert data.column_names == ["kind", "x"]
    assert data.to_numpy("x").tolist() == list(range(48, 100))
    assert data.to_numpy("kind").tolist()[:4] == ["a0", "a1", "b0", "b1"]
    assert DataConnector.from_sources(str(tmp_path / "*.parquet")).num_rows == 100
    with pytest.raises(ColumnError, match="'nope'"):
        DataConnector.from_sources(paths, columns=["nope"])


def test_the_file_of_a_source_goes_away_with_the_last_that_uses_it(tmp_path, monkeypatch):
    def open_files() -> list[str]:
        links = (f"/proc/self/fd/{name}" for name in os.listdir("/proc/self/fd"))
        found = [os.readlink(link) for link in links if os.path.lexists(link)]
        maps = Path("/proc/self/maps").read_text().splitlines()
        return [name for name in [*found, *maps] if str(tmp_path) in name]

    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    data = DataConnector.from_sources(DATA.to_arrow())
    assert os.listdir(tmp_path) == []
    assert len(open_files()) == 2
    part = data.shard(1, 2).to_arrow()
    del data
    gc.collect()
    assert len(open_files()) == 1
    assert part.column("x").to_pylist() == list(range(50, 100))
    del part
    gc.collect()
    assert open_files() == []


def test_a_full_disk_is_said(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "nowhere"))
    with pytest.raises(SourceError, match=r"could not be spooled into '.*nowhere'.*TMPDIR"):
        DataConnector.from_sources(DATA.to_arrow())


@given(st.integers(0, 50), st.integers(1, 9), st.booleans())
def test_shards_are_all_rows_in_their_order(rows, world_size, equal):
    data = DataConnector(DATA.to_arrow().slice(7, rows))
    shards = [data.shard(rank, world_size, equal=equal) for rank in range(world_size)]
    left_out = rows % world_size if equal else 0
    found = [row for shard in shards for row in shard.to_numpy("x")]
    assert found == list(range(7, 7 + rows - left_out))
    sizes = {len(shard) for shard in shards}
    assert max(sizes) - min(sizes) <= (0 if equal else 1)


def test_shards_of_shards_and_without_a_copy():
    part = DATA.shard(1, 2).shard(1, 5, equal=True)
    assert part.to_numpy("x").tolist() == list(range(60, 70))
    assert np.shares_memory(part.to_numpy("x"), VALUES)


@pytest.mark.parametrize(("rank", "world_size"), [(2, 2), (-1, 2), (0, 0)])
def test_a_shard_that_there_is_not(rank, world_size):
    with pytest.raises(InputError, match=rf"shard\(rank={rank}, world_size={world_size}\)"):
        DATA.shard(rank, world_size)


@pytest.mark.parametrize("protocol", [2, 4, 5])
def test_a_pickle_holds_its_own_rows_only(protocol):
    part = DATA.shard(3, 50)
    content = pickle.dumps(part, protocol)
    assert len(content) < 1000
    assert pickle.loads(content).to_arrow().equals(part.to_arrow())


def test_a_process_that_is_spawned_maps_the_file_of_the_rows(monkeypatch):
    monkeypatch.setattr("partwise.connector.spooling.get_spawning_popen", object)
    kinds = pa.array(["b", "a"] * 50).dictionary_encode()
    whole = DataConnector(DATA.to_arrow().append_column("kind", kinds))
    for data in (whole, DataConnector.from_sources(whole.to_arrow())):
        part = data.shard(1, 4)
        content = pickle.dumps(part)
        assert len(content) < 300
        copy = pickle.loads(content).to_arrow()
        assert copy.equals(part.to_arrow())
        again = pickle.loads(content).to_arrow()
        assert addresses(copy, "x") != addresses(again, "x")


def test_a_hugging_face_dataset_shares_the_rows():
    dataset = DATA.to_hf_dataset()
    table = dataset.data.table
    for name in DATA.column_names:
        assert addresses(table, name) == addresses(DATA.to_arrow(), name)
    assert dataset[3] == {"x": 3.0, "text": "row 3"}
    assert dataset.with_format("numpy")["x"][:3].tolist() == [0, 1, 2]
    maps = DataConnector(pa.table({"x": pa.array([], pa.map_(pa.string(), pa.int64()))}))
    with pytest.raises(ColumnError, match="'x' of type map<string, int64> has no form"):
        maps.to_hf_dataset()


@pytest.mark.parametrize("kind", [pa.string(), pa.string_view()], ids=str)
def test_dictionaries_of_views_and_of_no_rows_are_decoded(kind):
    coded = pa.dictionary(pa.int32(), kind)
    empty = DataConnector(pa.Table.from_batches([], pa.schema({"x": coded})))
    assert empty.to_hf_dataset().column_names == ["x"]
    assert empty.to_numpy("x").tolist() == []
    column = pa.DictionaryArray.from_arrays(
        pa.array([1, None, 0], pa.int32()), pa.array(["a", "b"], kind)
    )
    data = DataConnector(pa.table({"x": column}))
    assert data.to_hf_dataset()["x"][:] == data.to_numpy("x").tolist() == ["b", None, "a"]


def test_pandas_and_polars_share_the_rows():
    frame = DATA.to_pandas(types="arrow")
    column = pa.chunked_array(pa.array(frame["x"]))
    assert [chunk.buffers()[-1].address for chunk in column.chunks] == addresses(
        DATA.to_arrow(), "x"
    )
    assert np.shares_memory(DATA.to_polars()["x"].to_numpy(), VALUES)


@pytest.mark.parametrize("npartitions", [1, 3, 100, 130])
def test_dask_has_the_rows_in_their_order(npartitions):
    frame = DATA.to_dask(npartitions)
    assert frame.npartitions == npartitions
    expected = DATA.to_pandas()
    pd.testing.assert_frame_equal(frame.compute().reset_index(drop=True), expected)
    assert frame["x"].sum().compute() == VALUES.sum()
    assert len(frame) == 100


def test_dask_keeps_categories_lists_and_the_rows_once():
    kinds = pa.array(["b", "a"] * 50).dictionary_encode()
    lists = pa.array([[i] for i in range(100)])
    table = DATA.to_arrow().append_column("kind", kinds).append_column("list", lists)
    frame = DataConnector(table).to_dask(4)
    assert frame["kind"].cat.categories.tolist() == ["b", "a"]
    whole = frame.compute()
    assert whole["kind"].dtype == frame["kind"].dtype
    assert whole["list"].iloc[7].tolist() == [7]
    many = DataConnector(pa.table({"x": np.arange(100_000.0)}))
    assert len(pickle.dumps(many.to_dask(10))) < 850_000


@pytest.mark.parametrize("to_rows", [lambda f: f[::-1], lambda f: f[f.x != 1], lambda f: f[1:]])
def test_an_index_that_only_counted_is_not_that_of_the_rows_of_a_file(tmp_path, to_rows):
    frame = to_rows(pd.DataFrame({"x": [0, 1, 2, 3]}))
    frame.to_parquet(tmp_path / "rows.parquet")
    data = DataConnector.from_sources(str(tmp_path / "rows.parquet"))
    found = data.to_pandas()
    assert found.index.equals(pd.RangeIndex(len(frame)))
    assert found.x.tolist() == frame.x.tolist()
    assert list(found.columns) == data.to_arrow().column_names
    assert data.to_dask().compute().x.tolist() == frame.x.tolist()


@given(
    st.lists(st.integers(-9, 9), min_size=1, max_size=6, unique=True),
    st.sampled_from([None, "id"]),
    st.lists(st.sampled_from(["Int64", "Int8", "Float32", "boolean", "int64"]), max_size=3),
    st.data(),
)
def test_any_rows_of_what_pandas_wrote_are_those_of_arrow(index, name, kinds, data):
    rows = {
        f"x{place}": pd.Series([1] * len(index), dtype=kind) for place, kind in enumerate(kinds)
    }
    frame = pd.DataFrame({"y": range(len(index)), **rows})
    frame.index = pd.Index(index, name=name)
    table = pa.Table.from_pandas(frame)
    chosen = data.draw(st.lists(st.sampled_from(range(len(index))), max_size=6))
    wider = data.draw(st.sampled_from([pa.float64(), pa.int64(), None]))
    table = table.take(pa.array(chosen, pa.int64()))
    if kinds and wider is not None:
        table = table.set_column(1, "x0", table["x0"].cast(pa.int64()).cast(wider))
    table = table.select(data.draw(st.permutations(table.column_names)))
    found = DataConnector(table).to_pandas()
    if name is None:
        assert found.index.equals(pd.RangeIndex(len(chosen)))
    else:
        assert found.index.tolist() == table[name].to_pylist()
    for column in found.columns:
        assert found[column].tolist() == table[column].to_pylist()
    dask = DataConnector(table).to_dask(1).compute()
    assert list(dask.columns) == table.column_names


def test_a_type_of_pandas_own_holds_only_where_the_column_has_it(tmp_path):
    pd.DataFrame({"x": pd.array([1, None], "Int64"), "y": pd.array([1, None], "Int8")}).to_parquet(
        tmp_path / "1.parquet"
    )
    pd.DataFrame({"x": [1.5], "y": pd.array([2], "Int8")}).to_parquet(tmp_path / "2.parquet")
    data = DataConnector.from_sources(str(tmp_path))
    for found in (data.to_pandas(), data.to_dask().compute()):
        assert found.x.tolist()[::2] == [1.0, 1.5]
        assert found.y.dtype == "Int8"


def test_dask_has_the_index_of_a_pandas_frame_as_a_column():
    whole = pd.array([1, None, 3], "Int64")
    frame = pd.DataFrame({"x": whole, "y": [1.0, 2.0, 3.0]}, pd.Index([7, 8, 9], name="id"))
    data = DataConnector.from_dataframe(frame)
    pd.testing.assert_frame_equal(data.to_pandas(), frame)
    found = data.to_dask(2)
    expected = frame.reset_index()[["x", "y", "id"]]
    pd.testing.assert_frame_equal(found.compute().reset_index(drop=True), expected)
    assert dict(found.dtypes) == dict(expected.dtypes)
    assert found[["id", "y"]].compute()["id"].tolist() == [7, 8, 9]


def test_dask_cuts_parts_of_64_mb_by_default_and_at_least_one():
    assert DATA.to_dask().npartitions == 1
    zeros = pa.array(np.zeros(2**24))
    assert DataConnector(pa.table({"a": zeros, "b": zeros})).to_dask().npartitions == 4
    with pytest.raises(InputError, match="npartitions=0 cannot be cut"):
        DATA.to_dask(0)


def test_the_connector_loads_no_framework():
    code = (
        "import sys; import pyarrow as pa;"
        "from partwise.connector.data_connector import DataConnector;"
        "data = DataConnector(pa.table({'x': [1]})); data.shard(0, 2).to_numpy('x');"
        "heavy = {'torch', 'tensorflow', 'datasets', 'dask', 'lightgbm', 'xgboost', 'polars'};"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
