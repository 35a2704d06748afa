"""PyTorch modules as ONNX, by torch.onnx.export on a graph that torch.export captures."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from partwise.errors import ExportRefusedError
from partwise.exports.networks import refusing
from partwise.exports.onnx.graph import refuse_names
from partwise.exports.onnx.quantization import lower_precision, optimize
from partwise.exports.protocol import ModelDescription
from partwise.exports.torch.capture import capture, capturing
from partwise.exports.torch.description import describe_module
from partwise.exports.torch.graph import move_weights, name_axes, strip
from partwise.exports.torch.modules import run_module, weights_of
from partwise.exports.torch.operators import list_operators_once
from partwise.models.export_options import ExportOptions
from partwise.models.onnx_files import save_onnx
from partwise.models.signature import Feeds, Outputs, Signature

OPSET = 20
"""torch 2.13 translates to 18 and lifts that to this or any up to 25; onnxruntime knows it since
1.17."""

_BATCH = "batch"


class TorchOnnxExporter:
    """Any `torch.nn.Module` whose graph does not depend on its rows; the rows' number is free.

    Example:
        >>> exporter = TorchOnnxExporter()  # doctest: +SKIP
        >>> description = exporter.describe(model, rows, None, ExportOptions())  # doctest: +SKIP
    """

    def check(self, options: ExportOptions) -> None:
        """Refuse options that no model could be exported with."""
        if options.precision == "float16" and options.optimization != "none":
            raise ExportRefusedError(
                f'optimization={options.optimization!r} undoes precision="float16": onnxruntime '
                "optimizes for this CPU, which has no half precision. Choose one of them."
            )

    def describe(
        self, model: Any, rows: pa.Table, feeds: Feeds | None, options: ExportOptions
    ) -> ModelDescription:
        """See `describe_module`; raises what it raises."""
        self.check(options)
        described = describe_module(model, rows, feeds, options)
        refuse_names(described.signature.inputs, described.signature.outputs)
        return replace(described, opset=options.opset or OPSET)

    def write(
        self,
        model: Any,
        description: ModelDescription,
        sample: Feeds,
        options: ExportOptions,
        file_path: str,
    ) -> None:
        """Write the module as ONNX; what torch says of the source code is left out of the file.

        Raises:
            ExportRefusedError: torch cannot capture or translate it; its reason is in the message.
        """
        program = _translate(model, description, sample)
        # What is rewritten below needs its weights in the graph.
        if (options.precision, options.optimization) == ("full", "none"):
            move_weights(program.model, Path(file_path), options.embedded_bytes)
        graph = program.model_proto
        strip(graph)
        names = [tensor.name for tensor in (*graph.graph.input, *graph.graph.output)]
        name_axes(graph.graph, {name: {0: _BATCH} for name in names})
        _check(graph, description)
        # After the check, which is of what torch wrote.
        graph = optimize(lower_precision(graph, options.precision), options.optimization)
        save_onnx(graph, description.signature, file_path, options.embedded_bytes)

    def weights(self, model: Any) -> dict[str, np.ndarray]:
        """Return the module's parameters and buffers, which are what the file is to hold."""
        return weights_of(model)

    def predict(self, model: Any, signature: Signature, feeds: Feeds) -> Outputs:
        """Return what the module itself gives in evaluation mode."""
        return run_module(model, signature, feeds)


def _translate(model: Any, description: ModelDescription, sample: Feeds) -> Any:
    """Return the module as a `torch.onnx.ONNXProgram`."""
    import torch
    from onnx_ir.passes.common import NameFixPass

    list_operators_once()
    signature = description.signature
    captured = capture(model, signature, sample)
    with refusing(f"torch.onnx.export does not translate {signature.model_type}"), capturing(model):
        program = torch.onnx.export(
            captured,
            dynamo=True,
            input_names=[tensor.name for tensor in signature.inputs],
            output_names=[tensor.name for tensor in signature.outputs],
            opset_version=description.opset,
            verbose=False,
        )
    # torch names inputs and outputs without a look at the names that it gave values of its own.
    NameFixPass()(program.model)
    return program


def _check(graph: Any, description: ModelDescription) -> None:
    """Refuse a graph that has other inputs and outputs, or a fixed number of rows."""
    signature = description.signature
    for found, wanted in (
        (graph.graph.input, signature.inputs),
        (graph.graph.output, signature.outputs),
    ):
        names = [value.name for value in found]
        if names != [tensor.name for tensor in wanted]:
            raise ExportRefusedError(
                f"torch.onnx.export gives {signature.model_type} the inputs or outputs {names}, "
                f"not {[tensor.name for tensor in wanted]}."
            )
        for value in found:
            axes = value.type.tensor_type.shape.dim
            if not axes or axes[0].HasField("dim_value"):
                fixed = axes[0].dim_value if axes else "no"
                raise ExportRefusedError(
                    f"The module {signature.model_type} fixes the number of rows: {value.name!r} "
                    f"has {fixed} rows for any input. Use -1 or shape[0] in place of a number."
                )
    versions = {entry.domain: entry.version for entry in graph.opset_import}
    if versions.get("") != description.opset:
        raise ExportRefusedError(
            f"torch.onnx.export wrote opset {versions.get('')} where {description.opset} was asked "
            "for: leave opset out, or ask for one that this torch writes."
        )
