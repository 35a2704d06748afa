"""ONNX graphs in fewer bits, and rewritten for speed: what onnxruntime's own tools make of them.

Values differ after a change of precision, by how much nobody knows beforehand: such an export is
judged by how well it predicts.
"""

import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import numpy as np

from partwise.errors import ExportRefusedError
from partwise.exports.onnx.node_order import nodes_of
from partwise.exports.quiet import quietly

_LARGEST_BYTES = 2**31 - 1

_LEAST_FLOAT16 = 5.96e-8
"""To which onnxruntime's tool raises what is smaller and not zero."""


def lower_precision(model: Any, precision: Literal["full", "float16", "int8"]) -> Any:
    """Return a graph whose weights have fewer bits; its inputs and outputs stay as they are.

    Args:
        model: An `onnx.ModelProto` with its weights in it. It is not used afterwards.
        precision: "float16" computes in half precision between casts at the inputs and outputs;
            numbers beyond 65504 are cut to that. "int8" is dynamic quantization: weights of
            matrix products have 8 bits, of which 7 are used, those of each column by a scale of
            their own, and activations get theirs as they come.

    Raises:
        ExportRefusedError: It has no single-precision weights, or is larger than protobuf can hold.
    """
    if precision == "full":
        return model
    import onnx

    _check_size(model, f"precision={precision!r}")
    if all(tensor.data_type != onnx.TensorProto.FLOAT for tensor in model.graph.initializer):
        raise ExportRefusedError(
            f"The model has no weights of single precision that {precision} could make smaller; "
            'leave precision="full", or export model.float().'
        )
    # Types and shapes of what the graph was before; a tool that finds one believes it.
    model.graph.ClearField("value_info")
    return _to_float16(model) if precision == "float16" else _to_int8(model)


def as_float16(values: np.ndarray) -> np.ndarray:
    """Return what `lower_precision` makes of weights: neither zeros nor infinities of others."""
    limits = np.finfo(np.float16)
    least, most = _LEAST_FLOAT16, float(limits.max)
    sizes = np.where(np.isfinite(values), np.clip(np.abs(values), least, most), np.abs(values))
    return np.where(values == 0, values, np.copysign(sizes, values)).astype(np.float16)


def _to_float16(model: Any) -> Any:
    import onnx_ir

    with _tools():
        from onnxruntime.transformers.float16 import convert_float_to_float16

        halved = convert_float_to_float16(model, keep_io_types=True)
    # The casts of the inputs stand last in it, where ONNX wants nodes after what they need.
    sorted_model = onnx_ir.from_proto(halved)
    sorted_model.graph.sort()
    return onnx_ir.to_proto(sorted_model)


def _to_int8(model: Any) -> Any:
    import onnx

    opsets = {entry.domain: entry.version for entry in model.opset_import}
    with tempfile.TemporaryDirectory() as folder, _tools():
        from onnxruntime.quantization import QuantType, quantize_dynamic

        path = Path(folder, "model.onnx")
        # A CPU without VNNI adds two products in 16 bits: with weights of all 8 bits the sum may
        # not fit, and other values come out than on the CPU where the export was proved.
        quantize_dynamic(
            model,
            str(path),
            per_channel=True,
            weight_type=QuantType.QInt8,
            reduce_range=True,
        )
        quantized = onnx.load(path)
    _keep_domains(quantized, opsets)
    if not any(node.op_type.endswith("Integer") for node in quantized.graph.node):
        raise ExportRefusedError(
            "Dynamic quantization finds no matrix product or convolution with constant weights in "
            'the model: leave precision="full", or choose "float16".'
        )
    return quantized


def optimize(model: Any, level: Literal["none", "basic", "extended", "all"]) -> Any:
    """Return the graph as onnxruntime rewrites it before it runs it on a CPU.

    Args:
        model: An `onnx.ModelProto` with its weights in it.
        level: "basic" stays within ONNX' operators. "extended" takes onnxruntime's own, and "all"
            may lay data out for the CPU that it runs on here.

    Raises:
        ExportRefusedError: The model is larger than protobuf can hold.
    """
    if level == "none":
        return model
    import onnx
    import onnxruntime

    _check_size(model, f"optimization={level!r}")
    levels = onnxruntime.GraphOptimizationLevel
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = {
        "basic": levels.ORT_ENABLE_BASIC,
        "extended": levels.ORT_ENABLE_EXTENDED,
        "all": levels.ORT_ENABLE_ALL,
    }[level]
    options.intra_op_num_threads = 1
    options.log_severity_level = 3  # it warns that the file depends on this machine
    opsets = {entry.domain: entry.version for entry in model.opset_import}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.onnx")
        options.optimized_model_filepath = str(path)
        onnxruntime.InferenceSession(
            model.SerializeToString(deterministic=True),
            options,
            providers=["CPUExecutionProvider"],
        )
        optimized = onnx.load(path)
    optimized.ir_version = model.ir_version
    _keep_domains(optimized, opsets)
    return optimized


def _keep_domains(model: Any, opsets: dict[str, int]) -> None:
    """Declare the domains whose operators the model has, the default one as before, in order.

    onnxruntime lists all that it knows, in an order that differs between processes.
    """
    used = {"", *opsets} | {node.domain for node in nodes_of(model.graph)}
    used |= {node.domain for function in model.functions for node in function.node}
    versions = {entry.domain: entry.version for entry in model.opset_import}
    versions["" if "ai.onnx" not in versions else "ai.onnx"] = opsets[""]
    model.ClearField("opset_import")
    for domain in sorted(used):
        model.opset_import.add(domain=domain, version=versions.get(domain, opsets.get(domain, 1)))


def _check_size(model: Any, option: str) -> None:
    if (size := model.ByteSize()) > _LARGEST_BYTES:
        raise ExportRefusedError(
            f"{option} works on models up to {_LARGEST_BYTES:,} bytes; this one has {size:,}."
        )


@contextmanager
def _tools() -> Iterator[None]:
    """Let onnxruntime's tools find their modules, and keep to itself what they print.

    They import modules such as `fusion_utils` from a folder that they put on the path for good.
    They log advice, and numbers that float16 cuts off, to the root logger; what is cut off shows in
    the metric that the export is judged by.
    """
    import onnxruntime

    path = list(sys.path)
    sys.path.append(str(Path(onnxruntime.__file__).parent / "transformers"))
    try:
        with quietly():
            yield
    finally:
        sys.path[:] = path
