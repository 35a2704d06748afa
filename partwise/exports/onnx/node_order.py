"""ONNX graphs put in order, so that equal graphs are equal bytes.

Writers draw names from counters that run on between models, and list nodes in the order of sets of
text, which differs between processes.
"""

from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from typing import Any

_GRAPH_NAME = "model"


def put_in_order(model: Any, inputs: Sequence[str], outputs: Sequence[str]) -> None:
    """Rename, sort and strip a graph in place: what it computes decides about its bytes.

    Nodes stand in the order in which a walk from the outputs needs them, and are named for it; what
    no output needs is left out. So are documentation, names of free sizes, shapes of what is in
    between, and domains without an operator. `inputs` and `outputs` are the names that those of the
    model, an `onnx.ModelProto` without functions, are to have, in order.
    """
    graph = model.graph
    _drop_identities(graph, {}, is_inner=False)
    names = dict(zip([value.name for value in graph.input], inputs, strict=True))
    names |= dict(zip([value.name for value in graph.output], outputs, strict=True))
    _Walk(names).arrange(graph)
    model.ClearField("doc_string")
    model.ClearField("metadata_props")
    versions = {entry.domain: entry.version for entry in model.opset_import}
    model.ClearField("opset_import")
    for domain in sorted({"", *(node.domain for node in nodes_of(graph))}):
        model.opset_import.add(domain=domain, version=versions[domain])


def nodes_of(graph: Any) -> Iterator[Any]:
    """Yield the nodes of a graph and of the graphs within it."""
    for node in graph.node:
        yield node
        for inner in inner_graphs(node):
            yield from nodes_of(inner)


def inner_graphs(node: Any) -> list[Any]:
    """Return the graphs that a node has, such as the branches of an If."""
    found = []
    for attribute in node.attribute:
        found += [attribute.g] if attribute.HasField("g") else []
        found += attribute.graphs
    return found


def _drop_identities(graph: Any, outer: Mapping[str, str], *, is_inner: bool) -> None:
    """Take out nodes that give what they get: which of two equal values has one is left to chance.

    One stays where ONNX wants an output to be a value of its own.
    """
    # Inner graphs see the values of outer ones, so what was replaced there is replaced here too.
    sources = dict(outer)
    for node in graph.node:
        if node.op_type == "Identity" and not node.domain:
            sources[node.output[0]] = node.input[0]

    def source(name: str) -> str:
        while name in sources:
            name = sources[name]
        return name

    kept = [node for node in graph.node if node.op_type != "Identity" or node.domain]
    for node in kept:
        _replace(node.input, [source(name) for name in node.input])
        for inner in inner_graphs(node):
            _drop_identities(inner, sources, is_inner=True)
    # An output of a graph has to be made in it, and each by a value of its own.
    free = {name for node in kept for name in node.output if name}
    if is_inner:
        free |= {value.name for value in graph.input}
    _replace(graph.node, kept)
    for place, value in enumerate(graph.output):
        name = source(value.name)
        if name in free:
            free.remove(name)
            value.name = name
        else:
            value.name = f"{name} as output {place}"
            graph.node.add(op_type="Identity", input=[name], output=[value.name])


class _Walk:
    """Goes through a graph and the graphs within it, and numbers what it meets."""

    def __init__(self, names: Mapping[str, str]) -> None:
        self._names = {"": "", **names}  # an input that is left out has no name
        self._taken = set(self._names.values())
        self._n_values = 0
        self._n_nodes = 0

    def arrange(self, graph: Any) -> None:
        nodes = _sorted_nodes(graph)
        for value in graph.input:
            value.name = self._name(value.name)
        for node in nodes:
            self._arrange_node(node)
        for value in graph.output:
            value.name = self._name(value.name)
        # Weights stand in the order in which the nodes take them: that of the file was left to
        # chance.
        places = {name: place for place, name in enumerate(self._names)}
        used = [tensor for tensor in graph.initializer if tensor.name in places]
        used.sort(key=lambda tensor: places[tensor.name])
        for tensor in used:
            tensor.name = self._names[tensor.name]
            tensor.ClearField("doc_string")
        _replace(graph.node, nodes)
        _replace(graph.initializer, used)
        for field in ("doc_string", "metadata_props", "value_info", "quantization_annotation"):
            graph.ClearField(field)
        graph.name = _GRAPH_NAME
        for value in (*graph.input, *graph.output):
            value.ClearField("doc_string")
            for axis in value.type.tensor_type.shape.dim:
                axis.ClearField("dim_param")

    def _arrange_node(self, node: Any) -> None:
        inputs = [self._name(name) for name in node.input]
        for inner in inner_graphs(node):
            self.arrange(inner)
        outputs = [self._name(name) for name in node.output]
        _replace(node.input, inputs)
        _replace(node.output, outputs)
        _replace(node.attribute, sorted(node.attribute, key=lambda attribute: attribute.name))
        node.ClearField("doc_string")
        node.ClearField("metadata_props")
        node.name = f"{node.op_type}_{self._n_nodes}"
        self._n_nodes += 1

    def _name(self, old: str) -> str:
        while old not in self._names:
            name = f"value_{self._n_values}"
            self._n_values += 1
            # An input or output may have been named like one of ours by the user.
            if name not in self._taken:
                self._names[old] = name
        return self._names[old]


def _sorted_nodes(graph: Any) -> list[Any]:
    """Return copies of the nodes that the outputs need, each after those that it needs itself."""
    makers = {name: place for place, node in enumerate(graph.node) for name in node.output if name}
    done: set[int] = set()
    found = []
    for value in graph.output:
        # A stack, since graphs are deeper than Python recurses.
        stack = [(makers[value.name], False)] if value.name in makers else []
        while stack:
            place, is_ready = stack.pop()
            if place in done:
                continue
            node = graph.node[place]
            if is_ready:
                done.add(place)
                found.append(deepcopy(node))
                continue
            stack.append((place, True))
            needed = [makers[name] for name in _needs(node) if name in makers]
            stack += [(maker, False) for maker in reversed(needed) if maker not in done]
    return found


def _needs(node: Any) -> Iterator[str]:
    """Yield the values that a node takes, and those that the graphs within it take from outside."""
    yield from node.input
    for inner in inner_graphs(node):
        for each in _sorted_nodes(inner):
            yield from _needs(each)
        yield from (value.name for value in inner.output)


def _replace(field: Any, values: Sequence[Any]) -> None:
    # Before the field is cleared: its own messages would be gone with it.
    kept = deepcopy(list(values))
    del field[:]
    field.extend(kept)
