"""How Keras models are called with inputs by name: on the backend torch they are modules too."""

import inspect
from collections.abc import Callable, Sequence
from typing import Any

from partwise.errors import ExportRefusedError
from partwise.models.signature import Signature, type_name


def caller_of(model: Any, signature: Signature) -> Callable[[Sequence[Any]], Any]:
    """Return a function of the signature's inputs, in order, that calls the model for inference."""
    from keras import ops

    if signature.layout == "columns":
        return lambda columns: model(ops.concatenate(columns, axis=1), training=False)
    names = [tensor.name for tensor in signature.inputs]
    structure = getattr(model, "_inputs_struct", None)  # of functional models alone
    if structure is not None:
        return _caller_of_functional(model, structure, names)
    taken = inspect.signature(model.call).parameters
    has_one = not hasattr(model, "layers") or is_sequential(model)
    if has_one and len(names) != 1:
        raise ExportRefusedError(f"{type_name(model)} has one input; the inputs given are {names}.")
    # A name that `call` has in another place than the first is meant as that.
    if has_one or (len(names) == 1 and names[0] not in [*taken][1:]):
        return lambda inputs: model(inputs[0], training=False)
    if all(name in taken for name in names):
        return lambda inputs: model(**dict(zip(names, inputs, strict=True)), training=False)
    by_place = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    own = [each for each in taken.values() if each.kind in by_place and each.default is each.empty]
    if len(own) == len(names) and not set(names) & set(taken):
        return lambda inputs: model(*inputs, training=False)
    # What a method `call(self, inputs)` of several inputs takes.
    return lambda inputs: model(dict(zip(names, inputs, strict=True)), training=False)


def _caller_of_functional(
    model: Any, structure: Any, names: Sequence[str]
) -> Callable[[Sequence[Any]], Any]:
    from keras import tree

    if isinstance(structure, dict) and set(structure) == set(names):
        return lambda inputs: model(dict(zip(names, inputs, strict=True)), training=False)
    own = [each.name for each in tree.flatten(structure)]
    is_named = set(own) == set(names)
    # Keras sorts the inputs of a mapping by their keys: no order is the one that is meant.
    is_unordered = isinstance(structure, dict) and len(own) > 1
    if len(own) != len(names) or (is_unordered and not is_named):
        flat = isinstance(structure, dict) and len(structure) == len(own)
        raise ExportRefusedError(
            f"{type_name(model)} has the inputs {list(structure) if flat else own}; those given "
            f"are {list(names)}."
        )
    places = [names.index(name) for name in own] if is_named else range(len(own))
    return lambda inputs: model(
        tree.pack_sequence_as(structure, [inputs[place] for place in places]), training=False
    )


def is_sequential(model: Any) -> bool:
    """Tell whether a model is one layer after the other."""
    import keras

    return isinstance(model, keras.Sequential)
