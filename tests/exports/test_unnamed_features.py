"""Boosters that were trained on a matrix without names, and the columns that a user gives."""

import numpy as np
import pyarrow as pa
import pytest

from partwise.errors import ColumnError, ExportRefusedError
from partwise.exports.proof.judge import close_judges
from partwise.models.export_options import ExportOptions
from partwise.models.onnx_model import OnnxModel
from tests.exports.proof.exported_models import export
from tests.lazily import Lazily

lightgbm, xgboost = Lazily("lightgbm"), Lazily("xgboost")

RNG = np.random.default_rng(0)
MATRIX = RNG.normal(size=(300, 3)).astype(np.float32)
TARGET = MATRIX[:, 0] * 2 - MATRIX[:, 1] + MATRIX[:, 2] * MATRIX[:, 0]
# In another order than the model's, beside others.
ROWS = pa.table({"c": MATRIX[:, 2], "key": ["a"] * 300, "a": MATRIX[:, 0], "b": MATRIX[:, 1]})


@pytest.fixture(autouse=True)
def _no_judge_is_left():
    yield
    close_judges()


def lightgbm_model(**how):
    params = {"verbosity": -1, "num_threads": 1}
    return lightgbm.train(params, lightgbm.Dataset(MATRIX, TARGET, **how), 10)


def xgboost_model(**how):
    return xgboost.train({"nthread": 1}, xgboost.DMatrix(MATRIX, TARGET, **how), 10)


@pytest.mark.parametrize("train", [lightgbm_model, xgboost_model])
def test_features_name_the_columns_of_a_model_without_names(train, tmp_path):
    path, options = tmp_path / "model.onnx", ExportOptions(features=("a", "b", "c"))
    model = train()
    exported = export(model, ROWS, path, options)
    exported.compare(str(path))
    matrix = MATRIX if train is lightgbm_model else xgboost.DMatrix(MATRIX)
    found = OnnxModel.from_file(str(path)).predict(ROWS)
    np.testing.assert_allclose(found, model.predict(matrix), rtol=1e-6)
    for wrong in (("a", "b"), ("a", "b", "b"), ("a", "b", "c", "key")):
        with pytest.raises((ColumnError, ExportRefusedError), match="model has 3 features"):
            export(model, ROWS, path, ExportOptions(features=wrong))
    with pytest.raises((ColumnError, ExportRefusedError), match="lacks features of the model: 'z'"):
        export(model, ROWS, path, ExportOptions(features=("a", "b", "z")))
    with pytest.raises(
        (ColumnError, ExportRefusedError), match=r"pass features=|an export features="
    ):
        export(model, ROWS, path, ExportOptions())


@pytest.mark.parametrize(
    "make",
    [
        lambda: lightgbm_model(feature_name=["a", "b", "c"]),
        lambda: xgboost_model(feature_names=[*"abc"]),
    ],
)
def test_a_model_with_names_takes_no_others(make, tmp_path):
    options = ExportOptions(features=("c", "b", "a"))
    with pytest.raises((ColumnError, ExportRefusedError), match="has names for its features"):
        export(make(), ROWS, tmp_path / "model.onnx", options)


def test_options_without_features_are_written_as_before():
    assert "features" not in ExportOptions().model_dump()
