"""Guards in ONNX files: nodes that fail where the file would predict otherwise than its model.

    count = ReduceSum(Cast(<what is refused>(x)))       how many values are
    guarded = Gather(Unsqueeze(x, 0), count)            of one element: out of range unless 0

So what the graph computes from are the input's own bits, and nothing can take the check away.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from partwise.exports.onnx.node_order import nodes_of
from partwise.models.guards import GUARDS_KEY, NODE_PREFIX, Guard, to_metadata
from partwise.models.signature import Signature

_OPSET = 11
"""The oldest that files are written with; not tried with older ones."""

_AXES_AS_INPUTS = 13
"""The opset since which Unsqueeze takes its axes as an input."""


def add_guards(file_path: str, guards: Sequence[Guard], signature: Signature) -> bool:
    """Put guards into an ONNX file, beside those that it has.

    False: its operators are too old for them, and it is as it was.
    """
    import onnx

    # Weights beside the file stay where they are, however large.
    model = onnx.load_model(file_path, load_external_data=False)
    versions = {entry.domain: entry.version for entry in model.opset_import}
    opset = versions.get("", versions.get("ai.onnx", 0))
    if opset < _OPSET:
        return False
    dtypes = {tensor.name: tensor.dtype for tensor in signature.inputs}
    for name in dict.fromkeys(guard.input for guard in guards):
        of_input = [guard for guard in guards if guard.input == name]
        _guard_input(model.graph, name, np.dtype(dtypes[name]), of_input, opset)
    entries = {entry.key: entry.value for entry in model.metadata_props}
    given = entries.pop(GUARDS_KEY, "[]")
    entries[GUARDS_KEY] = given[:-1] + ", " * (given != "[]") + to_metadata(guards)[1:]
    model.ClearField("metadata_props")
    for key, value in entries.items():
        model.metadata_props.add(key=key, value=value)
    Path(file_path).write_bytes(model.SerializeToString(deterministic=True))
    return True


def _guard_input(
    graph: Any, name: str, dtype: np.dtype[Any], guards: Sequence[Guard], opset: int
) -> None:
    # Guards of a second round stand before those of the first: `name` is what the file takes.
    taken = {value for node in nodes_of(graph) for value in (*node.input, *node.output)}
    prefix = f"{NODE_PREFIX}{name}"
    while any(value.startswith(prefix) for value in taken):
        prefix += "_"
    for node in nodes_of(graph):
        for place, value in enumerate(node.input):
            if value == name:
                node.input[place] = f"{prefix}_guarded"
    for value in graph.output:
        if value.name == name:
            raise ValueError(f"{name!r} is an input and an output")
    nodes, constants = _guard_nodes(name, prefix, _comparable(dtype), guards, opset)
    kept = list(graph.node)
    del graph.node[:]
    graph.node.extend([*nodes, *kept])
    graph.initializer.extend(constants)


def _guard_nodes(
    name: str, prefix: str, computed: np.dtype[Any], guards: Sequence[Guard], opset: int
) -> tuple[list[Any], list[Any]]:
    """Return the nodes and constants that pass an input on as `<prefix>_guarded`, or fail.

    `prefix` begins the names of all that is made; `computed` is the dtype in which values are
    compared with limits.
    """
    from onnx import helper, numpy_helper

    kind = helper.np_dtype_to_tensor_dtype(computed)
    nodes = [helper.make_node("Cast", [name], [f"{prefix}_values"], to=kind)]
    constants = []
    unsqueeze = helper.make_node("Unsqueeze", [name], [f"{prefix}_one"], axes=[0])
    if opset >= _AXES_AS_INPUTS:
        constants.append(numpy_helper.from_array(np.zeros(1, np.int64), f"{prefix}_first"))
        unsqueeze = helper.make_node("Unsqueeze", [name, f"{prefix}_first"], [f"{prefix}_one"])
    counts = []
    for place, guard in enumerate(guards):
        found, count = f"{prefix}_{place}", f"{prefix}_{place}_count"
        if guard.refuses == "nan":
            nodes.append(helper.make_node("IsNaN", [f"{prefix}_values"], [found]))
        else:
            limit = f"{found}_limit"
            constants.append(numpy_helper.from_array(np.array(guard.limit, computed), limit))
            operator = "Less" if guard.refuses == "below" else "Greater"
            nodes.append(helper.make_node(operator, [f"{prefix}_values", limit], [found]))
        whole = helper.np_dtype_to_tensor_dtype(np.dtype(np.int64))
        nodes.append(helper.make_node("Cast", [found], [f"{found}_int64"], to=whole))
        nodes.append(helper.make_node("ReduceSum", [f"{found}_int64"], [count], keepdims=0))
        counts.append(count)
    index = counts[0]
    for place, count in enumerate(counts[1:]):
        nodes.append(helper.make_node("Add", [index, count], [f"{prefix}_sum_{place}"]))
        index = f"{prefix}_sum_{place}"
    nodes += [
        unsqueeze,
        helper.make_node("Gather", [f"{prefix}_one", index], [f"{prefix}_guarded"], axis=0),
    ]
    for place, node in enumerate(nodes):
        node.name = f"{prefix}_{place}"
    return nodes, constants


def _comparable(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return what onnxruntime compares a dtype's numbers in without a change of them."""
    if dtype.kind == "f":
        return np.dtype(np.float64 if dtype.itemsize == 8 else np.float32)
    return np.dtype(np.int64)
