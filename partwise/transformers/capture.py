"""ONNX graphs of models of transformers, captured by that library's own exporter.

It is `transformers.exporters`, which upstream calls experimental: its versions are bounded in the
extra "transformers".
"""

from pathlib import Path
from typing import Any

from partwise.exports.networks import refusing
from partwise.exports.onnx.quantization import lower_precision
from partwise.exports.torch.capture import capturing
from partwise.exports.torch.graph import move_weights, name_axes, strip
from partwise.exports.torch.operators import list_operators_once
from partwise.models.export_options import EMBEDDED_BYTES
from partwise.models.onnx_files import save_onnx
from partwise.models.signature import Signature
from partwise.models.torch_programs import tensors_of
from partwise.transformers.flat_model import flat_model, nested, prepared
from partwise.transformers.onnx_config import LOWEST_OPSET, OnnxConfig
from partwise.transformers.options import TransformersOptions
from partwise.transformers.patches import patched
from partwise.transformers.traced_onnx import trace_onnx


def write_onnx(
    model: Any,
    config: OnnxConfig,
    signature: Signature,
    options: TransformersOptions,
    opset: int,
    file_path: Path,
) -> None:
    """Write a model as ONNX, with its signature in the metadata.

    Large weights stand beside the file in `<file name>.data`.

    Raises:
        ExportRefusedError: The library's exporter does not take it; its reason is in the message.
    """
    import onnx_ir

    embedded = 0 if options.external_data == "always" else EMBEDDED_BYTES
    if opset < LOWEST_OPSET:
        graph = trace_onnx(model, config, opset, file_path.parent)
    else:
        program = capture_onnx(model, config, opset)
        # `lower_precision` needs the weights in the graph.
        if options.quantize == "none":
            move_weights(program, file_path, embedded)
        graph = onnx_ir.to_proto(program)
        # With its weights: the graph has copies of those that were not moved.
        del program
    strip(graph)
    name_axes(graph.graph, {**config.inputs, **config.outputs})
    graph = lower_precision(graph, "full" if options.quantize == "none" else options.quantize)
    save_onnx(graph, signature, str(file_path), embedded)


def capture_onnx(model: Any, config: OnnxConfig, opset: int) -> Any:
    """Return a model's graph as an `onnx_ir.Model`, with the names that the configuration says.

    Raises:
        ExportRefusedError: The library's exporter does not take it; its reason is in the message.
    """
    import torch
    from transformers.exporters import OnnxConfig as GraphOptions
    from transformers.exporters import OnnxExporter

    list_operators_once()
    feeds = config.generate_dummy_inputs(config.sizes_for_export)
    tensors = dict(zip(feeds, tensors_of(feeds), strict=True))
    free = {
        name: dict.fromkeys(axes, torch.export.Dim.AUTO) for name, axes in config.inputs.items()
    }
    options = GraphOptions(dynamic_shapes=nested(free), opset_version=opset)
    what = f"transformers does not export {type(model).__name__} for {config.task!r}"
    with refusing(what), prepared(model, config), capturing(model), patched():
        program, _ = OnnxExporter().export_program(
            flat_model(model, config), nested(tensors), options
        )
    return program
