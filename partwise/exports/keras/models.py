"""Keras models as what exporters need: named inputs, outputs by name, rows as the first axis."""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Literal, cast

import numpy as np

from partwise.errors import ExportRefusedError
from partwise.exports.quiet import quietly
from partwise.exports.torch.keras_calls import caller_of, is_sequential
from partwise.exports.torch.modules import run_module
from partwise.models.signature import Feeds, Outputs, Signature, type_name

INSTEAD_OF_KERAS_2 = (
    "save a model of Keras 2 (tf.keras, tf_keras) as .keras or .h5 and load that with Keras 3; put "
    "the folder of a SavedModel into a model as "
    "keras.layers.TFSMLayer(folder, call_endpoint='serving_default')"
)

_ERROR_STREAM = 2


def backend_of(model: Any) -> Literal["tensorflow", "torch"]:
    """Return what computes a model."""
    import keras

    if not hasattr(keras, "version") or int(keras.version().split(".")[0]) < 3:
        raise ExportRefusedError(
            f"Keras {keras.__version__} is too old: install keras>=3.13.2, which reads models that "
            "Keras 2 saved as .keras or .h5."
        )
    if not isinstance(model, keras.Model):
        raise ExportRefusedError(
            f"A {type_name(model)} is not a model of Keras 3: {INSTEAD_OF_KERAS_2}."
        )
    name = keras.backend.backend()
    if name not in ("tensorflow", "torch"):
        raise ExportRefusedError(
            f"Keras runs on {name} in this process, whose graphs are not exported: set "
            "KERAS_BACKEND=tensorflow or torch for the export; the .keras file of a model is the "
            "same for all of them."
        )
    return cast('Literal["tensorflow", "torch"]', name)


def input_shapes(model: Any, names: Sequence[str]) -> list[tuple[int | None, ...]]:
    """Return the shapes that a model declares for inputs of these names; some declare none."""
    from keras import tree

    structure = getattr(model, "_inputs_struct", None)
    if structure is None:
        declared = getattr(model, "inputs", None) if is_sequential(model) else None
        return [tuple(each.shape) for each in declared or ()]
    if isinstance(structure, dict) and set(structure) == set(names):
        return [tuple(structure[name].shape) for name in names]
    flat = tree.flatten(structure)
    own = {each.name: tuple(each.shape) for each in flat}
    if set(own) == set(names):
        return [own[name] for name in names]
    return [tuple(each.shape) for each in flat]


def named_outputs(found: Any) -> dict[str, Any]:
    """Return what a model gave as tensors by name.

    One tensor is "output"; a tuple or list has "output_0" and so on, as Keras numbers the names of
    layers again in each process; a mapping has the names that it gives. What is None is not output.
    """
    import tensorflow as tf

    entries: Mapping[str, Any]
    if isinstance(found, Mapping):
        entries = found
    elif isinstance(found, tuple | list):
        entries = {f"output_{place}": value for place, value in enumerate(found)}
    else:
        entries = {"output": found}
    outputs = {str(name): value for name, value in entries.items() if value is not None}
    for name, value in outputs.items():
        if not isinstance(value, tf.Tensor | tf.Variable):
            raise ExportRefusedError(
                f"The model's output {name!r} is a {type(value).__name__}: a model that is "
                "exported returns a tensor, or a list or dict of tensors."
            )
    if not outputs:
        raise ExportRefusedError("The model returns nothing: it has to return a tensor.")
    return outputs


def predict_with(model: Any, signature: Signature, feeds: Feeds) -> Outputs:
    """Return what the model itself gives in inference mode, by the names of its outputs.

    Of no rows it gives none, in the shape that one row has.
    """
    if backend_of(model) == "torch":
        return run_module(model, signature, feeds)
    ordered = [np.asarray(feeds[tensor.name], tensor.dtype) for tensor in signature.inputs]
    n_rows = len(ordered[0])
    if not n_rows:
        ordered = [np.zeros((1, *values.shape[1:]), values.dtype) for values in ordered]
    found = call_model(model, signature, ordered)
    if list(found) != (names := [tensor.name for tensor in signature.outputs]):
        raise ExportRefusedError(
            f"{signature.model_type} gives the outputs {list(found)} for some rows and {names} for "
            "others: return the same for all."
        )
    return {name: values[:n_rows] for name, values in found.items()}


def call_model(model: Any, signature: Signature, inputs: Sequence[np.ndarray]) -> Outputs:
    """Return what the model gives for inputs in the signature's order, of one row or more."""
    import tensorflow as tf

    with tf.device("/cpu:0"):
        tensors = [tf.constant(values) for values in inputs]
        found = named_outputs(caller_of(model, signature)(tensors))
        return {name: value.numpy() for name, value in found.items()}


@contextmanager
def silence() -> Iterator[None]:
    """Keep to themselves what TensorFlow and tf2onnx say of a translation.

    TensorFlow's own parts log past Python's streams. tf2onnx sets an environment variable for them
    when it is imported, and logs as an error what it goes on without: what comes out is checked.
    """
    # First, for it lets no other thread do so meanwhile.
    with quietly():
        level = os.environ.get("TF_CPP_MIN_LOG_LEVEL")
        kept = os.dup(_ERROR_STREAM)
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, _ERROR_STREAM)
        os.close(nowhere)
        try:
            yield
        finally:
            os.dup2(kept, _ERROR_STREAM)
            os.close(kept)
            if level is None:
                os.environ.pop("TF_CPP_MIN_LOG_LEVEL", None)
            else:
                os.environ["TF_CPP_MIN_LOG_LEVEL"] = level
