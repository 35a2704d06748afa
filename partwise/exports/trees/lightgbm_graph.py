"""The ONNX graph of a LightGBM model: inputs, trees, and what becomes of their sum.

How objectives turn the score s into a prediction (LightGBM's `ConvertOutput` in
src/objective/*.hpp; a random forest first divides s by the number of iterations, `GBDT::Predict`
in src/boosting/gbdt_prediction.cpp):

    regression, regression_l1, huber, fair, quantile, mape, lambdarank, rank_xendcg   s
    the same with reg_sqrt                                                            sign(s) s^2
    poisson, gamma, tweedie                                                           exp(s)
    binary, multiclassova                                       1 / (1 + exp(-sigmoid * s))
    cross_entropy                                                       1 / (1 + exp(-s))
    cross_entropy_lambda                                                log1p(exp(s))
    multiclass                                                          softmax over the classes
    none, or a function of the user's                 s: LightGBM's `predict` gives no more then
"""

from dataclasses import dataclass
from typing import Final, Literal

import numpy as np

from partwise.errors import ExportRefusedError
from partwise.exports.onnx.graph import Graph
from partwise.exports.onnx.tree_ensemble import TreeEnsemble, tree_ensemble_node
from partwise.exports.trees.exporter import LABEL, PROBABILITIES
from partwise.exports.trees.lightgbm_trees import ZERO, LightGBMTrees
from partwise.exports.trees.linear_leaves import add_linear_leaves
from partwise.models.signature import Signature

DOUBLE: Final = "float64"

_AS_IT_IS = (
    "regression", "regression_l1", "huber", "fair", "quantile", "mape", "lambdarank",
    "rank_xendcg", "custom", "none", "",
)  # fmt: skip
_EXPONENTIAL = ("poisson", "gamma", "tweedie")
_SIGMOID = ("binary", "multiclassova", "cross_entropy")


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """How a score becomes a prediction."""

    function: Literal["identity", "signed_square", "exp", "sigmoid", "softmax", "log1p_exp"]
    steepness: float = 1.0
    """Of a sigmoid."""


def objective_of(trees: LightGBMTrees) -> str:
    """Return the objective's name, such as "binary"; empty where it was a function."""
    return trees.objective.partition(" ")[0]


def link_of(trees: LightGBMTrees) -> Link:
    """Return how the model turns scores into predictions.

    Raises:
        ExportRefusedError: Its objective is not known.
    """
    name = objective_of(trees)
    words = trees.objective.split()[1:]
    values = dict(word.split(":", 1) for word in words if ":" in word)
    if name in _AS_IT_IS:
        return Link(function="signed_square" if "sqrt" in words else "identity")
    if name in _EXPONENTIAL:
        return Link(function="exp")
    if name in _SIGMOID:
        return Link(function="sigmoid", steepness=float(values.get("sigmoid", 1.0)))
    if name == "multiclass":
        return Link(function="softmax")
    if name == "cross_entropy_lambda":
        return Link(function="log1p_exp")
    raise ExportRefusedError(
        f"The objective {name!r} of this LightGBM model is not known, so its scores cannot be "
        "turned into predictions: export it as native."
    )


def write_graph(
    trees: LightGBMTrees, ensemble: TreeEnsemble, signature: Signature, opset: int, file_path: str
) -> None:
    """Write a model as ONNX."""
    graph = Graph(signature)
    numbers = graph.feature_matrix(DOUBLE)
    features, scores = _clean_features(graph, trees, numbers), graph.name("scores")
    graph.nodes.append(tree_ensemble_node(ensemble, features, scores))
    if trees.linear is not None:
        scores = add_linear_leaves(graph, trees, trees.linear, numbers, scores)
    if trees.is_average:
        scores = graph.add("Div", scores, graph.constant(np.float64(trees.n_iterations)))
    predictions = _linked(graph, link_of(trees), scores)
    _add_outputs(graph, signature, predictions, trees)
    graph.save("lightgbm", opset, file_path)


def _clean_features(graph: Graph, trees: LightGBMTrees, features: str) -> str:
    """Make of the features what a TreeEnsemble needs of them (see `lightgbm_trees`)."""
    if len(trees.categorical):
        is_category = np.zeros((1, trees.n_features), dtype=bool)
        is_category[0, trees.categorical] = True
        # Cut towards zero, as C casts: sign(x) * floor(|x|), since ONNX has no operator for it.
        whole = graph.add("Floor", graph.add("Abs", features))
        whole = graph.add("Mul", graph.add("Sign", features), whole)
        features = graph.add("Where", graph.constant(is_category), whole, features)
    if len(trees.zero_is_missing):
        # |x| <= -1 is never true, so the other columns stay as they are.
        zeros = graph.constant(missing_zeros(trees))
        is_zero = graph.add("LessOrEqual", graph.add("Abs", features), zeros)
        features = graph.add("Where", is_zero, graph.constant(np.float64(np.nan)), features)
    return features


def missing_zeros(trees: LightGBMTrees) -> np.ndarray:
    """Return up to which |x| a feature is missing, shape (1, features); -1 where no number is."""
    zeros = np.full((1, trees.n_features), -1.0)
    zeros[0, trees.zero_is_missing] = ZERO
    return zeros


def _linked(graph: Graph, link: Link, scores: str) -> str:
    if link.function == "identity":
        return scores
    if link.function == "signed_square":
        return graph.add("Mul", graph.add("Mul", graph.add("Sign", scores), scores), scores)
    if link.function == "softmax":
        return graph.add("Softmax", scores, axis=1)
    if link.function == "exp":
        return graph.add("Exp", scores)
    one = graph.constant(np.float64(1))
    if link.function == "sigmoid":
        steep = graph.add("Mul", scores, graph.constant(np.float64(-link.steepness)))
        return graph.add("Div", one, graph.add("Add", one, graph.add("Exp", steep)))
    return _log1p(graph, one, graph.add("Exp", scores))


def _log1p(graph: Graph, one: str, values: str) -> str:
    """Add log(1 + x), x >= 0, to the last digits: ONNX has no operator for it.

    With u = 1 + x, rounded, it is log(u) * x / (u - 1), and x where u is 1: what is lost of x in u
    is lost in both (W. Kahan; D. Goldberg, "What every computer scientist should know about
    floating-point arithmetic", theorem 4). Softplus does not help: onnxruntime adds 1 as well.
    """
    above = graph.add("Add", one, values)
    kept = graph.add("Sub", above, one)
    quotient = graph.add("Div", graph.add("Mul", graph.add("Log", above), values), kept)
    # Infinite over infinite would be NaN.
    infinite = graph.add("Equal", values, graph.constant(np.float64(np.inf)))
    nothing = graph.add("Equal", kept, graph.constant(np.float64(0)))
    return graph.add("Where", graph.add("Or", nothing, infinite), values, quotient)


def _add_outputs(graph: Graph, signature: Signature, values: str, trees: LightGBMTrees) -> None:
    """Make the outputs of predictions, one column each, or that of the second of two classes."""
    if signature.class_labels is None:
        graph.add_output(signature.outputs[0], values)
        return
    if trees.n_targets == 1:
        # As LightGBM's own wrapper makes it, to the last bit.
        first = graph.add("Sub", graph.constant(np.float64(1)), values)
        graph.add("Concat", first, values, axis=1, output=PROBABILITIES)
    else:
        graph.add("Identity", values, output=PROBABILITIES)
    labels = signature.class_labels
    probabilities = PROBABILITIES
    if trees.linear is not None:
        # Infinite numbers can make NaN, the first of which numpy.argmax takes, but not ONNX.
        infinite = graph.constant(np.float64(np.inf))
        is_nan = graph.add("IsNaN", PROBABILITIES)
        probabilities = graph.add("Where", is_nan, infinite, PROBABILITIES)
    # Of equal probabilities the first is taken, as by numpy.argmax.
    if labels == tuple(range(len(labels))):
        graph.add("ArgMax", probabilities, axis=1, keepdims=0, output=LABEL)
    else:
        place = graph.add("ArgMax", probabilities, axis=1, keepdims=0)
        is_text = isinstance(labels[0], str)
        known = graph.constant(np.array(labels, dtype=object if is_text else np.int64))
        graph.add("Gather", known, place, axis=0, output=LABEL)
