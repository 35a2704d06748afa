import warnings

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


class TestLightGBMSerdeOfWrappers(SerdeContract):
    """A wrapper gives labels where its Booster gives probabilities."""

    serde = LightGBMSerde()
    labels = np.array(["low", "high", "mid"])[CODES]

    @pytest.fixture(autouse=True)
    def _needs_sklearn(self):
        pytest.importorskip("sklearn")

    def model(self):
        quiet = {"n_jobs": 1, "verbose": -1, "random_state": np.int64(3)}
        model = lightgbm.LGBMClassifier(n_estimators=9, min_data_in_leaf=5, **quiet)
        stop = lightgbm.early_stopping(1, verbose=False)
        some = frame()[:30], self.labels[:30]
        weight = {"low": 1.0, "high": 2.0, "mid": 1.0}
        model.set_params(class_weight=weight)
        with warnings.catch_warnings():
            # LightGBM 4.7 would have eval_X and eval_y, and takes no texts there.
            warnings.simplefilter("ignore")
            return model.fit(frame(), self.labels, eval_set=[some], callbacks=[stop])

    def predictions(self, model):
        assert set(model.predict(frame())) <= set(self.labels)
        return model.predict_proba(frame(REORDERED))

    def test_all_that_a_fit_has_found_comes_back(self, path):
        model = self.model()
        self.serde.write(model, str(path))
        after = self.serde.read(str(path))
        assert type(after) is lightgbm.LGBMClassifier
        assert after.get_params() == model.get_params()
        names = ("best_iteration_", "best_score_", "evals_result_", "n_features_in_", "objective_")
        for name in (*names, "n_classes_", "feature_name_"):
            assert getattr(after, name) == getattr(model, name), name
        for name in ("classes_", "feature_names_in_"):
            np.testing.assert_array_equal(getattr(after, name), getattr(model, name))
        np.testing.assert_array_equal(after.predict(frame()), model.predict(frame()))
        # A reader that knows nothing of it finds the trees.
        assert lightgbm.Booster(model_file=str(path)).num_feature() == 2

    @pytest.mark.parametrize("labels", [CODES * 2 - 1, CODES == 1, CODES * 1.0])
    def test_classes_are_of_their_type(self, path, labels):
        model = lightgbm.LGBMClassifier(n_estimators=2, n_jobs=1, verbose=-1).fit(frame(), labels)
        self.serde.write(model, str(path))
        after = self.serde.read(str(path)).predict(frame())
        assert after.dtype == labels.dtype
        np.testing.assert_array_equal(after, model.predict(frame()))

    def test_settings_that_predictions_heed_come_back(self, path):
        given = {"n_jobs": 1, "verbose": -1, "pred_early_stop": True, "n_estimators": 2}
        model = lightgbm.LGBMRegressor(**given).fit(frame(), LABELS)
        self.serde.write(model, str(path))
        assert self.serde.read(str(path)).get_params() == model.get_params()

    def test_what_cannot_be_kept_is_refused(self, path):
        class Own(lightgbm.LGBMRegressor):
            pass

        def objective(labels, predictions):
            return predictions - labels, np.ones_like(labels)

        own = Own(n_estimators=1, n_jobs=1, verbose=-1).fit(frame(), LABELS)
        with pytest.raises(SerdeError, match=r"Own: return a Booster .* one of LGBMClassifier"):
            self.serde.write(own, str(path))
        own = lightgbm.LGBMRegressor(n_estimators=1, objective=objective, n_jobs=1, verbose=-1)
        with pytest.raises(SerdeError, match="objective of this wrapper, which is a function"):
            self.serde.write(own.fit(frame(), LABELS), str(path))
        days = np.array(["2026-01-01", "2026-01-02", "2026-01-03"], "datetime64[D]")[CODES]
        own = lightgbm.LGBMClassifier(n_estimators=1, n_jobs=1, verbose=-1)
        with pytest.raises(SerdeError, match=r"cannot keep classes of datetime64\[D\]"):
            self.serde.write(own.fit(frame(), days), str(path))


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
