"""Models of other libraries say what their features are, so that inference needs no function."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from partwise.connector.context import PartitionContext
from partwise.connector.data_connector import DataConnector
from partwise.errors import ColumnError, InputError
from partwise.trainers.predict import default_predict

ROWS = pd.DataFrame(np.random.default_rng(3).normal(size=(60, 2)), columns=["x one", "z"])
LABELS = 2 * ROWS["x one"] - ROWS["z"] + 1
# In another order, beside a column that is not a feature.
GIVEN = pa.table({"day": np.arange(60), "z": ROWS["z"], "x one": ROWS["x one"]})


class Named:
    """Says its features as CatBoost's models do."""

    feature_names_ = ("z", "x one")

    def predict(self, frame):
        assert list(frame.columns) == ["z", "x one"]
        return 2 * frame["x one"] - frame["z"] + 1


def lightgbm_wrapper():
    from lightgbm import LGBMRegressor

    model = LGBMRegressor(n_estimators=3, n_jobs=1, verbose=-1)
    rows = ROWS.rename(columns={"x one": "x"})
    return model.fit(rows, LABELS), GIVEN.rename_columns(["day", "z", "x"]), rows


def xgboost_wrapper():
    from xgboost import XGBRegressor

    return XGBRegressor(n_estimators=3, n_jobs=1).fit(ROWS, LABELS), GIVEN, ROWS


def scikit_learn():
    from sklearn.linear_model import LinearRegression

    return LinearRegression().fit(ROWS, LABELS), GIVEN, ROWS


def statsmodels_with_constant():
    from statsmodels.api import OLS, add_constant

    rows = add_constant(ROWS)
    return OLS(LABELS, rows).fit(), GIVEN, rows


def statsmodels_formula():
    from statsmodels.formula.api import ols

    rows = ROWS.rename(columns={"x one": "x"}).assign(y=LABELS)
    return ols("y ~ x + np.abs(z)", rows).fit(), GIVEN.rename_columns(["day", "z", "x"]), rows


MODELS = [
    lightgbm_wrapper, xgboost_wrapper, scikit_learn, statsmodels_with_constant, statsmodels_formula,
    lambda: (Named(), GIVEN, ROWS[["z", "x one"]]),
]  # fmt: skip


@pytest.mark.parametrize("make", MODELS)
def test_a_model_predicts_from_the_columns_that_it_names(make):
    model, given, rows = make()
    found = default_predict(DataConnector(given), model, PartitionContext())
    np.testing.assert_array_equal(np.asarray(found), np.asarray(model.predict(rows)))


def test_a_missing_column_is_named():
    model, given, _ = statsmodels_with_constant()
    with pytest.raises(ColumnError, match="lacks features of the model: 'z'"):
        default_predict(DataConnector(given.drop_columns(["z"])), model, PartitionContext())


def test_a_series_without_features_needs_a_function():
    from statsmodels.tsa.ar_model import AutoReg

    model = AutoReg(LABELS, 1).fit()
    with pytest.raises(InputError, match="does not say what its features are"):
        default_predict(DataConnector(GIVEN), model, PartitionContext())
