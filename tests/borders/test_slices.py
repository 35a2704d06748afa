"""Sliced and chunked columns, as pandas and polars get them."""

import pyarrow as pa
import pytest

from partwise.connector.data_connector import DataConnector

PAIRS = [[1, 2], None, [5, 6], [7, 8]]
PAIR = pa.list_(pa.int32(), 2)


@pytest.mark.parametrize("start", range(4))
@pytest.mark.parametrize("deep", [False, True])
def test_polars_gets_the_rows_of_a_sliced_fixed_size_list(start, deep):
    values = [{"x": pair} for pair in PAIRS] if deep else PAIRS
    column = pa.array(values, pa.struct([("x", PAIR)]) if deep else PAIR)
    data = DataConnector(pa.table({"c": column}).slice(start))
    assert data.to_polars()["c"].to_list() == values[start:]


@pytest.mark.parametrize("chunks", [1, 2])
@pytest.mark.parametrize("ordered", [False, True])
def test_a_null_among_the_values_of_a_dictionary_is_a_null(chunks, ordered):
    parts = [
        pa.DictionaryArray.from_arrays(
            pa.array([0, 1, None], pa.int8()), pa.array([text, None]), ordered=ordered
        )
        for text in "ba"[:chunks]
    ]
    data = DataConnector(pa.table({"c": pa.chunked_array(parts)}))
    expected = [value for text in "ba"[:chunks] for value in (text, None, None)]
    frame = data.to_pandas()
    assert [None if value != value else value for value in frame["c"]] == expected
    # Of "b" in one chunk and "a" in the other nothing says which comes first.
    assert frame["c"].cat.ordered is (ordered and chunks == 1)
    assert data.to_polars()["c"].to_list() == expected
    (batch,) = data.to_torch_dataset(batch_size=9)
    names = data.categories("c").to_pylist()
    assert [None if code < 0 else names[code] for code in batch["c"].tolist()] == expected
