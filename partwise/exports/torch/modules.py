"""PyTorch modules as what exporters need: named inputs, a flat tuple of outputs, rows as the axis.

What torch.onnx.export, torch.jit.trace, torch.export.export and Neuron's trace share.
"""

import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

from partwise.errors import ExportRefusedError
from partwise.exports.torch import keras_calls
from partwise.exports.torch.folded_weights import folded_weights
from partwise.models.signature import Feeds, Outputs, Signature
from partwise.models.torch_programs import run_program


def caller_of(model: Any, signature: Signature) -> Callable[..., Any]:
    """Return a function of the signature's inputs, as tensors in order, that calls the module."""
    import torch

    keras = sys.modules.get("keras")
    if keras is not None and isinstance(model, keras.Model):
        # As a module, its forward says nothing of its inputs.
        call = keras_calls.caller_of(model, signature)
        return lambda *inputs: call(inputs)
    if signature.layout == "columns":
        return lambda *columns: model(torch.cat(columns, dim=1))
    names = [tensor.name for tensor in signature.inputs]
    taken = inspect.signature(model.forward).parameters
    kinds = inspect.Parameter
    by_name = (kinds.POSITIONAL_OR_KEYWORD, kinds.KEYWORD_ONLY)
    # The name of *inputs is none that a caller can give, and **inputs takes nothing by its place.
    has_names = all(name in taken and taken[name].kind in by_name for name in names)
    wants_names = all(
        each.kind in (kinds.KEYWORD_ONLY, kinds.VAR_KEYWORD) for each in taken.values()
    )
    if signature.layout == "custom" and (has_names or wants_names):
        return lambda *inputs: model(**dict(zip(names, inputs, strict=True)))
    return lambda *inputs: model(*inputs)


def named_outputs(found: Any) -> dict[str, Any]:
    """Return what a module gave as tensors by name.

    One tensor is "output"; a tuple or list has "output_0" and so on; a mapping, a named tuple and
    a dataclass have the names that they give. What is None is not output.
    """
    import torch

    entries: Mapping[str, Any]
    if isinstance(found, torch.Tensor):
        entries = {"output": found}
    elif isinstance(found, Mapping):
        entries = found
    elif hasattr(found, "_asdict"):
        entries = found._asdict()
    elif isinstance(found, tuple | list):
        entries = {f"output_{place}": value for place, value in enumerate(found)}
    elif is_dataclass(found):
        entries = {each.name: getattr(found, each.name) for each in fields(found)}
    else:
        entries = {"output": found}
    outputs = {str(name): value for name, value in entries.items() if value is not None}
    for name, value in outputs.items():
        if not isinstance(value, torch.Tensor):
            raise ExportRefusedError(
                f"The module's output {name!r} is a {type(value).__name__}: a module that is "
                "exported returns a tensor, or a tuple or mapping of tensors."
            )
        if value.is_nested or value.layout != torch.strided:
            raise ExportRefusedError(
                f"The module's output {name!r} is a nested or sparse tensor, of {value.layout}: "
                "return a dense one, as to_padded_tensor or to_dense makes it."
            )
    if not outputs:
        raise ExportRefusedError("The module returns nothing: it has to return a tensor.")
    return outputs


def flat_module(model: Any, signature: Signature) -> Any:
    """Return a module of the signature's inputs that gives the outputs as a tuple."""
    import torch

    class Flat(torch.nn.Module):  # type: ignore[misc]  # mypy does not read torch
        def __init__(self) -> None:
            super().__init__()
            self.module = model  # so that torch finds its weights

        def forward(self, *inputs: Any) -> tuple[Any, ...]:
            return tuple(named_outputs(call(*inputs)).values())

    call = caller_of(model, signature)
    flat = Flat()
    flat.training = False
    return flat


def run_module(model: Any, signature: Signature, feeds: Feeds) -> Outputs:
    """Return what the module itself gives, by the names of the signature's outputs."""
    with evaluation_mode(model):
        return run_program(flat_module(model, signature), signature, feeds)


def weights_of(model: Any) -> dict[str, np.ndarray]:
    """Return a module's parameters and buffers by name, as views, and what is folded of them.

    Of complex ones the pairs of numbers, parts of which a file has.
    """
    import torch

    weights = {}
    for name, values in (*model.named_parameters(), *model.named_buffers()):
        plain = values.detach().resolve_conj().resolve_neg()
        # Sparse ones, and of types that numpy has not, no file holds as they are.
        with suppress(TypeError):
            weights[name] = (torch.view_as_real(plain) if plain.is_complex() else plain).numpy()
    return weights | folded_weights(model)


@contextmanager
def evaluation_mode(model: Any) -> Iterator[None]:
    """Put a module in evaluation mode, without gradients; leave all as it was, random state too."""
    import torch

    modes = [(part, part.training) for part in model.modules()]
    try:
        # A module that draws in its forward would otherwise change what the user draws next.
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            model.eval()
            yield
    finally:
        for part, mode in modes:
            part.training = mode
