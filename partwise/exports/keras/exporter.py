"""Keras models as ONNX, by tf2onnx from the graph that TensorFlow traces of them.

Keras' own `model.export(path, format="onnx")` goes the same way, and names inputs and outputs after
layers, whose names Keras numbers again in each process.
"""

from collections.abc import Sequence
from dataclasses import replace
from importlib.util import find_spec
from typing import Any

import numpy as np
import pyarrow as pa

from partwise.errors import ExportRefusedError
from partwise.exports.keras.description import describe_model, other_sizes
from partwise.exports.keras.models import (
    backend_of,
    named_outputs,
    predict_with,
    silence,
)
from partwise.exports.networks import is_close, refusing
from partwise.exports.onnx.graph import refuse_names
from partwise.exports.onnx.node_order import nodes_of, put_in_order
from partwise.exports.onnx.quantization import lower_precision, optimize
from partwise.exports.protocol import ModelDescription
from partwise.exports.torch.description import describe_module
from partwise.exports.torch.exporter import TorchOnnxExporter
from partwise.exports.torch.keras_calls import caller_of
from partwise.exports.torch.modules import weights_of
from partwise.models.export_options import ExportOptions, refuse_native_options
from partwise.models.onnx_files import OnnxContent, open_session, save_onnx
from partwise.models.serdes import KerasSerde
from partwise.models.signature import Feeds, Outputs, Signature, Tensor

OPSETS = range(14, 19)
"""What tf2onnx 1.17 is tested with, and says so."""

_BATCH = "batch"

# TensorFlow holds the graph with its weights in one protobuf, which ends here.
_LARGEST_BYTES = 2**31 - 1


class KerasOnnxExporter:
    """Any `keras.Model` of Keras 3 on the backends tensorflow and torch; the rows' number is free.

    On the backend torch a model is a PyTorch module, and goes the way of those.

    Example:
        >>> exporter = KerasOnnxExporter()  # doctest: +SKIP
        >>> description = exporter.describe(model, rows, None, ExportOptions())  # doctest: +SKIP
    """

    def check(self, options: ExportOptions) -> None:
        """Refuse options that no model could be exported with."""
        TorchOnnxExporter().check(options)

    def describe(
        self, model: Any, rows: pa.Table, feeds: Feeds | None, options: ExportOptions
    ) -> ModelDescription:
        """See `describe_model`; raises what it raises.

        Raises:
            ExportRefusedError: Besides, it is not a model of Keras 3, or tf2onnx does not write the
                opset.
        """
        self.check(options)
        if backend_of(model) == "torch":
            return TorchOnnxExporter().describe(model, rows, feeds, options)
        if options.opset is not None and options.opset not in OPSETS:
            raise ExportRefusedError(
                f"opset={options.opset} is none that tf2onnx writes for Keras models: choose one "
                f"from {OPSETS[0]} to {OPSETS[-1]}, or leave it out."
            )
        described = describe_model(model, rows, feeds, options)
        refuse_names(described.signature.inputs, described.signature.outputs)
        return replace(described, opset=options.opset or OPSETS[-1])

    def write(
        self,
        model: Any,
        description: ModelDescription,
        sample: Feeds,
        options: ExportOptions,
        file_path: str,
    ) -> None:
        """Write the model as ONNX.

        Raises:
            ExportRefusedError: tf2onnx is not installed, or cannot translate the model; its reason
                is in the message.
        """
        if backend_of(model) == "torch":
            TorchOnnxExporter().write(model, description, sample, options, file_path)
            return
        graph = _translate(model, description)
        _refuse_unknown(graph, description)
        signature = description.signature
        put_in_order(
            graph,
            [tensor.name for tensor in signature.inputs],
            [tensor.name for tensor in signature.outputs],
        )
        _declare(graph.graph.input, signature.inputs, signature)
        _declare(graph.graph.output, signature.outputs, signature)
        _check_sizes(model, graph, description, sample)
        graph = optimize(lower_precision(graph, options.precision), options.optimization)
        save_onnx(graph, signature, file_path, options.embedded_bytes)

    def weights(self, model: Any) -> dict[str, np.ndarray]:
        """Return the model's weights, which are what the file is to hold."""
        if backend_of(model) == "torch":
            return weights_of(model)
        return {f"{n} {each.path}": each.numpy() for n, each in enumerate(model.weights)}

    def predict(self, model: Any, signature: Signature, feeds: Feeds) -> Outputs:
        """Return what the model itself gives in inference mode."""
        return predict_with(model, signature, feeds)


class KerasNativeExporter:
    """Models in the .keras format, proved to be what another process reads.

    The file holds no signature; it stands in signature.json beside it. It holds its date, so equal
    models do not give equal bytes. Layers of one's own have to be registered where it is read.
    """

    def check(self, options: ExportOptions) -> None:
        """Refuse options that no model could be exported with."""
        refuse_native_options(options)

    def describe(
        self, model: Any, rows: pa.Table, feeds: Feeds | None, options: ExportOptions
    ) -> ModelDescription:
        """See `describe_model`; raises what it raises."""
        self.check(options)
        describe = describe_module if backend_of(model) == "torch" else describe_model
        return describe(model, rows, feeds, options)

    def write(
        self,
        model: Any,
        description: ModelDescription,  # noqa: ARG002 (the protocol)
        sample: Feeds,  # noqa: ARG002 (the protocol)
        options: ExportOptions,  # noqa: ARG002 (the protocol)
        file_path: str,
    ) -> None:
        """Write the model with the serde of Keras."""
        KerasSerde().write(model, file_path)

    def predict(self, model: Any, signature: Signature, feeds: Feeds) -> Outputs:
        """Return what the model itself gives in inference mode."""
        return predict_with(model, signature, feeds)


def _translate(model: Any, description: ModelDescription) -> Any:
    """Return the model as an `onnx.ModelProto` whose inputs and outputs are in order."""
    import tensorflow as tf

    if find_spec("tf2onnx") is None:
        raise ExportRefusedError(
            "Exporting Keras models to ONNX needs tf2onnx: pip install 'partwise[tensorflow]'."
        )
    signature = description.signature
    size = sum(
        variable.value.dtype.size * int(np.prod(variable.shape)) for variable in model.weights
    )
    if size > _LARGEST_BYTES:
        raise ExportRefusedError(
            f"{signature.model_type} has {size:,} bytes of weights; TensorFlow's graphs, which "
            f"tf2onnx reads, end at {_LARGEST_BYTES:,}."
        )
    call = caller_of(model, signature)
    # TensorFlow allows other names than ONNX: those of the signature come later, by their order.
    specs = [
        tf.TensorSpec(tensor.shape, tensor.dtype, name=f"input_{place}")
        for place, tensor in enumerate(signature.inputs)
    ]

    def flat(*inputs: Any) -> list[Any]:
        return [tf.identity(value) for value in named_outputs(call(inputs)).values()]

    with refusing(f"tf2onnx does not translate {signature.model_type}"), silence():
        traced = tf.function(flat, autograph=False).get_concrete_function(*specs)
        return _convert(traced, len(specs), description.opset)


def _convert(traced: Any, n_inputs: int, opset: int | None) -> Any:
    """Return a function that TensorFlow traced as an `onnx.ModelProto`.

    As tf2onnx.convert.from_function does it, which takes constants that the function uses for
    inputs of it, as those of a Normalization layer.
    """
    import tensorflow as tf
    from tf2onnx import optimizer, tf_loader, tfonnx

    inputs = [value.name for value in traced.inputs[:n_inputs]]
    outputs = [value.name for value in traced.outputs]
    frozen = tf_loader.from_function(traced, inputs, outputs)
    with tf.device("/cpu:0"), tf.Graph().as_default() as graph:
        tf.import_graph_def(frozen, name="")
        converted = tfonnx.process_tf_graph(
            graph, opset=opset, input_names=inputs, output_names=outputs, continue_on_error=True
        )
        return optimizer.optimize_graph(converted).make_model("")


def _refuse_unknown(graph: Any, description: ModelDescription) -> None:
    """Refuse operators of TensorFlow that tf2onnx left as they were."""
    from onnx import defs

    opset = {entry.domain: entry.version for entry in graph.opset_import}
    unknown = sorted(
        {
            node.op_type
            for node in nodes_of(graph.graph)
            if node.domain not in opset
            or not defs.has(node.op_type, opset[node.domain], node.domain)
        }
    )
    if unknown:
        raise ExportRefusedError(
            f"tf2onnx does not translate {description.signature.model_type}: it knows nothing in "
            f"ONNX for TensorFlow's {', '.join(unknown)}. Compute that in another way, or before "
            "the model."
        )


def _declare(values: Sequence[Any], tensors: Sequence[Tensor], signature: Signature) -> None:
    """Write down the shapes of inputs or outputs: what is free by a name, the rows' as batch."""
    for value, tensor in zip(values, tensors, strict=True):
        axes = value.type.tensor_type.shape.dim
        if axes and axes[0].HasField("dim_value"):
            raise ExportRefusedError(
                f"The model {signature.model_type} fixes the number of rows: {value.name!r} has "
                f"{axes[0].dim_value} rows for any input. Build it with Input(shape=...) in "
                "place of batch_shape, and use keras.ops.shape(x)[0] in place of a number."
            )
        value.type.tensor_type.ClearField("shape")
        shape = value.type.tensor_type.shape
        for axis, size in enumerate(tensor.shape):
            if size is None:
                shape.dim.add(dim_param=f"{tensor.name}_{axis}" if axis else _BATCH)
            else:
                shape.dim.add(dim_value=size)


def _check_sizes(model: Any, graph: Any, description: ModelDescription, sample: Feeds) -> None:
    """Run the graph on other sizes than those of the data, where it leaves some open."""
    signature, tolerance = description.signature, description.tolerance
    feeds = other_sizes(model, signature, sample)
    if feeds is None:
        return
    shapes = {name: values.shape for name, values in feeds.items()}
    expected = predict_with(model, signature, feeds)
    session = open_session(OnnxContent(model=graph.SerializeToString()))
    what = f"The graph of {signature.model_type} does not run on inputs of the shapes {shapes}"
    with refusing(f"{what}, as the model does"):
        found = dict(zip(expected, session.run(list(expected), feeds), strict=True))
    for name, values in expected.items():
        if not is_close(found[name], values, tolerance):
            raise ExportRefusedError(
                f"The graph of {signature.model_type} gives another {name!r} than the model for "
                f"inputs of the shapes {shapes}: a size of the data is built into it. Compute with "
                "keras.ops.shape(x) in place of x.shape."
            )
