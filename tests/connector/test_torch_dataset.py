"""A partition in PyTorch: batches, epochs, and real DataLoaders of several processes."""

import itertools
import json
import pickle
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from partwise.connector.data_connector import DataConnector
from partwise.errors import ColumnError, InputError
from tests.lazily import Lazily

torch = Lazily("torch")


def table(rows: int) -> pa.Table:
    """Rows of numbers, text, categories and lists, in three chunks."""
    numbers = np.arange(rows)
    whole = pa.table(
        {
            "x": numbers,
            "half": numbers / 2,
            "text": [f"row {i}" for i in numbers],
            "even": pa.array([str(i % 2 == 0) for i in numbers]).dictionary_encode(),
            "pair": pa.array([[i, -i] for i in numbers], pa.list_(pa.float32(), 2)),
            "some": pa.array([[i] * (i % 3) for i in numbers], pa.list_(pa.int64())),
        }
    )
    cuts = [0, rows // 3, rows // 2, rows]
    return pa.concat_tables([whole.slice(a, b - a) for a, b in itertools.pairwise(cuts)])


DATA = DataConnector(table(1000))

LOAD = """
import json
import pyarrow as pa
from torch.utils.data import DataLoader
from partwise.connector.data_connector import DataConnector

def rows(loader, name):
    return [batch[name].tolist() for batch in loader]

def load(data, method):
    dataset = data.to_torch_dataset(batch_size=64, shuffle=True, seed=3)
    options = {"num_workers": 2, "multiprocessing_context": method}
    loader = DataLoader(dataset, batch_size=None, persistent_workers=True, **options)
    found = {"length": len(loader), "epochs": [], "alone": []}
    for epoch in (0, 1, 0):
        dataset.set_epoch(epoch)
        batches = list(loader)
        found["epochs"].append(rows(batches, "x"))
        found["alone"].append(rows(dataset, "x"))
    found["codes"] = sum(rows(batches, "y"), [])
    return found

if __name__ == "__main__":
    table = pa.table({"x": range(1000), "y": pa.array(["a", "b"] * 500).dictionary_encode()})
    data = DataConnector(table).shard(1, 2)
    found = {method: load(data, method) for method in ("fork", "spawn")}
    singles = data.to_torch_dataset(shuffle=True)
    found["singles"] = sum(rows(DataLoader(singles, batch_size=64, num_workers=2), "x"), [])
    print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def loaded(tmp_path_factory):
    """What DataLoaders gave in a process of their own."""
    script = tmp_path_factory.mktemp("loaded") / "load.py"
    script.write_text(LOAD)
    command = [sys.executable, "-W", "error", str(script)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200)
    assert (done.returncode, done.stderr) == (0, "")
    return json.loads(done.stdout)


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_data_loader_gives_each_row_once_in_an_order_of_its_epoch(loaded, method):
    found = loaded[method]
    first, second, again = found["epochs"]
    assert found["epochs"] == found["alone"]
    assert first == again != second
    assert found["length"] == len(first) == 8
    assert [len(batch) for batch in first] == [64] * 7 + [52]
    for batches in (first, second):
        assert sorted(row for batch in batches for row in batch) == list(range(500, 1000))
    assert found["codes"] == [row % 2 for batch in first for row in batch]


def test_a_data_loader_makes_batches_of_single_rows(loaded):
    assert sorted(loaded["singles"]) == list(range(500, 1000))
    assert loaded["singles"] != list(range(500, 1000))


def test_a_batch_holds_each_column_in_its_form():
    dataset = DATA.to_torch_dataset(batch_size=300)
    assert isinstance(dataset, torch.utils.data.IterableDataset)
    batches = list(dataset)
    assert [len(batch["x"]) for batch in batches] == [300, 300, 300, 100]
    whole = {name: torch.cat([batch[name] for batch in batches]) for name in ("x", "half", "pair")}
    assert whole["x"].tolist() == list(range(1000))
    assert torch.equal(whole["half"], torch.arange(1000, dtype=torch.float64) / 2)
    assert torch.equal(whole["pair"][:, 1], -torch.arange(1000, dtype=torch.float32))
    assert batches[1]["text"][:2] == ["row 300", "row 301"]
    assert batches[0]["even"][:3].tolist() == [0, 1, 0]
    assert [row.tolist() for row in batches[0]["some"][:3]] == [[], [1], [2, 2]]


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("batch_size", [1, 7, 256, 5000])
def test_the_values_of_a_row_stay_together(batch_size, shuffle):
    for batch in DATA.to_torch_dataset(batch_size=batch_size, shuffle=shuffle, seed=1):
        rows = batch["x"].tolist()
        assert batch["half"].tolist() == [row / 2 for row in rows]
        assert batch["text"] == [f"row {row}" for row in rows]
        assert batch["pair"][:, 0].tolist() == rows
        assert [row.tolist() for row in batch["some"]] == [[row] * (row % 3) for row in rows]


def test_single_rows_are_for_the_loader_to_batch():
    dataset = DATA.to_torch_dataset(columns=["x", "text", "pair"])
    first = next(iter(dataset))
    assert (first["x"].shape, first["x"].item(), first["text"]) == ((), 0, "row 0")
    batches = list(torch.utils.data.DataLoader(dataset, batch_size=300))
    assert [len(batch["text"]) for batch in batches] == [300, 300, 300, 100]
    assert batches[3]["pair"].shape == (100, 2)
    with pytest.raises(TypeError, match="pass batch_size"):
        len(dataset)


@given(
    rows=st.integers(0, 60),
    batch_size=st.integers(1, 70),
    shuffle=st.booleans(),
    drop_last=st.booleans(),
    world_size=st.integers(1, 4),
    equal=st.booleans(),
)
def test_shards_and_batches_give_each_row_once(
    rows, batch_size, shuffle, drop_last, world_size, equal
):
    data = DataConnector(DATA.to_arrow().slice(310, rows).select(["x"]))
    shards = [data.shard(rank, world_size, equal=equal) for rank in range(world_size)]
    sizes = [len(shard) for shard in shards]
    assert max(sizes) - min(sizes) <= (0 if equal else 1)
    found, expected = [], 0
    for shard in shards:
        dataset = shard.to_torch_dataset(
            batch_size=batch_size, shuffle=shuffle, drop_last=drop_last
        )
        batches = [batch["x"].tolist() for batch in dataset]
        assert len(batches) == len(dataset)
        assert {len(batch) for batch in batches[: None if drop_last else -1]} <= {batch_size}
        found += [row for batch in batches for row in batch]
        expected += len(shard) - (len(shard) % batch_size if drop_last else 0)
    assert len(set(found)) == len(found) == expected
    if not drop_last:
        assert set(found) == set(range(310, 310 + rows - (rows % world_size if equal else 0)))


def test_a_batch_may_be_written_to_and_has_memory_of_its_own():
    dataset = DATA.to_torch_dataset(batch_size=10, columns=["x", "pair"])
    first, *_ = list(dataset)
    first["x"] += 1
    assert first["x"].untyped_storage().nbytes() == 80
    assert next(iter(dataset))["x"].tolist() == list(range(10))


def test_a_pickled_dataset_is_of_its_epoch_and_of_its_rows_only():
    dataset = DATA.shard(0, 100).to_torch_dataset(batch_size=3, shuffle=True, columns=["x"])
    dataset.set_epoch(5)
    content = pickle.dumps(dataset)
    assert len(content) < 3000
    copy = pickle.loads(content)
    assert [batch["x"].tolist() for batch in copy] == [batch["x"].tolist() for batch in dataset]
    copy.set_epoch(0)
    assert [batch["x"].tolist() for batch in copy] != [batch["x"].tolist() for batch in dataset]


def test_no_rows_are_no_batches():
    dataset = DataConnector(table(9).slice(0, 0)).to_torch_dataset(batch_size=3, shuffle=True)
    assert (list(dataset), len(dataset)) == ([], 0)


def test_columns_of_one_value_have_a_second_dimension_where_asked():
    kinds = {
        "float": pa.array([0.0, 1.0, None, 3.0]),
        "bool": pa.array([True, False, True, False]),
        "day": pa.array([0, 1, None, 3], pa.date32()),
        "category": pa.array(["a", "b", None, "a"]).dictionary_encode(),
        "one": pa.array([[1.0], [2.0], [3.0], [4.0]], pa.list_(pa.float64(), 1)),
        "pair": pa.array([[1, 2]] * 4, pa.list_(pa.int64(), 2)),
        "text": pa.array(["a", None, "c", "d"]),
        "lists": pa.array([[1], [], None, [2, 3]]),
    }
    data = DataConnector(pa.table(kinds))
    [flat] = data.to_torch_dataset(batch_size=4)
    [batch] = data.to_torch_dataset(batch_size=4, expand_dims=True)
    for name in ("float", "bool", "day", "category"):
        assert batch[name].shape == (4, 1)
        assert torch.equal(batch[name].squeeze(1).nan_to_num(), flat[name].nan_to_num())
        assert batch[name].dtype == flat[name].dtype
    assert (batch["one"].shape, batch["pair"].shape) == ((4, 1), (4, 2))
    assert batch["text"] == flat["text"]
    assert [None if each is None else each.tolist() for each in batch["lists"]] == [
        [1],
        [],
        None,
        [2, 3],
    ]
    rows = data.to_torch_dataset(expand_dims=True, shuffle=True, columns=["bool", "pair"])
    assert {row["bool"].shape for row in rows} == {(1,)}
    loader = torch.utils.data.DataLoader(rows, batch_size=3)
    assert [tuple(batch["bool"].shape) for batch in loader] == [(3, 1), (1, 1)]
    empty = DataConnector(pa.table({"x": pa.array([], pa.float64())}))
    assert list(empty.to_torch_dataset(batch_size=2, expand_dims=True)) == []
    again = pickle.loads(pickle.dumps(rows))
    assert [row["bool"].tolist() for row in again] == [row["bool"].tolist() for row in rows]


def test_a_loss_of_two_shapes_is_of_all_pairs_of_rows():
    data = DataConnector(pa.table({"y": [0.0, 1.0, 2.0, 3.0]}))
    outputs = torch.arange(4.0).reshape(4, 1)
    [flat], [wide] = (
        data.to_torch_dataset(batch_size=4, expand_dims=expand_dims)
        for expand_dims in (False, True)
    )
    assert ((outputs - flat["y"]) ** 2).mean() == 2.5
    assert ((outputs - wide["y"]) ** 2).mean() == 0


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"drop_last": True}, InputError, "drop_last=True leaves out a batch"),
        ({"batch_size": 0}, InputError, "batch_size=0 cannot be cut"),
        ({"batch_size": 1, "seed": -1}, InputError, "seed=-1"),
        ({"columns": ["x", "nope"]}, ColumnError, "no column 'nope'"),
    ],
)
def test_arguments_that_cannot_be_are_refused_at_once(arguments, error, message):
    with pytest.raises(error, match=message):
        DATA.to_torch_dataset(**arguments)


def test_epochs_count_from_0():
    with pytest.raises(InputError, match=r"set_epoch\(-1\)"):
        DATA.to_torch_dataset(batch_size=1).set_epoch(-1)


@pytest.mark.parametrize(
    ("method", "module", "extra"),
    [
        ("to_torch_dataset", "torch", "torch"),
        ("to_tf_dataset", "tensorflow", "tensorflow"),
        ("to_hf_dataset", "datasets", "huggingface"),
    ],
)
def test_a_missing_library_is_named_with_its_extra(monkeypatch, method, module, extra):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(InputError, match=rf"pip install 'partwise\[{extra}\]'"):
        getattr(DATA, method)()
