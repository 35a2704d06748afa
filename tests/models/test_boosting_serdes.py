import numpy as np
import pandas as pd
import pytest

from partwise.errors import SerdeError
from partwise.models.serdes import LightGBMSerde, XGBoostSerde
from partwise.testing import SerdeContract
from tests.lazily import Lazily

lightgbm, xgboost = Lazily("lightgbm"), Lazily("xgboost")

RNG = np.random.default_rng(0)
CODES = RNG.integers(0, 3, 120)
NUMBERS = RNG.normal(size=120)
LABELS = NUMBERS + CODES * 3.0


def frame(categories=("a", "b", "z")):
    names = np.array(["a", "b", "z"])[CODES]
    return pd.DataFrame({"x": NUMBERS, "c": pd.Categorical(names, categories=list(categories))})


REORDERED = ("z", "b", "a")
"""The categories as another process may have met them."""


class TestLightGBMSerde(SerdeContract):
    serde = LightGBMSerde()

    def model(self):
        params = {"num_threads": 1, "verbosity": -1, "seed": 0, "min_data_in_leaf": 5}
        return lightgbm.train(params, lightgbm.Dataset(frame(), LABELS), 10)

    def predictions(self, model):
        np.testing.assert_array_equal(model.predict(frame()), model.predict(frame(REORDERED)))
        return model.predict(frame(REORDERED))

    def test_what_is_no_plain_booster_is_refused(self, path):
        class Own(lightgbm.Booster):
            pass

        with pytest.raises(SerdeError, match=r"Own: return a Booster .*booster_.*PickleSerde"):
            self.serde.write(Own(model_str=self.model().model_to_string()), str(path))


class TestXGBoostSerde(SerdeContract):
    serde = XGBoostSerde()

    def matrix(self, categories=("a", "b", "z")):
        return xgboost.DMatrix(frame(categories), LABELS, enable_categorical=True, nthread=1)

    def model(self):
        return xgboost.train({"nthread": 1}, self.matrix(), num_boost_round=10)

    def predictions(self, model):
        after = model.predict(self.matrix(REORDERED))
        np.testing.assert_array_equal(model.predict(self.matrix()), after)
        return after

    def test_what_is_no_plain_booster_is_refused(self, path):
        class Own(xgboost.Booster):
            pass

        with pytest.raises(SerdeError, match=r"Own: return a Booster or .*PickleSerde"):
            self.serde.write(Own(), str(path))


class TestXGBoostSerdeOfJson(TestXGBoostSerde):
    serde = XGBoostSerde(filename="model.json")


def test_a_filename_has_to_name_the_format():
    with pytest.raises(SerdeError, match=r"'model.bin'.* end it in .ubj or .json"):
        XGBoostSerde(filename="model.bin")


class TestXGBoostSerdeOfWrappers(SerdeContract):
    """A wrapper's settings come back too: with `missing` lost, -9 would be a number."""

    serde = XGBoostSerde()
    rows = pd.DataFrame({"x": np.where(CODES == 1, -9.0, NUMBERS), "y": NUMBERS})

    @pytest.fixture(autouse=True)
    def _needs_sklearn(self):
        pytest.importorskip("sklearn")

    def model(self):
        model = xgboost.XGBRegressor(
            n_estimators=4, missing=-9.0, n_jobs=1, random_state=np.int64(3), max_depth=3
        )
        return model.fit(self.rows, LABELS)

    def predictions(self, model):
        return model.predict(self.rows)

    def test_a_classifier_comes_back_with_its_settings(self, path):
        model = xgboost.XGBClassifier(
            n_estimators=2, n_jobs=1, callbacks=[xgboost.callback.EvaluationMonitor()]
        ).fit(self.rows, CODES)
        self.serde.write(model, str(path))
        after = self.serde.read(str(path))
        assert type(after) is xgboost.XGBClassifier
        kept = {"n_estimators": 2, "n_jobs": 1, "objective": "multi:softprob", "callbacks": None}
        assert {name: after.get_params()[name] for name in kept} == kept
        assert after.predict_proba(self.rows).shape == (120, 3)
        assert "partwise_wrapper" not in model.get_booster().attributes()
        assert "partwise_wrapper" not in after.get_booster().attributes()

    def test_an_objective_of_ones_own_is_refused(self, path):
        def objective(labels, predictions):
            return predictions - labels, np.ones_like(labels)

        model = xgboost.XGBRegressor(n_estimators=1, objective=objective).fit(self.rows, LABELS)
        with pytest.raises(SerdeError, match="objective of this wrapper, which is a function"):
            self.serde.write(model, str(path))
