"""Single changes to an ONNX file outside its trees: weights, constants, attributes, its opset."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

WEIGHT_KINDS = ("weight 1 ulp", "weight 1e-3", "weight sign", "weight zero")
KINDS = (*WEIGHT_KINDS, "embedding row", "constant", "attribute", "opset")
_SMALL = 4
"""Elements up to which numbers are constants of a graph rather than weights."""


def tensors_of(model: onnx.ModelProto) -> list[tuple[str, Any]]:
    """Return every constant outside the trees, with a name: a TensorProto that can be changed."""
    found = [(tensor.name, tensor) for tensor in model.graph.initializer]
    for node in model.graph.node:
        if node.op_type in ("Constant", "ConstantOfShape", "LabelEncoder"):
            found += [
                (f"{node.op_type} {node.output[0]} {attribute.name}", attribute.t)
                for attribute in node.attribute
                if attribute.type == onnx.AttributeProto.TENSOR
            ]
    return [(name, tensor) for name, tensor in found if np.prod(tensor.dims)]


def changes(
    model: onnx.ModelProto, random: np.random.Generator
) -> Iterator[tuple[str, str, onnx.ModelProto]]:
    """Yield a kind, a place and a changed copy, without end, of each kind in turn."""
    sizes = [(np.prod(tensor.dims), tensor.data_type) for _, tensor in tensors_of(model)]
    floats = (onnx.TensorProto.FLOAT, onnx.TensorProto.DOUBLE)
    weights = [at for at, (size, kind) in enumerate(sizes) if kind in floats and size > _SMALL]
    embeddings = _embeddings(model)
    kinds = random.permutation(KINDS).tolist()
    while True:
        for kind in kinds:
            places = list(range(len(sizes)))
            if kind in WEIGHT_KINDS:
                places = weights
            elif kind == "embedding row":
                places = embeddings
            elif kind == "constant":
                places = [at for at in places if at not in weights]
            elif kind == "attribute":
                places = list(range(len(_attributes(model))))
            if not places and kind != "opset":
                continue
            changed = onnx.ModelProto()
            changed.CopyFrom(model)
            if kind == "opset":
                where = _change_opset(changed, random)
            elif kind == "attribute":
                where = _change_attribute(*_attributes(changed)[int(random.choice(places))], random)
            else:
                name, tensor = tensors_of(changed)[int(random.choice(places))]
                values = numpy_helper.to_array(tensor).copy()
                what = _change(kind, values, random)
                tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))
                where = f"{name}{what}"
            yield kind, where, changed


def _embeddings(model: onnx.ModelProto) -> list[int]:
    """Return the places of tables whose rows a Gather takes."""
    tables = {node.input[0] for node in model.graph.node if node.op_type == "Gather"}
    floats = (onnx.TensorProto.FLOAT, onnx.TensorProto.DOUBLE)
    return [
        place
        for place, (name, tensor) in enumerate(tensors_of(model))
        if name in tables and tensor.data_type in floats and len(tensor.dims) == 2
    ]


def _change(kind: str, values: np.ndarray, random: np.random.Generator) -> str:
    """Change one element of an array, or one row, in place, and say which and how."""
    if kind == "embedding row":
        row = int(random.integers(len(values)))
        values[row] += (0.1 * random.normal(size=values.shape[1:])).astype(values.dtype)
        return f"[{row}]"
    place = tuple(int(random.integers(size)) for size in values.shape)
    old = values[place]
    values[place] = _other(old, kind, values.dtype, random)
    return f"{list(place)}: {old!r} to {values[place]!r}"


def _other(old: Any, kind: str, dtype: np.dtype[Any], random: np.random.Generator) -> Any:
    if dtype.kind == "b":
        return not old
    if dtype.kind in "iu":
        return old + 1
    if dtype.kind != "f":
        return (old if isinstance(old, bytes) else str(old).encode()) + b"?"
    sign = random.choice([-1.0, 1.0])
    if kind == "constant":
        kind = str(random.choice(WEIGHT_KINDS))
    match kind:
        case "weight 1 ulp":
            return np.nextafter(old, dtype.type(sign * np.inf))
        case "weight 1e-3":
            return old * dtype.type(1 + sign * 1e-3)
        case "weight sign":
            return -old
    return dtype.type(0)


def _attributes(model: onnx.ModelProto) -> list[tuple[Any, Any]]:
    """Return the attributes that are numbers, of all nodes but the trees."""
    kinds = (onnx.AttributeProto.INT, onnx.AttributeProto.FLOAT, onnx.AttributeProto.INTS)
    return [
        (node, attribute)
        for node in model.graph.node
        if node.op_type != "TreeEnsemble"
        for attribute in node.attribute
        if attribute.type in kinds and (attribute.type != kinds[2] or len(attribute.ints))
    ]


def _change_attribute(node: Any, attribute: Any, random: np.random.Generator) -> str:
    if attribute.type == onnx.AttributeProto.FLOAT:
        attribute.f *= float(random.choice([-1.0, 0.0, 1.01, 2.0]))
    elif attribute.type == onnx.AttributeProto.INT:
        attribute.i += int(random.choice([-1, 1]))
    else:
        attribute.ints[int(random.integers(len(attribute.ints)))] += 1
    return f"{node.op_type} {node.output[0]} {attribute.name}"


def _change_opset(model: onnx.ModelProto, random: np.random.Generator) -> str:
    entry = model.opset_import[int(random.integers(len(model.opset_import)))]
    old = entry.version
    entry.version = max(1, old + int(random.choice([-3, -1, 1])))
    return f"{entry.domain or 'ai.onnx'} {old} to {entry.version}"
