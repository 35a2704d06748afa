"""What a Keras model takes and gives, found out by running it on 1, 2 and 3 rows."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from partwise.errors import ExportRefusedError
from partwise.exports.keras.models import call_model, input_shapes, silence
from partwise.exports.networks import (
    TRIED_ROWS,
    common_shape,
    describe_network,
    running,
    signature_of_features,
    signature_of_feeds,
)
from partwise.exports.protocol import ModelDescription
from partwise.models.export_options import ExportOptions
from partwise.models.signature import (
    Feeds,
    Outputs,
    Signature,
    Tensor,
    feeds_of_rows,
    take_rows,
    type_name,
)

_TRIED_FACTORS = (2.0, 0.5)
"""Of sizes that are free: whole ones, so that what was divisible stays so."""


def describe_model(
    model: Any, rows: pa.Table, feeds: Feeds | None, options: ExportOptions
) -> ModelDescription:
    """Return what a model takes and gives; it runs on 1, 2 and 3 rows for that.

    Sizes that a functional or sequential model leaves open, as that of a sequence, stay open if it
    runs on another size. A subclass of Model declares none: it takes the sizes of its inputs here.

    Args:
        model: A `keras.Model` on the backend tensorflow.
        rows: Rows of the partition. Without `feeds` they have the columns that the model's
            attribute `feature_names_in_` lists, which become one matrix of the dtype of its input.
        feeds: What the user's function made of rows: under the names of the model's inputs or of
            the arguments of its `call`, or in the order of its inputs.
        options: How to export.
    """
    dtypes = _float_dtypes(model)
    if "bfloat16" in dtypes:
        raise ExportRefusedError(
            f"{type_name(model)} computes in bfloat16, which onnxruntime does not on a CPU: build "
            'it with the dtype policy "float32" and the same weights.'
        )
    if feeds is None:
        draft = signature_of_features(model, dtypes, options.input_layout)
        some: Feeds = feeds_of_rows(draft, rows.slice(0, max(TRIED_ROWS)))
    else:
        draft, some = signature_of_feeds(model, _input_tensors(model, feeds), feeds), feeds
    tries = [_run_on(model, draft, take_rows(some, count)) for count in TRIED_ROWS]
    if any(map(_free_axes, draft.inputs)):
        stretched = other_sizes(model, draft, some)
        if stretched is None:
            draft = _with_sizes(draft, some)
        else:
            tries[-1] = _run_on(model, draft, stretched)
    outputs = [
        _output_tensor(model, name, [found.get(name) for found in tries]) for name in tries[0]
    ]
    return describe_network(draft, outputs, dtypes)


def other_sizes(model: Any, signature: Signature, feeds: Feeds) -> dict[str, np.ndarray] | None:
    """Return three rows of inputs with twice or half the sizes that are free.

    The model decides whether it is twice or half: what it has positions for, or what it pools, may
    have a largest or a smallest size. None: it runs on neither.
    """
    few = take_rows(feeds, max(TRIED_ROWS))
    for factor in _TRIED_FACTORS:
        changed = {}
        for tensor in signature.inputs:
            values = few[tensor.name]
            for axis in _free_axes(tensor):
                values = _resized(values, axis, factor)
            changed[tensor.name] = values
        if all(changed[name].shape == few[name].shape for name in changed):
            continue
        try:
            with silence():
                call_model(model, signature, list(changed.values()))
        except Exception:  # noqa: S112 (a user's model may raise anything: it was a question)
            continue
        return changed
    return None


def _resized(values: np.ndarray, axis: int, factor: float) -> np.ndarray:
    size = values.shape[axis]
    if not size:
        return np.zeros([n or 1 for n in values.shape], values.dtype)
    return np.asarray(values.take(np.arange(max(1, int(size * factor))) % size, axis))


def _free_axes(tensor: Tensor) -> list[int]:
    return [axis for axis, size in enumerate(tensor.shape) if axis and size is None]


def _with_sizes(signature: Signature, feeds: Feeds) -> Signature:
    inputs = tuple(
        tensor.model_copy(update={"shape": (None, *feeds[tensor.name].shape[1:])})
        for tensor in signature.inputs
    )
    return signature.model_copy(update={"inputs": inputs})


def _input_tensors(model: Any, feeds: Feeds) -> list[Tensor]:
    known = [*input_shapes(model, list(feeds)), *[None] * len(feeds)]
    return [
        _input_tensor(name, values, shape)
        for (name, values), shape in zip(feeds.items(), known, strict=False)
    ]


def _input_tensor(name: str, values: np.ndarray, declared: tuple[int | None, ...] | None) -> Tensor:
    if values.dtype.kind not in "biuf":
        raise ExportRefusedError(
            f"The input {name!r} is {values.dtype} of shape {values.shape}: a model that is "
            "exported takes arrays of numbers or booleans. Look text up before, in example_inputs=."
        )
    shape: tuple[int | None, ...] = (None, *values.shape[1:])
    if declared is not None and len(declared) == len(shape):
        is_free = (size is None for size in declared[1:])
        shape = (None, *(None if free else n for free, n in zip(is_free, shape[1:], strict=True)))
    return Tensor(name=name, dtype=str(values.dtype), shape=shape)


def _run_on(model: Any, signature: Signature, feeds: Feeds) -> Outputs:
    with running(model, feeds):
        return call_model(model, signature, list(feeds.values()))


def _output_tensor(model: Any, name: str, found: Sequence[np.ndarray | None]) -> Tensor:
    """Return the output's dtype, and as its shape what is the same for all tries."""
    where = f"The output {name!r} of {type_name(model)}"
    shape = common_shape(where, found)
    dtype = found[0].dtype if found[0] is not None else np.dtype("float32")
    if dtype.kind not in "biuf":
        raise ExportRefusedError(
            f"{where} is {dtype}: return numbers or booleans, of text the places in a list."
        )
    return Tensor(name=name, dtype=str(dtype), shape=shape)


def _float_dtypes(model: Any) -> set[str]:
    """Return the types that weights have and that layers compute in."""
    held = {str(variable.dtype) for variable in model.variables}
    # Keras' own way through layers within layers.
    computed = {str(layer.compute_dtype) for layer in model._flatten_layers()}
    return {name for name in held | computed if "float" in name}
