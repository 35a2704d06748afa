"""Graphs in fewer bits, and rewritten by onnxruntime: what they stay, and how near."""

import logging
import sys
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from partwise.errors import ExportRefusedError
from partwise.exports.onnx.quantization import lower_precision, optimize
from partwise.exports.torch.exporter import TorchOnnxExporter
from partwise.models.export_options import ExportOptions
from partwise.models.onnx_files import OnnxContent, open_session

FLOAT, DOUBLE = onnx.TensorProto.FLOAT, onnx.TensorProto.DOUBLE
ROWS = np.random.default_rng(1).normal(size=(7, 16)).astype(np.float32)


def make_model(kind: int = FLOAT, hidden: int = 64) -> Any:
    """Two layers with what torch leaves in a graph: constants to fold, and value_info."""
    random = np.random.default_rng(0)
    dtype = helper.tensor_dtype_to_np_dtype(kind)
    shapes = {"w1": (16, hidden), "b1": (hidden,), "w2": (hidden, 2), "b2": (2,)}
    weights = [
        numpy_helper.from_array(random.normal(size=shape).astype(dtype), name)
        for name, shape in shapes.items()
    ]
    nodes = [
        helper.make_node("Gemm", ["x", "w1", "b1"], ["h"], name="first"),
        helper.make_node("Relu", ["h"], ["r"], name="relu"),
        helper.make_node("Identity", ["r"], ["i"], name="needless"),
        helper.make_node("Gemm", ["i", "w2", "b2"], ["y"], name="last"),
    ]
    graph = helper.make_graph(
        nodes,
        "graph",
        [helper.make_tensor_value_info("x", kind, ["batch", 16])],
        [helper.make_tensor_value_info("y", kind, ["batch", 2])],
        weights,
        value_info=[helper.make_tensor_value_info("h", kind, ["batch", hidden])],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


def run(model: Any, rows: np.ndarray = ROWS) -> np.ndarray:
    content = OnnxContent(model=model.SerializeToString(deterministic=True))
    (found,) = open_session(content).run(None, {"x": rows})
    return found


def changed(precision: str, level: str) -> Any:
    return optimize(lower_precision(make_model(), precision), level)


CHANGES = {
    ("float16", "none"): 2e-2,
    ("int8", "none"): 0.6,
    ("full", "basic"): 1e-5,
    ("full", "extended"): 1e-5,
    ("full", "all"): 1e-5,
    ("int8", "all"): 0.6,
}


@pytest.mark.parametrize(("precision", "level"), CHANGES)
def test_a_changed_graph_is_right_and_the_same_each_time(precision, level, capfd, caplog):
    path, disabled = list(sys.path), logging.root.manager.disable

    model = changed(precision, level)

    expected = run(make_model())
    assert np.abs(expected).max() > 5
    np.testing.assert_allclose(run(model), expected, rtol=0, atol=CHANGES[precision, level])
    assert run(model, ROWS[:1]).shape == (1, 2)
    assert run(model, ROWS[:0]).shape == (0, 2)
    again = changed(precision, level)
    assert model.SerializeToString(deterministic=True) == again.SerializeToString(
        deterministic=True
    )
    assert (sys.path, logging.root.manager.disable) == (path, disabled)
    assert (*capfd.readouterr(), caplog.text) == ("", "", "")


@pytest.mark.parametrize(("precision", "level"), CHANGES)
def test_a_changed_graph_keeps_what_was_declared(precision, level):
    model = changed(precision, level)

    assert model.ir_version == 10
    domains = {entry.domain: entry.version for entry in model.opset_import}
    assert domains.pop("") == 20
    assert set(domains) == {node.domain for node in model.graph.node} - {""}
    for ends in (model.graph.input, model.graph.output):
        (value,) = ends
        assert value.type.tensor_type.elem_type == FLOAT
        assert value.type.tensor_type.shape.dim[0].dim_param == "batch"
    if level in ("none", "basic"):
        onnx.checker.check_model(model, full_check=True)


def test_lower_precision_makes_files_smaller():
    full = make_model(hidden=256).ByteSize()

    assert lower_precision(make_model(hidden=256), "float16").ByteSize() < 0.7 * full
    assert lower_precision(make_model(hidden=256), "int8").ByteSize() < 0.6 * full


def test_each_column_has_a_scale_of_its_own():
    """Else one large column leaves all others a few steps of the 256."""
    model = make_model()
    weights = numpy_helper.to_array(model.graph.initializer[0]).copy()
    weights[:, 0] *= 100
    model.graph.initializer[0].CopyFrom(numpy_helper.from_array(weights, "w1"))
    bias = numpy_helper.to_array(model.graph.initializer[1]).copy()
    bias[0] = -1e6  # so that nothing of the large column goes on
    model.graph.initializer[1].CopyFrom(numpy_helper.from_array(bias, "b1"))
    expected = run(model)

    moved = np.abs(run(lower_precision(model, "int8")) - expected)

    assert moved.max() < 0.1 * expected.std()


@pytest.mark.parametrize(
    ("level", "operators"),
    [
        ("basic", ["Gemm", "Relu", "Gemm"]),
        ("extended", ["FusedGemm", "Gemm"]),
        ("all", ["FusedGemm", "Gemm"]),
    ],
)
def test_optimization_does_something(level, operators):
    assert [node.op_type for node in optimize(make_model(), level).graph.node] == operators


def test_nothing_asked_for_is_nothing_done():
    model = make_model()

    assert optimize(lower_precision(model, "full"), "none") is model
    assert model == make_model()


@pytest.mark.parametrize("precision", ["float16", "int8"])
def test_double_weights_are_refused(precision):
    with pytest.raises(
        ExportRefusedError, match=f"no weights of single precision that {precision}"
    ):
        lower_precision(make_model(DOUBLE), precision)


def test_a_model_without_products_is_refused_for_int8():
    model = make_model()
    for node in (model.graph.node[0], model.graph.node[3]):
        node.op_type = "Add"
        del node.input[2:]

    with pytest.raises(ExportRefusedError, match="finds no matrix product"):
        lower_precision(model, "int8")


def test_float16_with_optimization_is_refused():
    options = ExportOptions(precision="float16", optimization="basic")

    with pytest.raises(ExportRefusedError, match='undoes precision="float16"'):
        TorchOnnxExporter().describe(None, None, None, options)
