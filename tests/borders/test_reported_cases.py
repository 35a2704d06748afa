"""Public bug reports of other libraries, each as a situation of ours."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from partwise import LightGBMTrainer, Linear
from partwise.connector.context import PartitionContext
from partwise.connector.data_connector import DataConnector
from partwise.engine.works import produce_rows
from partwise.errors import ColumnError
from partwise.sources.opening import open_source
from partwise.trainers import default_predict

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


@pytest.mark.parametrize("trainer", [LightGBMTrainer, Linear])
def test_an_index_that_pandas_wrote_is_no_feature(trainer, tmp_path):
    """dask#2222, arrow#46179: places of rows, which told a model the label."""
    frame = pd.DataFrame({"x": np.arange(40.0) % 3, "y": np.arange(40.0)})
    frame = frame[frame["x"] > 0]
    frame.to_parquet(tmp_path / "rows.parquet")
    (batch,) = open_source(str(tmp_path)).batches()
    rows = DataConnector(pa.Table.from_batches([batch]))
    assert rows.column_names == ["x", "y", "__index_level_0__"]
    assert trainer(label="y")._choose_features(rows.schema, ()).names == ("x",)
    named = trainer(label="y", features=("__index_level_0__",))
    assert named._choose_features(rows.schema, ()).names == ("__index_level_0__",)
    assert rows.to_dmatrix(label="y").feature_names == ["x"]


@pytest.mark.parametrize(
    "values",
    [
        [1, "a"],
        (True, "a"),
        [True, 2],
        [2**63 + 1, -1],
        [2**53 + 1, 0.5],
        [2**64, 1],
        np.array([2**64, 1], object),
    ],
    ids=str,
)
def test_a_returned_list_of_which_numpy_makes_other_values_is_refused(values):
    """pandas#56678: text of numbers, ones of booleans, the nearest doubles of IDs."""
    for outcome in (values, {"value": values}):
        with pytest.raises(ColumnError, match=r"^The function returned 'value', a .*, which is no"):
            produce_rows(outcome, ROWS, ["key"], None, "value")


@pytest.mark.parametrize(
    "values",
    [
        *([2**63 + 1, 1], [-(2**63), 1], [2**53 + 1, None], [1, 0.5], [1.5, None], [True, None]),
        *(["a", "b"], ["a", None], [b"a", b"b"], [np.float32(0.5), 2.0], [np.int8(1), 2]),
        [np.str_("a"), "b"],
    ],
    ids=str,
)
def test_a_returned_list_keeps_its_values(values):
    for outcome in (values, tuple(values), {"value": values}):
        rows = produce_rows(outcome, ROWS, ["key"], None, "value").rows
        assert rows["value"].to_pylist() == values


@pytest.mark.parametrize(
    "values", [[1, "a"], [True, 2], [2**63 + 1, -1], [2**64, 1], [2**53 + 1, 0.5]], ids=str
)
def test_a_returned_column_of_objects_that_has_no_type_is_refused_by_name(values):
    """It was an error of Arrow's, without the name of the column."""
    series = pd.Series(values, dtype=object)
    for outcome, name in ((series, "value"), (pd.DataFrame({"x": series}), "x")):
        with pytest.raises(ColumnError, match=f"^Column '{name}' of the frame holds values of typ"):
            produce_rows(outcome, ROWS, ["key"], None, "value")


def test_a_number_that_is_missing_only_in_inference_is_zero_to_lightgbm():
    """LightGBM#6139: as docs/types.md says, and as its own predict has it."""
    places = np.linspace(-2, 2, 100)
    rows = DataConnector(pa.table({"x": places, "y": places * 2}))
    trainer = LightGBMTrainer(label="y", features=("x",), holdout=None, rounds=5)
    model = trainer(rows, PartitionContext()).model
    asked = DataConnector(pa.table({"x": [None, np.nan, 0.0, 2.0]}))
    null, nan, zero, two = default_predict(asked, model, PartitionContext())
    assert null == nan == zero != two
    assert zero == model.predict(np.array([[np.nan]]))[0]


def test_a_model_of_pandas_categories_takes_any_order_of_a_dictionary():
    """LightGBM#2826, xgboost#11160: by the values of categories, not by their codes."""
    ensemble = pytest.importorskip("sklearn.ensemble")
    places = np.arange(60.0)
    names = pd.Categorical(np.array(["x", "y", "z"])[np.arange(60) % 3])
    frame = pd.DataFrame({"a": places, "g": names})
    model = ensemble.HistGradientBoostingRegressor(
        categorical_features="from_dtype", max_iter=5, min_samples_leaf=1
    ).fit(frame, names.codes * 10 + places / 60)
    codes = pa.array(2 - names.codes, pa.int8())
    turned = pa.DictionaryArray.from_arrays(codes, pa.array(["z", "y", "x"]))
    for column in (turned, turned.cast(pa.string())):
        data = DataConnector(pa.table({"g": column, "a": places}))
        found = default_predict(data, model, PartitionContext())
        np.testing.assert_array_equal(found, model.predict(frame))
