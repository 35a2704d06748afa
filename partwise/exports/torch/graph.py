"""ONNX graphs as torch.onnx.export leaves them: what they say too much, and weights too large."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from partwise.models.onnx_files import SMALL_BYTES, messages_of


def move_weights(model: Any, path: Path, embedded_bytes: int) -> None:
    """Write large weights from the module's own memory, before they are copied into a protobuf.

    `save_onnx` leaves an `onnx_ir.Model` at that.
    """
    from onnx_ir import external_data

    sizes = [
        value.const_value.nbytes
        for value in model.graph.initializers.values()
        if value.const_value is not None
    ]
    if sum(size for size in sizes if size > SMALL_BYTES) > embedded_bytes:
        external_data.unload_from_model(
            model, path.parent, f"{path.name}.data", size_threshold_bytes=SMALL_BYTES
        )


def strip(model: Any) -> None:
    """Remove stack traces and the like, which name the writing machine's folders."""
    for message in messages_of(model):
        for name in ("metadata_props", "doc_string"):
            if name in message.DESCRIPTOR.fields_by_name:
                message.ClearField(name)


def name_axes(graph: Any, names: Mapping[str, Mapping[int, str]]) -> None:
    """Give the free axes of inputs and outputs names in place of torch's symbols for them.

    An axis that is not free keeps its size; one that is and has no name in `names` gets none. What
    the `onnx.GraphProto` says of the shapes between is removed, as it has the symbols too; readers
    infer it again.
    """
    graph.ClearField("value_info")
    for value in (*graph.input, *graph.output):
        wanted = names.get(value.name, {})
        for place, axis in enumerate(value.type.tensor_type.shape.dim):
            if place not in wanted:
                axis.ClearField("dim_param")
            elif not axis.HasField("dim_value"):
                axis.dim_param = wanted[place]
