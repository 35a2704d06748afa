"""Keras models as ONNX: what comes out is what the model gives, on any number of rows."""

import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pyarrow as pa
import pytest

from partwise.errors import ColumnError, ExportRefusedError
from partwise.exports.choice import exporter_for
from partwise.exports.keras.exporter import KerasNativeExporter, KerasOnnxExporter
from partwise.exports.proof.judge import close_judges, judge
from partwise.exports.proof.verdict import Case, Expectation
from partwise.exports.protocol import ModelDescription
from partwise.models.export_options import ExportOptions
from partwise.models.onnx_model import OnnxModel
from partwise.models.signature import Feeds, take_rows
from partwise.testing import ExporterContract
from tests.exports import keras_models as models
from tests.lazily import Lazily

pytestmark = pytest.mark.slow  # TensorFlow

keras = Lazily("keras")
EXPORTER = KerasOnnxExporter()
FULL = ExportOptions()
NO_ROWS = pa.table({"other": pa.array([], pa.int64())})


class OfKeras(ExporterContract):
    form = "onnx"

    def model(self):
        keras.utils.set_random_seed(2)
        model = keras.Sequential(
            [
                keras.Input((2,)),
                keras.layers.Dense(8, activation="tanh"),
                keras.layers.BatchNormalization(),
                keras.layers.Dropout(0.5),
                keras.layers.Dense(1),
            ]
        )
        # As training leaves it: statistics of batches that inference does not compute again.
        model.layers[1].moving_mean.assign(np.linspace(-1, 1, 8))
        model.feature_names_in_ = ["x", "z"]
        return model

    def rows(self):
        return pa.table({"z": models.numbers(9), "other": np.arange(9), "x": models.numbers(9)})


class TestKerasOnnx(OfKeras):
    exporter = KerasOnnxExporter()

    def test_it_is_chosen(self):
        model = self.model()
        assert isinstance(exporter_for("onnx", model), KerasOnnxExporter)
        assert isinstance(exporter_for("native", model), KerasNativeExporter)


# Keras' own, when it saves a model with NumPy 2.
@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")
class TestKerasNative(OfKeras):
    exporter = KerasNativeExporter()
    form, serde = "native", "keras"


@dataclass(frozen=True)
class Exported:
    model: Any
    description: ModelDescription
    feeds: Feeds
    path: Path

    def graph(self) -> Any:
        return onnx.load(self.path)

    def check(self, feeds: Feeds) -> None:
        """Compare names, order, shapes, dtypes and values with what the model itself gives."""
        signature, tolerance = self.description.signature, self.description.tolerance
        found = OnnxModel.from_file(str(self.path)).run(feeds)
        expected = EXPORTER.predict(self.model, signature, feeds)
        assert list(found) == list(expected) == [tensor.name for tensor in signature.outputs]
        for name, values in expected.items():
            assert found[name].shape == values.shape
            assert found[name].dtype == values.dtype
            floats = values.dtype.kind == "f" and values.size > 0
            scale = np.median(np.abs(values)) if floats else 0.0
            atol = tolerance.atol + tolerance.scaled * float(scale)
            np.testing.assert_allclose(found[name], values, tolerance.rtol, atol)
            assert len(values) < 2 or len(np.unique(values)) > 1


def export(model: Any, feeds: Feeds, path: Path, options: ExportOptions = FULL) -> Exported:
    description = EXPORTER.describe(model, NO_ROWS, feeds, options)
    EXPORTER.write(model, description, feeds, options, str(path))
    return Exported(model, description, feeds, path)


def export_named(name: str, path: Path, options: ExportOptions = FULL) -> Exported:
    keras.utils.set_random_seed(1)
    make, feeds = models.MODELS[name]
    return export(make(), feeds, path, options)


@pytest.fixture(scope="module")
def exports(tmp_path_factory) -> dict[str, Exported]:
    folder = tmp_path_factory.mktemp("keras")
    return {name: export_named(name, folder / f"{name}.onnx") for name in models.MODELS}


@pytest.mark.parametrize("count", [0, 1, 5])
@pytest.mark.parametrize("name", models.MODELS)
def test_models_come_out_right_on_any_number_of_rows(name, count, exports):
    exports[name].check(take_rows(exports[name].feeds, count))


@pytest.mark.filterwarnings("ignore:When providing `inputs` as a dict:UserWarning")
def test_inputs_of_a_mapping_are_those_of_their_names(tmp_path):
    first, second, third = models.numbers(5, 3), models.numbers(5, 3), models.numbers(5, 3)
    mapped, nested = models.make_mapped(), models.make_nested()
    wanted = mapped({"y": first, "x": second}).numpy()
    for feeds in ({"a": first, "b": second}, {"x": second, "y": first}):
        exported = export(mapped, feeds, tmp_path / "model.onnx")
        exported.check(feeds)
        found = OnnxModel.from_file(str(exported.path)).run(feeds)["output"]
        np.testing.assert_allclose(found, wanted, 1e-5, 1e-4)
    exported = export(nested, {"u": first, "rest": second, "v": third}, tmp_path / "nested.onnx")
    wanted = nested({"parts": {"u": first, "v": third}, "more": second}).numpy()
    found = OnnxModel.from_file(str(exported.path)).run(exported.feeds)["output"]
    np.testing.assert_allclose(found, wanted, 1e-5, 1e-4)
    for model, names in ((mapped, "'y', 'x'"), (nested, "'rest', 'u', 'v'")):
        feeds = dict.fromkeys(["p", "q", "r"][: 2 + (model is nested)], first)
        with pytest.raises(ExportRefusedError, match=rf"has the inputs \[{names}\]; those given"):
            export(model, feeds, tmp_path / "other.onnx")


def test_inputs_of_a_call_of_several_go_by_their_order_under_other_names(tmp_path):
    model, first, second = models.make_difference(), models.numbers(5, 3), models.numbers(5, 3)
    exported = export(model, {"p": first, "q": second}, tmp_path / "model.onnx")
    exported.check(exported.feeds)
    found = OnnxModel.from_file(str(exported.path)).run(exported.feeds)["output_0"]
    np.testing.assert_allclose(found, model(first, second)[0].numpy(), 1e-5, 1e-4)
    with pytest.raises(ExportRefusedError, match="does not run on 1 row"):
        export(model, {"p": first, "left": second}, tmp_path / "other.onnx")


def test_one_input_of_a_call_of_several_is_the_one_of_its_name(tmp_path):
    from tests.exports.keras_classes import Either

    rows = models.numbers(5, 3)
    for name, sign in (("left", 1), ("right", -1), ("other", 1)):
        exported = export(Either(), {name: rows}, tmp_path / f"{name}.onnx")
        exported.check(exported.feeds)
        found = OnnxModel.from_file(str(exported.path)).run(exported.feeds)["output"]
        np.testing.assert_array_equal(found, sign * rows)
    with pytest.raises(ExportRefusedError, match="does not run on 1 row"):
        export(models.make_difference(), {"right": rows}, tmp_path / "other.onnx")


@pytest.mark.parametrize("name", ["recurrent", "embedding", "attention"])
def test_sequences_may_have_any_length(name, exports):
    exported = exports[name]
    (tensor,) = exported.description.signature.inputs
    assert tensor.shape[:2] == (None, None)
    (values,) = exported.feeds.values()
    for length in (1, 11):
        exported.check({tensor.name: values.take(np.arange(length) % values.shape[1], 1)})


def test_a_length_that_the_model_does_not_take_is_halved(exports):
    """It has places for eight, of which the data has five."""
    exported = exports["placed"]
    assert exported.description.signature.inputs[0].shape == (None, None, 2)
    exported.check({"steps": exported.feeds["steps"][:, :2]})


def test_what_is_declared_is_in_the_signature_and_in_the_file(exports):
    exported = exports["joined"]
    signature = exported.description.signature
    assert (signature.layout, signature.prediction, signature.prediction_column) == (
        *("custom", "mean"),
        0,
    )
    assert [(t.name, t.shape) for t in signature.inputs] == [
        ("day", (None, 2)),
        ("shop", (None, 3)),
    ]
    assert [t.name for t in signature.outputs] == ["mean", "parts", "same"]
    graph = exported.graph()
    onnx.checker.check_model(graph, full_check=True)
    assert [(entry.domain, entry.version) for entry in graph.opset_import] == [("", 18)]
    ends = [*graph.graph.input, *graph.graph.output]
    assert {value.type.tensor_type.shape.dim[0].dim_param for value in ends} == {"batch"}
    assert OnnxModel.from_file(str(exported.path)).signature == signature
    outputs = exports["difference"].description.signature.outputs
    assert [(t.name, t.shape) for t in outputs] == [("output_0", (None, 2)), ("output_1", (None,))]


@pytest.mark.parametrize("name", ["recurrent", "joined"])
def test_equal_models_give_equal_bytes(name, exports, tmp_path):
    """Keras and tf2onnx have counted on since, and sets of other names have another order."""
    again = export_named(name, tmp_path / "model.onnx")

    assert again.path.read_bytes() == exports[name].path.read_bytes()


def make_wide() -> Any:
    layers = [keras.Input((16,)), keras.layers.Dense(64, activation="relu"), keras.layers.Dense(1)]
    return keras.Sequential(layers)


def test_weights_may_stand_beside_the_model_in_another_opset(tmp_path):
    options = ExportOptions(embedded_bytes=0, opset=15)
    exported = export(make_wide(), {"x": models.numbers(5, 16)}, tmp_path / "model.onnx", options)

    assert (tmp_path / "model.onnx.data").stat().st_size >= 16 * 64 * 4
    assert exported.graph().opset_import[0].version == exported.description.opset == 15
    exported.check(exported.feeds)


@pytest.mark.parametrize(
    ("options", "operator"),
    [
        (ExportOptions(precision="int8", optimization="extended"), "DynamicQuantizeMatMul"),
        (ExportOptions(precision="float16"), "Cast"),
    ],
)
def test_precision_and_optimization_are_in_the_file(options, operator, tmp_path):
    exported = export(make_wide(), {"x": models.numbers(9, 16)}, tmp_path / "model.onnx", options)

    assert operator in {node.op_type for node in exported.graph().graph.node}
    found = OnnxModel.from_file(str(exported.path)).run(exported.feeds)["output"]
    expected = EXPORTER.predict(exported.model, exported.description.signature, exported.feeds)
    difference = np.abs(found - expected["output"]).max()
    assert 0 < difference < 0.2


@pytest.fixture
def judges() -> Iterator[None]:
    yield
    close_judges()


@pytest.mark.usefixtures("judges")
def test_a_weight_that_is_wrong_in_the_file_is_found(exports, tmp_path):
    exported = exports["recurrent"]
    description = exported.description
    expectation = Expectation(
        format="onnx",
        signature=description.signature,
        tolerance=description.tolerance,
        opset=description.opset,
        is_constant=False,
        serde="",
    )
    expected = EXPORTER.predict(exported.model, description.signature, exported.feeds)
    cases = [Case(name="rows", feeds=exported.feeds, expected=expected)]
    verdict = judge(str(exported.path), expectation, cases)
    assert verdict.findings == ()

    graph = exported.graph()
    weight = max(graph.graph.initializer, key=lambda tensor: tensor.ByteSize())
    values = onnx.numpy_helper.to_array(weight).copy()
    values.flat[0] += 0.5
    weight.CopyFrom(onnx.numpy_helper.from_array(values, weight.name))
    onnx.save(graph, tmp_path / "model.onnx")
    verdict = judge(str(tmp_path / "model.onnx"), expectation, cases)
    assert [finding.check for finding in verdict.findings] == ["values"]


def test_nothing_is_said_and_nothing_of_the_process_changed(tmp_path, capfd, caplog):
    before = dict(os.environ), keras.config.floatx(), logging.root.manager.disable
    generator = keras.random.SeedGenerator(4)

    export_named("conv", tmp_path / "model.onnx")

    assert tuple(capfd.readouterr()) == ("", "")
    assert [record for record in caplog.records if record.levelno > logging.DEBUG] == []
    assert (dict(os.environ), keras.config.floatx(), logging.root.manager.disable) == before
    assert generator.state.numpy().tolist() == keras.random.SeedGenerator(4).state.numpy().tolist()
    assert "object" not in vars(np), "as Keras' own export leaves it"


@pytest.mark.parametrize(
    ("make", "feeds", "told"),
    [
        (models.make_untranslatable, {"x": np.ones((2, 3), np.float32)}, r"TensorFlow's Digamma\."),
        (models.make_table, {"x": np.ones((2, 1), np.int64)}, "LookupTableFindV2"),
        (models.make_halved, {"x": np.ones((2, 4), np.float32)}, "does not run on 1 row of its"),
        (
            models.make_halved,
            {"x": np.array([["a"] * 3])},
            "Look text up before, in example_inputs=",
        ),
        (
            models.make_joined,
            {"x": np.ones((2, 3), np.float32)},
            r"inputs \['shop', 'day'\]",
        ),
        (models.make_conv, None, "pass example_inputs=, a function"),
    ],
)
def test_what_would_come_out_wrong_is_refused(make, feeds, told, tmp_path):
    with pytest.raises(ExportRefusedError, match=told) as caught:
        export(make(), feeds, tmp_path / "model.onnx")
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_models_of_half_the_bits_and_of_other_libraries_are_refused(tmp_path):
    feeds = {"x": models.numbers(2, 3)}
    short = keras.layers.Dense(1, dtype="mixed_bfloat16")
    with pytest.raises(ExportRefusedError, match="computes in bfloat16"):
        export(keras.Sequential([keras.Input((3,)), short]), feeds, tmp_path / "model.onnx")
    old = type("Sequential", (), {"__module__": "tf_keras.src.engine.sequential"})()
    for ask in (
        lambda: export(old, feeds, tmp_path / "model.onnx"),
        lambda: exporter_for("onnx", old),
    ):
        with pytest.raises(ExportRefusedError, match=r"as .keras or .h5 .* keras.layers.TFSMLayer"):
            ask()


def test_options_that_are_not_had_are_refused(tmp_path):
    with pytest.raises(ExportRefusedError, match=r"opset=21 .* from 14 to 18"):
        export_named("double", tmp_path / "model.onnx", ExportOptions(opset=21))
    with pytest.raises(ExportRefusedError, match="Choose one of them"):
        EXPORTER.check(ExportOptions(precision="float16", optimization="all"))
    with pytest.raises(ExportRefusedError, match="opset"):
        KerasNativeExporter().check(ExportOptions(opset=17))
    model = models.make_halved()
    model.feature_names_in_ = ["price"]
    with pytest.raises(ColumnError, match="price"):
        EXPORTER.describe(model, NO_ROWS, None, FULL)


def test_without_tf2onnx_the_command_that_installs_it_is_told(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tf2onnx", None)
    with pytest.raises(ExportRefusedError, match=r"pip install 'partwise\[tensorflow\]'"):
        export_named("double", tmp_path / "model.onnx")


OF_TORCH = """
import keras, numpy, sys
from partwise.exports.keras.exporter import KerasOnnxExporter as Exporter
from partwise.models.onnx_model import OnnxModel
from partwise.models.export_options import ExportOptions
from tests.exports.keras_classes import Difference
layers, eye = keras.layers, numpy.eye(3, dtype="float32")
one = keras.Sequential([keras.Input((3,)), layers.Dropout(0.5), layers.Dense(1)])
a, b = keras.Input((3,), name="a"), keras.Input((3,), name="b")
two = keras.Model([a, b], layers.Dense(1)(a - b))
cases = [
    (one, {"x": eye}, lambda: one(eye, training=False)),
    (two, {"b": eye, "a": 5 * eye}, lambda: two([5 * eye, eye])),
    (Difference(), {"right": eye, "left": 5 * eye}, lambda: cases[2][0](5 * eye, eye)[0]),
    (Difference(), {"p": eye, "q": 5 * eye}, lambda: cases[3][0](eye, 5 * eye)[0]),
]
print(keras.backend.backend())
for model, feeds, direct in cases:
    described = Exporter().describe(model, None, feeds, ExportOptions())
    Exporter().write(model, described, feeds, ExportOptions(), sys.argv[1])
    found = OnnxModel.from_file(sys.argv[1]).run(feeds)
    expected = Exporter().predict(model, described.signature, feeds)
    assert list(found) == list(expected)
    for values in (next(iter(expected.values())), direct().detach().numpy()):
        print(numpy.abs(next(iter(found.values())) - values).max() < 1e-5)
print("tensorflow" in sys.modules)
"""


def test_models_on_the_backend_torch_go_the_way_of_its_modules(tmp_path):
    ran = subprocess.run(
        [sys.executable, "-c", OF_TORCH, str(tmp_path / "model.onnx")],
        env={**os.environ, "KERAS_BACKEND": "torch"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.split() == ["torch", *["True"] * 8, "False"]
