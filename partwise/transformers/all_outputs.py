"""All outputs of a model without a head: also what its feature does not name, as BERT's pooled one.

Programs of torch give outputs by their place, and who has such a program of transformers writes
`hidden, pooled = program(tokens, mask)`.
"""

from collections.abc import Collection, Mapping
from copy import copy
from typing import Any

from partwise.tables.column_names import names_in_words
from partwise.transformers.features import Axes
from partwise.transformers.flat_model import prepared
from partwise.transformers.loading import needed_weights
from partwise.transformers.onnx_config import OnnxConfig

FORMATS_OF_ALL = ("torchscript", "neuron")


def with_all_outputs(model: Any, config: OnnxConfig, missing: Collection[str] = ()) -> OnnxConfig:
    """Return what a model takes and gives for "default", with every tensor that it gives.

    For another feature, and of what depends on weights that are missing, nothing is added.
    """
    if config.task != "default":
        return config
    more = _others(model, config)
    found = _extended(config, more)
    if missing and needed_weights(model, found, missing):
        found = copy(config)
        left_out = f"It gives no {names_in_words(list(more))}, whose weights are missing."
        found.notes = (*config.notes, left_out)
    return found


def _others(model: Any, config: OnnxConfig) -> dict[str, Axes]:
    """Return what a model gives besides the outputs of its configuration."""
    import torch

    sizes = config.sizes_for_export
    feeds = config.generate_dummy_inputs(sizes)
    tensors = {name: torch.tensor(values) for name, values in feeds.items()}
    with prepared(model, config), torch.no_grad():
        given = model(**tensors, **config.forward_arguments, return_dict=True)
    return {
        name: {0: "batch"} if value.shape[:1] == (sizes.batch,) else {}
        for name, value in given.items()
        if isinstance(value, torch.Tensor) and name not in config.outputs
    }


def _extended(config: OnnxConfig, more: Mapping[str, Axes]) -> OnnxConfig:
    class Extended(type(config)):  # type: ignore[misc]  # mypy wants a class that it can name
        @property
        def outputs(self) -> Mapping[str, Axes]:
            return {**super().outputs, **more}

    found = copy(config)
    found.__class__ = Extended
    return found
