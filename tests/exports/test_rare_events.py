"""Models of rare events, whose predictions are tiny, keep them to the last digits as ONNX."""

import numpy as np
import pyarrow as pa
import pytest

from partwise.exports.proof.judge import close_judges
from partwise.models.onnx_model import OnnxModel
from tests.exports.proof.exported_models import export
from tests.lazily import Lazily

lightgbm, xgboost = Lazily("lightgbm"), Lazily("xgboost")

RANDOM = np.random.default_rng(0)
X = RANDOM.random(1500)
RARE = (X > 0.97) * 1.0
ROWS = pa.table({"x": X[:300]})
LIGHTGBM = (
    *("binary", "cross_entropy", "cross_entropy_lambda", "poisson", "tweedie"),
    *("multiclass", "multiclassova"),
)
XGBOOST = ("binary:logistic", "reg:logistic", "count:poisson", "reg:tweedie", "multi:softprob")


@pytest.fixture(scope="module", autouse=True)
def judges_end_with_the_tests():
    yield
    close_judges()


def lightgbm_model(objective, rounds, rate):
    params = {"verbosity": -1, "num_threads": 1, "objective": objective, "learning_rate": rate}
    params |= {"num_class": 2} if objective.startswith("multiclass") else {}
    data = lightgbm.Dataset(X[:, None], RARE, feature_name=["x"])
    return lightgbm.train(params, data, rounds)


def xgboost_model(objective, rounds, rate):
    params = {"objective": objective, "learning_rate": rate, "nthread": 1, "lambda": 0}
    params |= {"min_child_weight": 0} | ({"num_class": 2} if "multi" in objective else {})
    return xgboost.train(params, xgboost.DMatrix(X[:, None], RARE, feature_names=["x"]), rounds)


@pytest.mark.parametrize("rate", [0.1, 0.3])
@pytest.mark.parametrize("objective", LIGHTGBM)
def test_lightgbm_models(objective, rate, tmp_path):
    model = lightgbm_model(objective, 120, rate)
    path = str(tmp_path / "model.onnx")
    export(model, ROWS, path)
    expected = model.predict(X[:300, None])
    assert expected.min() < 1e-4
    np.testing.assert_allclose(OnnxModel.from_file(path).predict(ROWS), expected, rtol=1e-14)


@pytest.mark.parametrize("objective", XGBOOST)
def test_xgboost_models(objective, tmp_path):
    model = xgboost_model(objective, 150, 0.3)
    path = str(tmp_path / "model.onnx")
    export(model, ROWS, path)
    expected = model.predict(xgboost.DMatrix(X[:300, None], feature_names=["x"]))
    assert expected.min() < 1e-3
    found = OnnxModel.from_file(path).predict(ROWS)
    np.testing.assert_allclose(found, expected, rtol=3e-7)


@pytest.mark.parametrize("score", [-745.2, -709.0, -40.0, -36.7, -1e-9, 0.0, 20.0, 700.0, 710.0])
def test_the_logarithm_of_one_and_a_little(score, tmp_path):
    data = lightgbm.Dataset(X[:, None], RARE, feature_name=["x"])
    trained = lightgbm.train(
        {"verbosity": -1, "objective": "cross_entropy_lambda", "num_leaves": 2}, data, 1
    )
    for leaf in range(2):
        trained.set_leaf_output(0, leaf, score)
    path = str(tmp_path / "model.onnx")
    export(trained, ROWS, path)
    expected = trained.predict(X[:300, None])
    found = OnnxModel.from_file(path).predict(ROWS)
    with np.errstate(over="ignore"):
        assert expected[0] == pytest.approx(np.log1p(np.exp(score)), rel=1e-15)
    np.testing.assert_allclose(found, expected, rtol=4e-16)
