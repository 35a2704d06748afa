"""The ONNX graph of an XGBoost model: the trees by onnxmltools, and what stands around them."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from partwise.exports.xgboost.trees import (
    CLASSIFIERS,
    LOG_LINK,
    LONGEST_PATH,
    base_margins,
    class_count,
    classes_of_trees,
    learner_of,
)
from partwise.models.signature import MATRIX, Signature, Tensor

OPSETS = range(9, 16)
"""What onnxmltools (1.16) takes, and the operators used here are the same in."""

_TREE_OPSET = 2
"""Of ai.onnx.ml: the first in which LabelEncoder gives numbers for text."""

_FLOAT, _INT64 = 1, 7
"""Types as ONNX numbers them."""


def onnx_of_booster(booster: Any, signature: Signature, opset: int) -> Any:
    """Return an `onnx.ModelProto` with the inputs and outputs of a signature.

    Args:
        booster: Of the trees that count, with an objective that `XGBoostOnnxExporter` allows.
        signature: Of any layout.
        opset: Of ONNX' default operators, one of `OPSETS`.
    """
    from onnx import helper

    learner = learner_of(booster)
    converted = _convert(booster, learner, opset)
    (trees,) = (n for n in converted.graph.node if n.op_type.startswith("TreeEnsemble"))
    _begin_with_base(trees, learner)
    graph = _Graph(signature)
    scores = graph.trees(trees, graph.whole_codes(graph.matrix(), booster.feature_types or []))
    if (objective := learner["objective"]["name"]) in CLASSIFIERS:
        graph.classify(scores, objective)
    else:
        graph.regress(scores, objective)
    made = helper.make_graph(
        graph.nodes,
        "xgboost",
        [_value_info(tensor) for tensor in signature.inputs],
        [_value_info(tensor) for tensor in signature.outputs],
        graph.initializers,
    )
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("ai.onnx.ml", _TREE_OPSET)]
    return helper.make_model(made, opset_imports=opsets, ir_version=converted.ir_version)


def _convert(booster: Any, learner: dict[str, Any], opset: int) -> Any:
    """Return what onnxmltools makes of a Booster, as an `onnx.ModelProto`."""
    import xgboost
    from onnxmltools.convert.common.data_types import FloatTensorType
    from onnxmltools.convert.xgboost.convert import convert

    copy = booster.copy()
    n_features = copy.num_features()
    copy.feature_names = [f"f{place}" for place in range(n_features)]
    # Of types like "int", XGBoost dumps thresholds as whole numbers, whatever they are.
    kinds = booster.feature_types or [""] * n_features
    copy.feature_types = ["c" if kind == "c" else "float" for kind in kinds]
    copy.set_attr(best_iteration=None, scikit_learn=None)
    is_classifier = learner["objective"]["name"] in CLASSIFIERS
    wrapper = xgboost.XGBClassifier() if is_classifier else xgboost.XGBRegressor()
    wrapper.load_model(copy.save_raw())
    # It takes the logarithm of base scores of 0 and 1, which it has no use for here.
    with np.errstate(divide="ignore"), _sets_of_categories():
        return convert(
            wrapper,
            name="xgboost",
            initial_types=[(MATRIX, FloatTensorType([None, n_features]))],
            target_opset=opset,
        )


def _begin_with_base(trees: Any, learner: dict[str, Any]) -> None:
    """Add the base to the leaves of each class's first tree, and say which class leaves are of.

    XGBoost begins its sum with the base, onnxruntime ends with it. In float32 that matters: labels
    of 1e6 +- 3 made a model whose leaves mend what was rounded away before; summed up by
    themselves, those of 1,000 trees gave 28 more.
    """
    kind = "class" if trees.op_type == "TreeEnsembleClassifier" else "target"
    lists = {a.name: a.ints or a.floats for a in trees.attribute}
    places = np.array(lists[f"{kind}_treeids"], dtype=np.int64)
    weights = np.array(lists[f"{kind}_weights"], dtype=np.float32)
    classes = classes_of_trees(places, learner)
    margins = np.broadcast_to(base_margins(learner), max(1, class_count(learner)))
    for number, margin in enumerate(margins):
        first = classes == number
        first &= places == places[first].min()
        weights[first] += margin
    _set_attribute(trees, "base_values", [])
    _set_attribute(trees, f"{kind}_weights", weights.tolist())
    _set_attribute(trees, f"{kind}_ids", classes.tolist())


@contextmanager
def _sets_of_categories() -> Iterator[None]:
    """Have onnxmltools (1.16) write sets of many categories.

    It makes a chain of nodes of a set, all with the same subtree below them, and then numbers nodes
    along every path: of two features with 50 categories each, three trees took it minutes. With
    each node numbered once the numbers are the same. It also calls itself for each node of a path.
    """
    from onnxmltools.convert.xgboost.operator_converters.XGBoost import XGBConverter

    converter: Any = XGBConverter
    own, own_limit = converter.__dict__["_remap_nodeid"], sys.getrecursionlimit()
    converter._remap_nodeid = staticmethod(_node_numbers)
    # Both changes hold for the whole process, so they are taken back whatever happens.
    sys.setrecursionlimit(own_limit + LONGEST_PATH)
    try:
        yield
    finally:
        sys.setrecursionlimit(own_limit)
        converter._remap_nodeid = own


def _node_numbers(root: dict[str, Any]) -> dict[int, int]:
    """Return the place of each node in the order that the tree is read in, parents first."""
    numbers: dict[int, int] = {}
    waiting = [root]
    while waiting:
        node = waiting.pop()
        if node["nodeid"] not in numbers:
            numbers[node["nodeid"]] = len(numbers)
            waiting.extend(reversed(node.get("children", [])))
    return numbers


def _set_attribute(node: Any, name: str, values: list[Any]) -> None:
    from onnx import helper

    others = [attribute for attribute in node.attribute if attribute.name != name]
    del node.attribute[:]
    node.attribute.extend(others)
    if values:
        node.attribute.append(helper.make_attribute(name, values))


def _value_info(tensor: Tensor) -> Any:
    from onnx import TensorProto, helper

    kinds = {
        "float32": TensorProto.FLOAT,
        "int64": TensorProto.INT64,
        "string": TensorProto.STRING,
    }
    return helper.make_tensor_value_info(tensor.name, kinds[tensor.dtype], tensor.shape)


class _Graph:
    """Nodes and constants from the inputs of a signature to its outputs.

    Args:
        signature: What the graph takes and gives. No name within it is that of an input.
    """

    def __init__(self, signature: Signature) -> None:
        self.nodes: list[Any] = []
        self.initializers: list[Any] = []
        self._signature = signature
        self._prefix = "_"
        while any(tensor.name.startswith(self._prefix) for tensor in signature.inputs):
            self._prefix += "_"

    def add(self, operator: str, inputs: list[str], outputs: list[str], **attributes: Any) -> str:
        """Add a node of ONNX' default operators and return its first output."""
        from onnx import helper

        self.nodes.append(helper.make_node(operator, inputs, outputs, **attributes))
        return outputs[0]

    def inner(self, name: str) -> str:
        """Return a name within the graph."""
        return self._prefix + name

    def constant(self, name: str, value: Any) -> str:
        """Add a constant, and return its name."""
        from onnx import numpy_helper

        full = self.inner(name)
        self.initializers.append(numpy_helper.from_array(np.asarray(value), full))
        return full

    def matrix(self) -> str:
        """Add what makes one matrix of the inputs, and return its name."""
        if self._signature.layout != "columns":
            return self._signature.inputs[0].name
        columns = []
        pairs = zip(self._signature.inputs, self._signature.features, strict=True)
        for place, (tensor, feature) in enumerate(pairs):
            name = tensor.name
            if tensor.dtype == "string":
                name = self.add(
                    "LabelEncoder",
                    [name],
                    [self.inner(f"codes_{place}")],
                    domain="ai.onnx.ml",
                    keys_strings=list(feature.categories or ()),
                    values_floats=[float(code) for code in range(len(feature.categories or ()))],
                    default_float=float("nan"),
                )
            columns.append(name)
        return self.add("Concat", columns, [self.inner("matrix")], axis=1)

    def whole_codes(self, matrix: str, kinds: list[str]) -> str:
        """Add what cuts codes of categories to whole numbers, as XGBoost itself does."""
        is_code = np.array([[kind == "c" for kind in kinds]], dtype=bool)
        if not is_code.any():
            return matrix
        # Floor suffices: a negative code is in no set, cut or floored.
        whole = self.add("Floor", [matrix], [self.inner("whole")])
        chosen = [self.constant("is_code", is_code), whole, matrix]
        return self.add("Where", chosen, [self.inner("features")])

    def trees(self, node: Any, matrix: str) -> str:
        """Add the operator of the trees, and return the name of what it gives last."""
        outputs = [self.inner(f"trees_{place}") for place in range(len(node.output))]
        del node.input[:], node.output[:]
        node.ClearField("name")
        node.input.append(matrix)
        node.output.extend(outputs)
        self.nodes.append(node)
        return outputs[-1]

    def regress(self, scores: str, objective: str) -> None:
        """Add the output "prediction" after the sums of leaves."""
        if objective in LOG_LINK:
            scores = self.add("Exp", [scores], [self.inner("exp")])
        self.add("Gather", [scores, self.constant("first", 0)], ["prediction"], axis=1)

    def classify(self, scores: str, objective: str) -> None:
        """Add the outputs "label" and "probabilities" after the scores of classes."""
        if objective == "multi:softprob":
            self.add("Identity", [scores], ["probabilities"])
            self.add("ArgMax", [scores], ["label"], axis=1, keepdims=0)
            return
        # Of hinge only the second column holds the sums, whatever the leaves are.
        second = [scores, self.constant("second", [1])]
        ones = self.add("Gather", second, [self.inner("second_column")], axis=1)
        least = np.float32(0 if objective == "binary:hinge" else 0.5)
        above = [ones, self.constant("least", least)]
        is_one = self.add("Greater", above, [self.inner("is_one")])
        labels = self.add("Cast", [is_one], [self.inner("labels")], to=_INT64)
        self.add("Gather", [labels, self.constant("first", 0)], ["label"], axis=1)
        if objective == "binary:logistic":
            self.add("Identity", [scores], ["probabilities"])
            return
        ones = self.add("Cast", [is_one], [self.inner("ones")], to=_FLOAT)
        zeros = [self.constant("one", np.float32(1)), ones]
        columns = [self.add("Sub", zeros, [self.inner("zeros")]), ones]
        self.add("Concat", columns, ["probabilities"], axis=1)
