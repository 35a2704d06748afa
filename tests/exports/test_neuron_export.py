"""AWS Neuron, with a stand-in for its SDK: trace for static shapes, save and load by torch.jit."""

import sys
import types
import warnings
from typing import Any

import numpy as np
import pytest

from partwise.errors import ExportRefusedError
from partwise.exports.neuron import NeuronExporter
from partwise.models.export_options import ExportOptions
from partwise.models.signature import take_rows
from partwise.models.torch_programs import NeuronModel
from tests.lazily import Lazily

models, torch = Lazily("tests.exports.torch_models"), Lazily("torch")

FULL = ExportOptions()


def trace(func: "torch.nn.Module", example_inputs: Any, **settings: Any) -> Any:
    """Compile for the shapes of the examples, as the documentation of both SDKs says."""
    shapes = [tuple(example.shape) for example in example_inputs]
    assert not func.training

    class Compiled(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.func = func

        def forward(self, *inputs: torch.Tensor):
            # These sizes are constants of the trace: others do not fit.
            return self.func(*[x.reshape(s) for x, s in zip(inputs, shapes, strict=True)])

    return torch.jit.trace(Compiled(), example_inputs)


@pytest.fixture(params=["torch_neuronx", "torch_neuron"])
def sdk(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    stand_in = types.ModuleType(request.param)
    if request.param == "torch_neuronx":
        stand_in.trace = trace  # type: ignore[attr-defined]
    else:
        neuron = types.SimpleNamespace(trace=trace)
        monkeypatch.setattr("torch.neuron", neuron, raising=False)
    monkeypatch.setitem(sys.modules, request.param, stand_in)
    return request.param


def test_a_module_is_compiled_for_one_number_of_rows_and_runs_on_any(sdk, tmp_path, capfd):
    model = models.ShopModel()
    exporter = NeuronExporter(batch_size=4)
    description = exporter.describe(model, models.ROWS, models.SHOP_FEEDS, FULL)
    path = str(tmp_path / "model.neuron.pt")

    exporter.write(model, description, models.SHOP_FEEDS, FULL, path)
    loaded = NeuronModel.from_file(path)

    assert loaded.signature == description.signature
    assert [tensor.shape for tensor in loaded.signature.inputs] == [(4,), (4, 2)]
    assert [tensor.shape for tensor in loaded.signature.outputs] == [(4, 1), (4,)]
    assert model.training
    for count in (0, 1, 4, 7):
        feeds = take_rows(models.SHOP_FEEDS, count)
        expected = exporter.predict(model, loaded.signature, feeds)
        found = loaded.run(feeds)
        assert list(found) == ["mean", "spread"]
        for name, values in expected.items():
            assert found[name].shape == values.shape
            np.testing.assert_allclose(found[name], values, rtol=0, atol=1e-6)
    with pytest.raises(RuntimeError, match="invalid for input of size"):
        loaded.program(*map(torch.from_numpy, take_rows(models.SHOP_FEEDS, 5).values()))
    assert tuple(capfd.readouterr()) == ("", "")


def test_rows_get_the_predictions_of_the_module(sdk, tmp_path):
    model = models.make_mlp()
    exporter = NeuronExporter()
    description = exporter.describe(model, models.ROWS, None, FULL)
    sample = {"features": np.ones((2, 4), np.float32)}
    exporter.write(model, description, sample, FULL, str(tmp_path / "m"))

    found = NeuronModel.from_file(str(tmp_path / "m")).predict(models.ROWS)

    features = np.column_stack([models.ROWS[name].to_numpy() for name in models.COLUMNS])
    with torch.no_grad():
        expected = model.eval()(torch.tensor(features, dtype=torch.float32)).numpy()[:, 0]
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6)


def test_what_the_compiler_says_is_passed_on(sdk, monkeypatch, tmp_path):
    def fail(*args: Any) -> None:
        warnings.warn("compiling", stacklevel=1)
        raise ValueError("operator aten::bessel_j0 is not supported\nlook there")

    place = torch.neuron if sdk == "torch_neuron" else sys.modules[sdk]
    monkeypatch.setattr(place, "trace", fail)
    exporter = NeuronExporter()
    description = exporter.describe(models.make_mlp(), models.ROWS, None, FULL)

    with pytest.raises(
        ExportRefusedError, match=r"compiler does not take .*bessel_j0 is not supported\.$"
    ):
        exporter.write(
            models.make_mlp(),
            description,
            {"features": np.ones((2, 4), np.float32)},
            FULL,
            str(tmp_path / "m"),
        )
    assert list(tmp_path.iterdir()) == []


def test_without_the_sdk_the_refusal_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "torch_neuronx", None)
    monkeypatch.setitem(sys.modules, "torch_neuron", None)

    with pytest.raises(
        ExportRefusedError, match=r"install torch-neuronx .* AWS' own package index"
    ):
        NeuronExporter().describe(models.make_mlp(), models.ROWS, None, FULL)
    with pytest.raises(ExportRefusedError, match="SDK is not installed"):
        NeuronModel.from_file(str(tmp_path / "m"))


def test_options_of_onnx_are_refused(sdk):
    with pytest.raises(ExportRefusedError, match="is an option of ONNX files"):
        NeuronExporter().describe(models.make_mlp(), models.ROWS, None, ExportOptions(opset=20))
