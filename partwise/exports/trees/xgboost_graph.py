"""The ONNX graph of an XGBoost model: inputs, trees, and what becomes of their sum.

How objectives turn the sum s into a prediction (`PredTransform` in XGBoost's src/objective, and
src/common/math.h), all in float32:

    reg:squarederror, reg:squaredlogerror, reg:pseudohubererror, reg:absoluteerror,
    reg:quantileerror, binary:logitraw, rank:ndcg, rank:map, rank:pairwise          s
    count:poisson, reg:gamma, reg:tweedie, survival:cox, survival:aft               exp(s)
    binary:logistic, reg:logistic                           1 / (1 + exp(min(-s, 88.7)))
    binary:hinge                                                            1 where s > 0, else 0
    multi:softprob, multi:softmax         exp(s - max) over the sum of these; the class of the max

exp is computed in double and rounded to float32, which the C library's own expf gives in nearly all
cases too; that of onnxruntime in float32 is often one bit off.
"""

from collections.abc import Mapping
from typing import Literal

import numpy as np

from partwise.exports.onnx.graph import Graph
from partwise.exports.onnx.tree_ensemble import TreeEnsemble, tree_ensemble_node
from partwise.exports.trees.exporter import LABEL, PROBABILITIES
from partwise.models.signature import Signature

SINGLE: Literal["float32"] = "float32"

LINKS: Mapping[str, Literal["identity", "exp", "sigmoid", "step", "softmax"]] = {
    **dict.fromkeys(
        (
            *("reg:squarederror", "reg:squaredlogerror", "reg:pseudohubererror"),
            *("reg:absoluteerror", "reg:quantileerror", "binary:logitraw"),
            *("rank:ndcg", "rank:map", "rank:pairwise"),
        ),
        "identity",
    ),
    **dict.fromkeys(
        ("count:poisson", "reg:gamma", "reg:tweedie", "survival:cox", "survival:aft"), "exp"
    ),
    **dict.fromkeys(("binary:logistic", "reg:logistic"), "sigmoid"),
    "binary:hinge": "step",
    **dict.fromkeys(("multi:softprob", "multi:softmax"), "softmax"),
}
"""What becomes of the sum, by objective."""

_MOST_EXPONENT = 88.7


def write_graph(
    trees: TreeEnsemble,
    objective: str,
    signature: Signature,
    missing: float | None,
    opset: int,
    file_path: str,
) -> None:
    """Write a model as ONNX, with the base in the leaves of its trees.

    A number may stand for a missing value, beside NaN.
    """
    graph = Graph(signature)
    features = graph.feature_matrix(SINGLE)
    width = len(signature.features) or int(signature.inputs[0].shape[1] or 0)
    features = _clean_features(graph, trees, missing, features, width)
    scores = graph.name("scores")
    graph.nodes.append(tree_ensemble_node(trees, features, scores))
    values = _linked(graph, objective, scores)
    if signature.class_labels is None:
        graph.add_output(signature.outputs[0], values)
    elif trees.n_targets > 1:
        # Of softmax XGBoost compares the sums, where its wrappers compare the probabilities.
        compared = scores if objective == "multi:softmax" else values
        graph.add("ArgMax", compared, axis=1, keepdims=0, output=LABEL)
        graph.add("Identity", values, output=PROBABILITIES)
    else:
        _add_two_classes(graph, values)
    graph.save("xgboost", opset, file_path)


def _clean_features(
    graph: Graph, trees: TreeEnsemble, missing: float | None, features: str, width: int
) -> str:
    """Make of the features what a TreeEnsemble needs of them (see `xgboost_trees`)."""
    if missing is not None:
        is_missing = graph.add("Equal", features, graph.constant(np.float32(missing)))
        nothing = graph.constant(np.float32(np.nan))
        features = graph.add("Where", is_missing, nothing, features)
    if len(trees.sets):
        is_category = np.zeros((1, width), dtype=bool)
        is_category[0, trees.features[trees.is_member]] = True
        # Floor suffices: a negative code is in no set, cut or floored.
        whole = graph.add("Floor", features)
        features = graph.add("Where", graph.constant(is_category), whole, features)
    return features


def _linked(graph: Graph, objective: str, scores: str) -> str:
    link = LINKS[objective]
    if link == "exp":
        return _exp(graph, scores)
    if link == "sigmoid":
        one = graph.constant(np.float32(1))
        most = graph.constant(np.float32(_MOST_EXPONENT))
        powers = _exp(graph, graph.add("Min", graph.add("Neg", scores), most))
        return graph.add("Div", one, graph.add("Add", powers, one))
    if link == "step":
        is_one = graph.add("Greater", scores, graph.constant(np.float32(0)))
        return graph.cast(is_one, "float32")
    if link == "softmax":
        place = graph.add("ArgMax", scores, axis=1, keepdims=1)
        most = graph.add("GatherElements", scores, place, axis=1)
        powers = _exp(graph, graph.add("Sub", scores, most))
        # XGBoost adds them up in double.
        axis = graph.constant(np.array([1]))
        total = graph.add("ReduceSum", graph.cast(powers, "float64"), axis, keepdims=1)
        return graph.add("Div", powers, graph.cast(total, "float32"))
    return scores


def _exp(graph: Graph, values: str) -> str:
    return graph.cast(graph.add("Exp", graph.cast(values, "float64")), "float32")


def _add_two_classes(graph: Graph, values: str) -> None:
    """Make the outputs of the second class's probability, as XGBoost's own wrapper does."""
    first = graph.add("Sub", graph.constant(np.float32(1)), values)
    graph.add("Concat", first, values, axis=1, output=PROBABILITIES)
    is_second = graph.add("Greater", values, graph.constant(np.float32(0.5)))
    graph.add(
        "Squeeze", graph.cast(is_second, "int64"), graph.constant(np.array([1])), output=LABEL
    )
