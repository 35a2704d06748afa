"""ONNX graphs of opsets 11 to 17, which only torch's former exporter writes: from a trace.

A trace has the path that one input took. For which sizes its graph is right, the proof finds out,
as it does of any other.
"""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from partwise.exports.networks import refusing
from partwise.exports.torch.capture import capturing
from partwise.models.torch_programs import tensors_of
from partwise.transformers.flat_model import positional_model, prepared
from partwise.transformers.onnx_config import LOWEST_OPSET, OnnxConfig
from partwise.transformers.patches import patched


def trace_onnx(model: Any, config: OnnxConfig, opset: int, folder: Path) -> Any:
    """Return a model's graph as an `onnx.ModelProto`, with the names that the configuration says.

    Its file passes through `folder`, which is on the disk that has room for the export.

    Raises:
        ExportRefusedError: torch has no operator of this opset for a part of the model.
    """
    import onnx
    import torch
    from transformers import masking_utils

    inputs = tensors_of(config.generate_dummy_inputs(config.sizes_for_export))
    # In a folder: beyond 2 GB torch gives each weight a file of its own.
    with TemporaryDirectory(dir=folder) as inner:
        path = Path(inner, "model.onnx")
        with refusing(
            f"torch does not write {type(model).__name__} for {config.task!r} with opset {opset}",
            f" Choose {LOWEST_OPSET} or more, or leave it out.",
        ):
            with (
                prepared(model, config),
                capturing(model),
                patched(
                    (torch.nn.functional, "scaled_dot_product_attention", attend_plainly),
                    # No row here holds several texts, which it looks for in a model without a mask.
                    (masking_utils, "find_packed_sequence_indices", lambda *_: None),
                    # Where it fails it prints the whole graph, past Python's own stdout.
                    (torch._C, "_jit_onnx_log", lambda *_: None),
                ),
                torch.no_grad(),
            ):
                torch.onnx.export(
                    positional_model(model, config),
                    inputs,
                    path,
                    input_names=list(config.inputs),
                    output_names=list(config.outputs),
                    dynamic_axes={**config.inputs, **config.outputs},
                    opset_version=opset,
                    dynamo=False,
                )
            # It may have written whole numbers where an old operator takes none, as T5's at 11.
            onnx.checker.check_model(path, full_check=True)
        return onnx.load(path)


def attend_plainly(
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,  # noqa: ARG001 (torch's; models are in evaluation mode)
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    """Return what torch's scaled_dot_product_attention gives, which no opset before 14 has.

    Nor has a later one what torch gives for a token that sees none: zeros.
    """
    import torch

    if enable_gqa:
        shared = query.shape[-3] // key.shape[-3]
        key, value = (each.repeat_interleave(shared, -3) for each in (key, value))
    scores = query @ key.transpose(-2, -1) * (scale or int(query.shape[-1]) ** -0.5)
    if is_causal:
        attn_mask = torch.arange(key.shape[-2]) <= torch.arange(query.shape[-2])[:, None]
    if attn_mask is None:
        return scores.softmax(-1) @ value
    if attn_mask.dtype != torch.bool:
        return (scores + attn_mask).softmax(-1) @ value
    shares = scores.masked_fill(~attn_mask, torch.finfo(scores.dtype).min).softmax(-1)
    return shares.masked_fill(~attn_mask, 0.0) @ value
