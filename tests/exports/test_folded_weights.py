"""Layers into which torch.onnx folds a BatchNorm: their weights are computed alike, bit by bit."""

from pathlib import Path

import numpy as np
import onnx
import pyarrow as pa
import pytest
from onnx import numpy_helper

from partwise.exports.proof.weights import prove_weights
from partwise.exports.torch.exporter import TorchOnnxExporter
from partwise.models.export_options import ExportOptions
from tests.lazily import Lazily
from tests.thoroughness import quick_and_slow

torch = Lazily("torch")

EXPORTER = TorchOnnxExporter()
ROWS = np.random.default_rng(0).normal(size=(6, 4)).astype(np.float32)
IMAGES = np.random.default_rng(0).normal(size=(6, 3, 8, 8)).astype(np.float32)
LAYERS = {
    "linear": (lambda: [torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8)], ROWS),
    "with another eps": (lambda: [torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8, 0.02)], ROWS),
    "without gamma": (
        lambda: [torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8, affine=False)],
        ROWS,
    ),
    "convolution": (lambda: [torch.nn.Conv2d(3, 5, 3), torch.nn.BatchNorm2d(5)], IMAGES),
    "convolution without bias": (
        lambda: [torch.nn.Conv2d(3, 5, 3, bias=False), torch.nn.BatchNorm2d(5)],
        IMAGES,
    ),
    "groups": (lambda: [torch.nn.Conv2d(3, 6, 3, groups=3), torch.nn.BatchNorm2d(6)], IMAGES),
}


def written(name: str, folder: Path) -> "tuple[torch.nn.Module, str]":
    torch.manual_seed(0)
    make, rows = LAYERS[name]
    model = torch.nn.Sequential(*make())
    model(torch.tensor(rows) * 3 + 1)  # moves the means
    path = str(folder / "model.onnx")
    feeds = {"x": rows}
    description = EXPORTER.describe(model.eval(), pa.table({"a": [1.0]}), feeds, ExportOptions())
    EXPORTER.write(model, description, feeds, ExportOptions(), path)
    return model, path


@pytest.mark.parametrize("name", quick_and_slow({"linear", "convolution"}, LAYERS))
def test_folded_weights_are_proved_and_one_ulp_is_told(name, tmp_path):
    model, path = written(name, tmp_path)
    proof = prove_weights(path, EXPORTER.weights(model))
    assert proof.findings == ()
    assert proof.metrics["export_weights"] == proof.metrics["export_weights_proved"] == 2
    file = onnx.load(path)
    for tensor in file.graph.initializer:
        values = numpy_helper.to_array(tensor).copy()
        values.flat[-1] = np.nextafter(values.flat[-1], np.float32(9))
        tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))
    onnx.save(file, path)
    proof = prove_weights(path, EXPORTER.weights(model))
    assert [finding.check for finding in proof.findings] == ["weights", "weights"]


def test_modules_without_a_batch_norm_have_nothing_folded():
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.LayerNorm(8))
    assert list(EXPORTER.weights(model)) == ["0.weight", "0.bias", "1.weight", "1.bias"]


def test_a_bias_of_one_number_is_told(tmp_path):
    torch.manual_seed(0)
    model, path = torch.nn.Linear(4, 1), str(tmp_path / "model.onnx")
    feeds = {"x": ROWS}
    description = EXPORTER.describe(model, pa.table({"a": [1.0]}), feeds, ExportOptions())
    EXPORTER.write(model, description, feeds, ExportOptions(), path)
    assert prove_weights(path, EXPORTER.weights(model)).findings == ()
    file = onnx.load(path)
    (bias,) = [tensor for tensor in file.graph.initializer if list(tensor.dims) == [1]]
    beside = np.nextafter(numpy_helper.to_array(bias), np.float32(9))
    bias.CopyFrom(numpy_helper.from_array(beside, bias.name))
    onnx.save(file, path)
    (finding,) = prove_weights(path, EXPORTER.weights(model)).findings
    assert "differ from 'bias' in 1 of 1 numbers" in finding.message
