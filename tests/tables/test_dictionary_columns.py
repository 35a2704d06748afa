"""For which columns a Parquet file gets a dictionary."""

import io

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import given
from hypothesis import strategies as st

from partwise.runs.own_checksums import write_sealed
from partwise.tables.parquet_types import dictionary_columns

VALUES = {
    "half": pa.array([1.5, None, 1.5], pa.float16()),
    "single": pa.array([1.5, None, 1.5], pa.float32()),
    "double": pa.array([1.5, None, 1.5]),
    "whole": pa.array([1, None, 1]),
    "text": pa.array(["a", None, "a"]),
    "codes": pa.array(["a", None, "a"]).dictionary_encode(),
}
FRACTIONS = {"half", "single", "double"}


@given(st.dictionaries(st.text(max_size=8), st.sampled_from(sorted(VALUES)), min_size=1))
def test_fractions_get_none_whatever_their_columns_are_called(kinds):
    table = pa.table({name: VALUES[kind] for name, kind in kinds.items()})
    file = pq.ParquetFile(io.BytesIO(write_sealed(table)))
    for place, kind in enumerate(kinds.values()):
        column = file.metadata.row_group(0).column(place)
        assert column.has_dictionary_page == (kind not in FRACTIONS)
    assert file.read().to_pydict() == table.to_pydict()


def test_beside_nested_columns_all_get_one():
    assert dictionary_columns(pa.schema([("x", pa.float64()), ("y", pa.list_(pa.int8()))])) is True
