"""A partition in TensorFlow: the values that PyTorch gets, under a static signature."""

import numpy as np
import pyarrow as pa
import pytest

from partwise.connector.data_connector import DataConnector
from partwise.errors import ColumnError
from tests.lazily import Lazily

pytestmark = pytest.mark.slow  # TensorFlow

tf = Lazily("tensorflow")

ROWS = 100
DATA = DataConnector(
    pa.table(
        {
            "x": np.arange(ROWS),
            "holed": pa.array([None if i % 5 == 0 else i for i in range(ROWS)], pa.int16()),
            "flag": [i % 2 == 0 for i in range(ROWS)],
            "text": [f"é{i}" for i in range(ROWS)],
            "even": pa.array([str(i % 2 == 0) for i in range(ROWS)]).dictionary_encode(),
            "pair": pa.array([[i, -i] for i in range(ROWS)], pa.list_(pa.float32(), 2)),
            "some": pa.array([[i] * (i % 3) for i in range(ROWS)], pa.list_(pa.int64())),
            "time": pa.array(range(ROWS), pa.timestamp("us", "UTC")),
        }
    )
)


def signature():
    return {
        "x": tf.TensorSpec((None,), tf.int64),
        "holed": tf.TensorSpec((None,), tf.float64),
        "flag": tf.TensorSpec((None,), tf.bool),
        "text": tf.TensorSpec((None,), tf.string),
        "even": tf.TensorSpec((None,), tf.int64),
        "pair": tf.TensorSpec((None, 2), tf.float32),
        "some": tf.RaggedTensorSpec((None, None), tf.int64),
        "time": tf.TensorSpec((None,), tf.int64),
    }


def plain(value):
    """A tensor of either framework, or a list of them, as Python values."""
    if isinstance(value, tf.RaggedTensor):
        return value.to_list()
    if isinstance(value, list):
        return [plain(item) for item in value]
    if isinstance(value, str | bytes):
        return value.decode() if isinstance(value, bytes) else value
    values = value.numpy()
    if isinstance(values, bytes) or values.dtype == object:
        return plain(values if isinstance(values, bytes) else values.tolist())
    return np.nan_to_num(values, nan=-7)


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("shuffle", [False, True])
def test_batches_are_those_of_pytorch(shuffle, drop_last):
    settings = {"batch_size": 30, "shuffle": shuffle, "drop_last": drop_last, "seed": 4}
    dataset = DATA.to_tf_dataset(**settings)
    expected = DATA.to_torch_dataset(**settings)
    assert dataset.element_spec == signature()
    assert len(dataset) == len(expected)
    for epoch in (0, 1):
        expected.set_epoch(epoch)
        for found, batch in zip(dataset, expected, strict=True):
            for name, values in batch.items():
                np.testing.assert_equal(plain(found[name]), plain(values), name)


def test_single_rows_are_those_of_pytorch():
    dataset = DATA.to_tf_dataset(columns=["x", "pair", "text", "some"])
    assert (len(dataset), dataset.element_spec["pair"].shape) == (ROWS, (2,))
    for found, row in zip(dataset, DATA.to_torch_dataset(), strict=True):
        for name, value in found.items():
            np.testing.assert_equal(plain(value), plain(row[name]))


def test_it_repeats_and_reduces_like_any_other_dataset():
    data = DATA.to_tf_dataset(columns=["x", "flag"], batch_size=16, shuffle=True)
    total = data.repeat(2).reduce(np.int64(0), lambda sum_, batch: sum_ + tf.reduce_sum(batch["x"]))
    assert int(total) == ROWS * (ROWS - 1)


def test_null_text_is_empty():
    data = DataConnector(pa.table({"text": ["a", None, ""], "bytes": [None, b"b", b""]}))
    (batch,) = data.to_tf_dataset(batch_size=3)
    assert batch["text"].numpy().tolist() == [b"a", b"", b""]
    assert batch["bytes"].numpy().tolist() == [b"", b"b", b""]


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (pa.array([{"a": 1}]), r"'x' of type struct<a: int64> has no form in TensorFlow"),
        (pa.array([[1], None]), r"'x' of type list<\w+: int64> with nulls has no form"),
    ],
)
def test_what_has_no_form_is_named(column, message):
    with pytest.raises(ColumnError, match=message):
        DataConnector(pa.table({"x": column})).to_tf_dataset(batch_size=1)


def test_no_rows_are_no_batches():
    data = DataConnector(DATA.to_arrow().slice(0, 0))
    assert list(data.to_tf_dataset(batch_size=3)) == []
