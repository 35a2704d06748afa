"""The built-in exporters keep the contract, and so does one that a user may write."""

import numpy as np
import pyarrow as pa

from partwise.exports.torch.exporter import TorchOnnxExporter
from partwise.exports.torch.pt2 import Pt2Exporter
from partwise.exports.torch.torchscript import TorchScriptExporter
from partwise.exports.trees.lightgbm import LightGBMOnnxExporter
from partwise.exports.trees.native import NativeExporter
from partwise.exports.trees.xgboost import XGBoostOnnxExporter
from partwise.testing import ExporterContract
from tests.exports.ridge_exporter import RidgeExporter
from tests.lazily import Lazily

torch = Lazily("torch")

CHANCE = np.random.default_rng(11)
MATRIX = CHANCE.normal(size=(80, 2))
LABEL = MATRIX @ [2.0, -1.0] + np.abs(MATRIX[:, 0])
NAMES = ["x", "z"]


class OfColumns(ExporterContract):
    form = "onnx"

    def rows(self):
        return pa.table({"z": MATRIX[:9, 1], "other": np.arange(9), "x": MATRIX[:9, 0]})


class OfLightGBM(OfColumns):
    def model(self):
        import lightgbm

        settings = {"num_threads": 1, "verbosity": -1}
        return lightgbm.train(settings, lightgbm.Dataset(MATRIX, LABEL, feature_name=NAMES), 5)


class TestLightGBM(OfLightGBM):
    exporter = LightGBMOnnxExporter()


class TestNativeLightGBM(OfLightGBM):
    exporter = NativeExporter()
    form, serde = "native", "lightgbm"


class OfXGBoost(OfColumns):
    params = {"max_depth": 3}  # noqa: RUF012 (of a test)

    def model(self):
        import xgboost

        rows = xgboost.DMatrix(MATRIX, LABEL, feature_names=NAMES, nthread=1)
        return xgboost.train({"nthread": 1, **self.params}, rows, 5)


class TestXGBoost(OfXGBoost):
    exporter = XGBoostOnnxExporter()


class TestNativeXGBoost(OfXGBoost):
    exporter = NativeExporter()
    form, serde = "native", "xgboost"


class TestNativeLinearXGBoost(TestNativeXGBoost):
    params = {"booster": "gblinear", "updater": "coord_descent"}  # noqa: RUF012 (of a test)


class OfTorch(OfColumns):
    def model(self):
        torch.manual_seed(0)
        return torch.nn.Sequential(torch.nn.Linear(2, 4), torch.nn.Tanh(), torch.nn.Linear(4, 2))

    def feeds(self):
        return {"input": MATRIX[:9].astype(np.float32)}


class TestTorchOnnx(OfTorch):
    exporter = TorchOnnxExporter()


class TestTorchScript(OfTorch):
    exporter = TorchScriptExporter()
    form = "torchscript"


class TestPt2(OfTorch):
    exporter = Pt2Exporter()
    form = "pt2"


class TestRidge(OfColumns):
    exporter = RidgeExporter()

    def model(self):
        from sklearn.linear_model import Ridge

        model = Ridge().fit(MATRIX, LABEL)
        model.feature_names_in_ = np.array(NAMES, dtype=object)
        return model
