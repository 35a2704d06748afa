import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from partwise.connector.context import PartitionContext
from partwise.connector.data_connector import DataConnector
from partwise.errors import ColumnError, InputError
from partwise.trainers import default_predict
from tests.lazily import Lazily

lightgbm, xgboost = Lazily("lightgbm"), Lazily("xgboost")

RNG = np.random.default_rng(0)
FRAME = pd.DataFrame({"unit price": RNG.normal(size=80), "n": np.arange(80) % 7})
LABELS = FRAME["unit price"] * 2 + FRAME["n"]
PARAMS = {"num_threads": 1, "verbosity": -1, "min_data_in_leaf": 3}


def predict(model, frame=FRAME):
    data = DataConnector(pa.Table.from_pandas(frame, preserve_index=False))
    return default_predict(data, model, PartitionContext())


def bare_lightgbm(frame=FRAME, **settings):
    return lightgbm.train(PARAMS, lightgbm.Dataset(frame, LABELS, **settings), 5)


def bare_xgboost(frame=FRAME):
    matrix = xgboost.DMatrix(frame, LABELS, nthread=1)
    return xgboost.train({"nthread": 1}, matrix, num_boost_round=5)


def test_columns_are_taken_by_name():
    extra = FRAME[["n", "unit price"]].assign(store="a")
    model = bare_lightgbm()
    assert "unit_price" in model.feature_name()
    np.testing.assert_array_equal(predict(model, extra), model.predict(FRAME))
    model = bare_xgboost()
    np.testing.assert_array_equal(predict(model, extra), model.predict(xgboost.DMatrix(FRAME)))


@pytest.mark.parametrize("train", [bare_lightgbm, bare_xgboost])
def test_missing_columns_are_named(train):
    with pytest.raises(ColumnError, match=r"lacks features of the model: 'n'; there are 'unit pr"):
        predict(train(), FRAME[["unit price"]])


@pytest.mark.parametrize("train", [bare_lightgbm, bare_xgboost])
def test_text_is_no_number(train):
    with pytest.raises(ColumnError, match=r"column 'n' is .*string, but numbers are needed"):
        predict(train(), FRAME.assign(n="1"))


def test_integer_categories_without_a_frame():
    model = bare_lightgbm(categorical_feature=["n"])
    np.testing.assert_array_equal(predict(model), model.predict(FRAME))


def test_a_model_without_names_is_refused():
    model = xgboost.train({"nthread": 1}, xgboost.DMatrix(FRAME.to_numpy(), LABELS))
    with pytest.raises(InputError, match=r"2 features of this XGBoost model have no names"):
        predict(model)
    message = "2 features of this LightGBM model have no names, only Column_0 .* feature_name="
    with pytest.raises(ColumnError, match=message):
        predict(bare_lightgbm(FRAME.to_numpy()))


def test_an_xgboost_model_that_lost_its_categories_is_refused():
    frame = FRAME.assign(n=pd.Categorical(FRAME["n"] * 10))
    whole = xgboost.train(
        {"nthread": 1}, xgboost.DMatrix(frame, LABELS, enable_categorical=True, nthread=1), 5
    )
    integers = frame.astype({"n": int})
    expected = whole.predict(xgboost.DMatrix(frame, enable_categorical=True, nthread=1))
    np.testing.assert_array_equal(predict(whole, integers), expected)
    # Its raw values would pass for codes.
    with pytest.raises(InputError, match=r"splits 'n' by categories that it does not have"):
        predict(whole[:3], integers)
    dart = {"nthread": 1, "booster": "dart"}
    matrix = xgboost.DMatrix(frame, LABELS, enable_categorical=True, nthread=1)
    with pytest.raises(InputError, match=r"whole booster, trained for so many rounds"):
        predict(xgboost.train(dart, matrix, 5)[:3], integers)


@pytest.mark.parametrize("names", [["é000", "é001"], ["Bonn", "Köln", "Nürnberg"], ["ab", "ü9"]])
def test_an_xgboost_model_whose_categories_were_cut_within_text_is_refused(names):
    codes = np.arange(80) % len(names)
    frame = FRAME.assign(shop=pd.Categorical(np.array(names)[codes]))
    matrix = xgboost.DMatrix(frame, codes * 5.0, enable_categorical=True, nthread=1)
    model = xgboost.train({"nthread": 1}, matrix, num_boost_round=5)
    with pytest.raises(InputError, match="has cut categories of this model that are not ASCII"):
        predict(model, frame)


def test_an_xgboost_model_of_an_arrow_table_keeps_all_texts():
    known, new = ["Köl", "Bonn"], "Zürich"
    texts = np.array(known)[np.arange(80) % 2]
    table = pa.table({"shop": pa.array(texts).dictionary_encode()})
    matrix = xgboost.DMatrix(table, np.arange(80) % 2 * 5.0, enable_categorical=True, nthread=1)
    model = xgboost.train({"nthread": 1}, matrix, num_boost_round=5)
    found = default_predict(
        DataConnector(pa.table({"shop": ["Köl", "Bonn", new]})), model, PartitionContext()
    )
    np.testing.assert_array_equal(found[:2], model.predict(matrix)[:2])


def test_an_xgboost_model_of_codes_says_so():
    kinds = ["float", "c"]
    matrix = xgboost.DMatrix(
        FRAME.to_numpy(), LABELS, feature_names=[*FRAME], feature_types=kinds, nthread=1
    )
    model = xgboost.train({"nthread": 1}, matrix, 5)
    with pytest.raises(InputError, match=r"set_attr\(partwise_categories='codes'\)"):
        predict(model)
    model.set_attr(partwise_categories="codes")
    np.testing.assert_array_equal(predict(model), model.predict(matrix))
    np.testing.assert_array_equal(predict(model[:3]), model[:3].predict(matrix))
    # Of a feature that no tree splits by categories nothing can be wrong.
    without = xgboost.train({"nthread": 1, "gamma": 1e9}, matrix, 5)
    np.testing.assert_array_equal(predict(without), without.predict(matrix))


def test_models_with_feature_names_predict_from_a_frame():
    class Model:
        feature_names_in_ = np.array(["n", "unit price"], dtype=object)

        def predict(self, frame):
            assert [*frame.columns] == ["n", "unit price"]
            return frame["n"].to_numpy()

    np.testing.assert_array_equal(predict(Model()), FRAME["n"])
    with pytest.raises(ColumnError, match="lacks features of the model: 'n'"):
        predict(Model(), FRAME[["unit price"]])


def test_other_models_need_a_function():
    with pytest.raises(InputError, match=r"A builtins.dict does not say .* pass predict="):
        predict({"a": 1})
