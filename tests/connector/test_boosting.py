"""Data sets of LightGBM and XGBoost from Arrow give the models that those from pandas give."""

from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from partwise.connector.data_connector import DataConnector
from partwise.errors import ColumnError, InputError
from partwise.trainers.ready.lightgbm import predict_lightgbm
from partwise.trainers.ready.xgboost import predict_xgboost
from tests.lazily import Lazily

lightgbm, xgboost = Lazily("lightgbm"), Lazily("xgboost")

SETTINGS = {"verbosity": -1, "num_threads": 1, "deterministic": True, "force_row_wise": True}
ROWS = 600


def rows(seed: int) -> pa.Table:
    """Rows in the middle of a larger table, in two chunks."""
    random = np.random.default_rng(seed)
    kinds = random.integers(0, 3, ROWS)
    x = random.random(ROWS)
    table = pa.table(
        {
            "y": x + (kinds == 1),
            "x": pa.array(x, mask=random.random(ROWS) < 0.1),
            "whole": random.integers(0, 9, ROWS).astype(np.int16),
            "flag": random.random(ROWS) < 0.5,
            "kind": pa.array(np.array(["b", "a", "c"])[kinds], mask=x < 0.1).dictionary_encode(),
            "weight": random.random(ROWS),
        }
    )
    return pa.concat_tables([table.slice(33, 200), table.slice(233)])


DATA = DataConnector(rows(0))
FRAME = DATA.to_pandas()
FEATURES = ["x", "whole", "flag", "kind"]


def lightgbm_model(data: "lightgbm.Dataset") -> str:
    return lightgbm.train(SETTINGS, data, 20).model_to_string()


def test_lightgbm_trains_the_model_of_a_pandas_frame():
    frame = lightgbm.Dataset(FRAME[FEATURES], FRAME["y"], weight=FRAME["weight"], params=SETTINGS)
    found = DATA.to_lightgbm("y", weight="weight", params=SETTINGS)
    assert lightgbm_model(found) == lightgbm_model(frame)


def test_xgboost_trains_the_model_of_a_pandas_frame():
    frame = xgboost.DMatrix(
        FRAME[FEATURES], FRAME["y"], weight=FRAME["weight"], enable_categorical=True
    )
    found = DATA.to_dmatrix("y", weight="weight", threads=1)
    models = [xgboost.train({"nthread": 1}, data, 20).save_raw() for data in (frame, found)]
    assert models[0] == models[1]


@pytest.mark.parametrize(
    "column",
    [
        pa.array([None if i % 7 == 0 else i for i in range(ROWS)], pa.int32()),
        pa.array([None if i % 7 == 0 else i % 2 == 0 for i in range(ROWS)]),
        pa.array([Decimal(i) / 4 for i in range(ROWS)], pa.decimal128(12, 2)),
        pa.array(np.arange(ROWS, dtype=np.float16)),
        pa.array(np.arange(ROWS, dtype=np.uint64)),
        pa.nulls(ROWS),
    ],
    ids=lambda column: str(column.type),
)
def test_every_kind_of_number_is_its_value_or_missing(column):
    random = np.random.default_rng(1)
    table = pa.table({"x": column, "z": random.random(ROWS), "y": random.random(ROWS)}).slice(5)
    data = DataConnector(table)
    x = np.array([np.nan if v is None else float(v) for v in table["x"].to_pylist()])
    matrix, label = np.column_stack([x, data.to_numpy("z")]), data.to_numpy("y")
    names = ["x", "z"]
    frame = lightgbm.Dataset(matrix, label, params=SETTINGS, feature_name=names)
    own = lightgbm.train(SETTINGS, data.to_lightgbm("y"), 20)
    assert own.trees_to_dataframe().equals(lightgbm.train(SETTINGS, frame, 20).trees_to_dataframe())
    predicted = [
        xgboost.train({"nthread": 1}, found, 20).predict(found)
        for found in (xgboost.DMatrix(matrix, label, feature_names=names), data.to_dmatrix("y"))
    ]
    np.testing.assert_array_equal(*predicted)


def test_models_predict_by_their_categories():
    later = DataConnector(rows(1).slice(50))
    booster = lightgbm.train(SETTINGS, DATA.to_lightgbm("y", columns=FEATURES, params=SETTINGS), 20)
    expected = booster.predict(later.to_pandas()[FEATURES])
    np.testing.assert_array_equal(predict_lightgbm(later, booster), expected)
    model = xgboost.train({"nthread": 1}, DATA.to_dmatrix("y", columns=FEATURES), 20)
    expected = model.predict(later.to_dmatrix(columns=FEATURES))
    np.testing.assert_array_equal(predict_xgboost(later, model), expected)


def test_rows_to_evaluate_on_get_the_codes_of_the_rows_trained_on():
    later = pa.table(
        {
            "y": np.arange(4.0),
            "x": np.arange(4.0),
            "whole": np.arange(4, dtype=np.int16),
            "flag": [True, False, True, False],
            "kind": pa.array(["c", "unseen", "a", None]).dictionary_encode(),
        }
    )
    train = DATA.to_lightgbm("y", columns=FEATURES, params=SETTINGS)
    valid = DataConnector(later).to_lightgbm("y", columns=FEATURES, reference=train)
    scores: dict[str, dict[str, list[float]]] = {}
    booster = lightgbm.train(
        {**SETTINGS, "metric": "l2"},
        train,
        20,
        valid_sets=[valid],
        callbacks=[lightgbm.record_evaluation(scores)],
    )
    error = np.mean((booster.predict(later.to_pandas()[FEATURES]) - np.arange(4.0)) ** 2)
    assert scores["valid_0"]["l2"][-1] == pytest.approx(error)
    with pytest.raises(InputError, match="reference has 1 categorical features, but here are 0"):
        DataConnector(later).to_lightgbm("y", columns=["x"], reference=train)


def test_categories_of_numbers_stay_numbers():
    table = rows(0)
    kinds = pa.array([[30, 10, 20][i % 3] for i in range(table.num_rows)]).dictionary_encode()
    data = DataConnector(table.select(["y", "x"]).append_column("kind", kinds))
    booster = lightgbm.train(SETTINGS, data.to_lightgbm("y", params=SETTINGS), 5)
    assert booster.pandas_categorical == [[30, 10, 20]]
    model = xgboost.train({"nthread": 1}, data.to_dmatrix("y"), 5)
    expected = model.predict(data.to_dmatrix(columns=["x", "kind"]))
    np.testing.assert_array_equal(predict_xgboost(data, model), expected)


def test_a_feature_of_which_nothing_is_known_trains():
    nothing = pa.nulls(DATA.num_rows, pa.dictionary(pa.int8(), pa.string()))
    data = DataConnector(DATA.to_arrow().select(["y", "x"]).append_column("kind", nothing))
    booster = lightgbm.train(SETTINGS, data.to_lightgbm("y", params=SETTINGS), 5)
    model = xgboost.train({"nthread": 1}, data.to_dmatrix("y"), 5)
    for predictions in (predict_lightgbm(data, booster), predict_xgboost(data, model)):
        assert len(np.unique(predictions)) > 5


def test_names_that_a_library_refuses_are_spelled_as_trainers_do():
    data = DataConnector(rows(0).rename_columns(["y", "x [EUR]", "a:b", "flag", "kind", "weight"]))
    booster = lightgbm.train(SETTINGS, data.to_lightgbm("y", params=SETTINGS), 2)
    assert predict_lightgbm(data, booster).shape == (data.num_rows,)
    model = xgboost.train({"nthread": 1}, data.to_dmatrix("y"), 2)
    assert predict_xgboost(data, model).shape == (data.num_rows,)


def test_a_column_without_a_name_is_a_feature_that_is_read_back():
    table = pa.table({"": np.arange(60.0), "x": np.ones(60), "y": np.arange(60.0)})
    data = DataConnector(table)
    booster = lightgbm.train(SETTINGS, data.to_lightgbm("y", params=SETTINGS), 2)
    again = lightgbm.Booster(model_str=booster.model_to_string())
    assert predict_lightgbm(data, again).tolist() == predict_lightgbm(data, booster).tolist()
    model = xgboost.train({"nthread": 1}, data.to_dmatrix("y"), 2)
    assert len(set(predict_xgboost(data, model))) > 1
    with pytest.raises(ColumnError, match="lacks features of the model: '';"):
        predict_lightgbm(DataConnector(table.drop([""])), again)


REFUSED = [
    ({"label": "nope"}, "no column 'nope'"),
    ({"weight": "nope"}, "no column 'nope'"),
    ({"columns": ["x", "nope"]}, "'nope' are missing"),
    ({"columns": ["text"]}, "'text' is string"),
    ({"columns": ["time"]}, r"'time' is timestamp\[us\]"),
    ({"columns": ["y"], "label": "y"}, "label 'y' is among the features"),
    ({"columns": ["x"], "label": "holed"}, "label 'holed' is null or NaN in 1 of 3 rows"),
    ({"columns": ["x"], "weight": "holed"}, "weight 'holed' is null or NaN in 1 of 3 rows"),
    ({"columns": ["x"], "label": "endless"}, "label 'endless' is -inf in one of 3 rows"),
    ({"columns": ["x"], "label": "large"}, r"label 'large' is 1e\+39 .* precision, up to 3.4e\+38"),
    ({"columns": ["x"], "weight": "endless"}, "weight 'endless' is -inf in one of 3 rows"),
]


@pytest.mark.parametrize("method", ["to_lightgbm", "to_dmatrix"])
@pytest.mark.parametrize(("arguments", "message"), REFUSED)
def test_what_does_not_fit_is_named_and_never_reaches_the_library(method, arguments, message):
    table = pa.table(
        {
            "y": [1.0, 2.0, 3.0],
            "x": [1, 2, 3],
            "holed": [1.0, None, 3.0],
            "endless": [1.0, -np.inf, 3.0],
            "large": [1.0, 1e39, 3.0],
            "text": ["a", "b", "c"],
            "time": pa.array([1, 2, 3], pa.timestamp("us")),
        }
    )
    with pytest.raises(ColumnError, match=message):
        getattr(DataConnector(table), method)(**arguments)


def test_features_beyond_single_precision_train_as_its_largest_numbers():
    found = []
    for beyond in ([-1e39, np.inf], [-3.4028235e38, 3.4028235e38]):
        table = pa.table({"y": np.arange(8.0), "x": [1, 2, 3, 4, 5, *beyond, np.nan]})
        data = DataConnector(table)
        model = xgboost.train({"min_child_weight": 0, "nthread": 1}, data.to_dmatrix("y"), 9)
        found.append(predict_xgboost(data, model).tolist())
    assert found[0] == found[1]
    assert len(set(found[0][:7])) > 4


def test_xgboost_takes_no_weight_below_0():
    table = pa.table({"y": [1.0, 2.0], "x": [1.0, 2.0], "w": [1.0, -0.5]})
    with pytest.raises(ColumnError, match=r"weight 'w' is -0.5 in one of 2 rows"):
        DataConnector(table).to_dmatrix("y", weight="w")
