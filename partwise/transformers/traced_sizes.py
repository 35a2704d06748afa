"""Sizes of what is traced: the rows and tokens that a user chose, and how they are described."""

from dataclasses import replace
from typing import Any

from partwise.transformers.onnx_config import OnnxConfig
from partwise.transformers.options import TransformersOptions
from partwise.transformers.positions import most_tokens, parts_of_axes, takes_past
from partwise.transformers.sizes import Sizes

TOKEN_AXES = {"sequence", "encoder_sequence", "decoder_sequence"}


def traced_sizes(
    model: Any, config: OnnxConfig, options: TransformersOptions
) -> tuple[Sizes, int | None]:
    """Return the sizes to trace with, and the most tokens that the model takes; None: any number.

    Earlier tokens, where it takes the past, are among these.
    """
    sizes = config.sizes_for_export
    most = most_tokens(model)
    tokens = options.sequence_length
    if most is not None:
        tokens = max(1, min(tokens, most - _past(config, sizes)))
    fixed = replace(sizes, batch=options.batch_size, sequence=tokens, decoder_sequence=tokens)
    return fixed, most


def sizes_of_free_trace(config: OnnxConfig, sizes: Sizes, most: int | None) -> dict[str, Sizes]:
    """Return the traced sizes, and longer ones where the model takes tokens, and more of them."""
    found = {"traced sizes": sizes}
    tokens = 2 * sizes.sequence
    if most is not None:
        tokens = min(tokens, most - _past(config, sizes))
    if tokens > sizes.sequence and parts_of_axes(config) & TOKEN_AXES:
        found["longer than traced"] = replace(
            sizes, batch=sizes.batch + 1, sequence=tokens, decoder_sequence=tokens
        )
    return found


def sizes_in_words(config: OnnxConfig, sizes: Sizes, most: int | None) -> str:
    """Return the sizes of the axes that a model has, such as "2 rows of 128 tokens"."""
    parts, past = parts_of_axes(config), _past(config, sizes)
    details = []
    if "choice" in parts:
        details.append(f"{sizes.choices} choices")
    if parts & TOKEN_AXES:
        after = f" after {past} earlier ones" if past else ""
        limit = ", the most that it takes," if sizes.sequence + past == most else ""
        details.append(f"{sizes.sequence} tokens{after}{limit}")
    if "height" in parts:
        details.append(f"{sizes.height} x {sizes.width} pixels")
    rows = f"{sizes.batch} row{'s' if sizes.batch > 1 else ''}"
    return f"{rows} of {' and '.join(details)}" if details else rows


def _past(config: OnnxConfig, sizes: Sizes) -> int:
    """Return how many earlier tokens the inputs have."""
    return sizes.past if takes_past(config) else 0
