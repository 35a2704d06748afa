"""A model of transformers as one that takes tensors by name and gives tensors by name.

Keys and values of earlier tokens stand in an object of transformers, which no exported graph takes:
here they are tensors such as `past_key_values.0.key`, nested as their names say.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

from partwise.errors import ExportRefusedError
from partwise.tables.column_names import names_in_words
from partwise.transformers.onnx_config import OnnxConfig, OnnxSeq2SeqConfigWithPast

_PAST, _PRESENT = "past_key_values", "present"


def nested(tensors: Mapping[str, Any]) -> dict[str, Any]:
    """Return tensors with dots in their names as mappings in mappings.

    Example:
        >>> nested({"mask": 1, "past_key_values.0.key": 2})
        {'mask': 1, 'past_key_values': {'0': {'key': 2}}}
    """
    tree: dict[str, Any] = {}
    for name, tensor in tensors.items():
        *path, leaf = name.split(".")
        place = tree
        for part in path:
            place = place.setdefault(part, {})
        place[leaf] = tensor
    return tree


def flat_model(model: Any, config: OnnxConfig) -> Any:
    """Return a module of keyword arguments, nested as `nested` does, that gives its outputs so."""
    import torch

    class Flat(torch.nn.Module):  # type: ignore[misc]  # mypy does not read torch
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, **inputs: Any) -> dict[str, Any]:
            arguments = {**inputs, **_cached(inputs, config)}
            found = self.model(**arguments, **config.forward_arguments, return_dict=True)
            names = [name for name in config.outputs if not name.startswith(f"{_PRESENT}.")]
            if missing := [name for name in names if name not in found]:
                raise ExportRefusedError(
                    f"{type(model).__name__} gives no {names_in_words(missing)}: its outputs are "
                    f"{names_in_words(list(found))}."
                )
            given = {name: found[name] for name in names}
            if len(given) < len(config.outputs):
                given[_PRESENT] = _layers(found.past_key_values)
            return given

    flat = Flat()
    # Not eval(), which goes down into the caller's model, whose mode `prepared` gives back.
    flat.training = False
    return flat


def positional_model(model: Any, config: OnnxConfig) -> Any:
    """Return a module of the inputs in order that gives the outputs as a tuple, for a trace."""
    import torch

    class Positional(torch.nn.Module):  # type: ignore[misc]  # mypy does not read torch
        def __init__(self) -> None:
            super().__init__()
            self.flat = flat_model(model, config)

        def forward(self, *inputs: Any) -> tuple[Any, ...]:
            found = flattened(self.flat(**nested(dict(zip(config.inputs, inputs, strict=True)))))
            # A tensor that is given twice, or is an input, would be one in the graph as well.
            return tuple(found[name].clone() for name in config.outputs)

    positional = Positional()
    positional.training = False
    return positional


def flattened(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested tensors by their names with dots: the inverse of `nested`."""
    found: dict[str, Any] = {}
    for name, value in tree.items():
        if isinstance(value, Mapping):
            found |= flattened(value, f"{prefix}{name}.")
        else:
            found[f"{prefix}{name}"] = value
    return found


def run_model(
    model: Any, config: OnnxConfig, feeds: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """Return what the model itself gives, by the names and in the order of the outputs."""
    import torch

    # Copies, for a cache may be written to.
    tensors = {name: torch.tensor(np.asarray(values)) for name, values in feeds.items()}
    with prepared(model, config), torch.no_grad():
        found = flattened(flat_model(model, config)(**nested(tensors)))
    return {name: found[name].numpy(force=True) for name in config.outputs}


@contextmanager
def prepared(model: Any, config: OnnxConfig) -> Iterator[None]:
    """Put a model in evaluation mode with the values of `values_override`; leave it as it was."""
    from partwise.exports.torch.modules import evaluation_mode

    missing = object()
    before = {name: getattr(model.config, name, missing) for name in config.values_override}
    try:
        for name, value in config.values_override.items():
            setattr(model.config, name, value)
        with evaluation_mode(model):
            yield
    finally:
        for name, value in before.items():
            if value is missing:
                delattr(model.config, name)
            else:
                setattr(model.config, name, value)


def _cached(inputs: Mapping[str, Any], config: OnnxConfig) -> dict[str, Any]:
    """Return the past as the model takes it; for an encoder and a decoder, without the encoder."""
    from transformers import DynamicCache, EncoderDecoderCache
    from transformers.modeling_outputs import BaseModelOutput

    if _PAST not in inputs:
        return {}
    layers = inputs[_PAST].values()
    if not isinstance(config, OnnxSeq2SeqConfigWithPast):
        return {_PAST: DynamicCache([(layer["key"], layer["value"]) for layer in layers])}
    caches = [
        DynamicCache([(layer[side]["key"], layer[side]["value"]) for layer in layers])
        for side in ("decoder", "encoder")
    ]
    # What the encoder made of its tokens is in the cache already: only its shape is looked at.
    keys = caches[1].layers[0].keys
    mask = inputs.get("attention_mask")
    shape = (keys.shape[0], keys.shape[2]) if mask is None else mask.shape
    encoded = keys.new_zeros((*shape, config.config.d_model))
    return {
        _PAST: EncoderDecoderCache(*caches),
        "encoder_outputs": BaseModelOutput(last_hidden_state=encoded),
    }


def _layers(cache: Any) -> dict[str, Any]:
    """Return a cache's keys and values as mappings."""
    from transformers import EncoderDecoderCache

    def of(part: Any) -> list[dict[str, Any]]:
        return [{"key": layer.keys, "value": layer.values} for layer in part.layers]

    if isinstance(cache, EncoderDecoderCache):
        sides = zip(of(cache.self_attention_cache), of(cache.cross_attention_cache), strict=True)
        return {
            str(place): {"decoder": decoder, "encoder": encoder}
            for place, (decoder, encoder) in enumerate(sides)
        }
    return {str(place): layer for place, layer in enumerate(of(cache))}
