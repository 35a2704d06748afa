"""Public bug reports of other libraries, each as a situation of ours."""

import pandas as pd
import pyarrow as pa
import pytest

from partwise.connector.data_connector import DataConnector
from partwise.engine.works import produce_rows
from partwise.errors import ColumnError

ROWS = DataConnector(pa.table({"key": ["a", "a"], "x": [1.0, 2.0]}))

TWICE = [pa.array([1, 2]), pa.array([3, 4])]


@pytest.mark.parametrize(
    ("outcome", "name"),
    [
        (pa.Table.from_arrays(TWICE, ["a", "a"]), "a"),
        (pa.RecordBatch.from_arrays(TWICE, ["a", "a"]), "a"),
        (pd.DataFrame([[1, 2], [3, 4]], columns=["a", "a"]), "a"),
        (pd.DataFrame([[1, 2], [3, 4]], columns=[1, "1"]), "1"),
        ({1: [1, 2], "1": [3, 4]}, "1"),
        ({1: 1, "1": 3}, "1"),
    ],
    ids=["table", "batch", "frame", "frame with 1 and '1'", "mapping", "mapping of values"],
)
def test_two_returned_columns_of_one_name_are_refused(outcome, name):
    """polars#11632, pandas#52408: of two columns of one name, one was lost."""
    message = f"^The function returned more than one column named '{name}': rename all but one.$"
    with pytest.raises(ColumnError, match=message):
        produce_rows(outcome, ROWS, ["key"], None, "value")
