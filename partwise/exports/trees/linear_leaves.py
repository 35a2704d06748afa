"""Leaves that are linear models (`linear_tree`), as operators behind a TreeEnsemble.

The TreeEnsemble gives for each row and tree the place of its leaf. What a leaf gives is looked up
by that place, and added as LightGBM adds it (`Tree::Predict` in include/LightGBM/tree.h,
`GBDT::PredictRaw` in src/boosting/gbdt_prediction.cpp): first the constant, then one product after
another, then one tree after another. Each sum has the same order in double, so it has the same
bits.
"""

import numpy as np

from partwise.exports.onnx.graph import Graph
from partwise.exports.trees.lightgbm_trees import ZERO, LightGBMTrees, LinearLeaves


def add_linear_leaves(
    graph: Graph, trees: LightGBMTrees, linear: LinearLeaves, features: str, leaves: str
) -> str:
    """Add what leaves give, summed over the trees of each target; return the name of the scores.

    `features` are double, shape (n, features), as the model takes them; `leaves` double, shape (n,
    trees): the place of each leaf among those of all trees.
    """
    places = graph.cast(leaves, "int64")
    given = graph.add("Gather", graph.constant(linear.constants), places, axis=0)
    is_missing = ""
    values = _numbers(graph, features)
    of_terms, coefficients = _terms(linear, trees.n_features)
    for of_term, coefficient in zip(of_terms, coefficients, strict=True):
        columns = graph.add("Gather", graph.constant(of_term), places, axis=0)
        x = graph.add("GatherElements", values, columns, axis=1)
        factor = graph.add("Gather", graph.constant(coefficient), places, axis=0)
        given = graph.add("Add", given, graph.add("Mul", factor, x))
        is_nan = graph.add("IsNaN", x)
        is_missing = graph.add("Or", is_missing, is_nan) if is_missing else is_nan
    if is_missing:
        numbers = graph.add("Gather", graph.constant(trees.leaf_values), places, axis=0)
        given = graph.add("Where", is_missing, numbers, given)
    return _sums(graph, given, trees)


def numbers_of_leaves(trees: LightGBMTrees, linear: LinearLeaves) -> dict[str, np.ndarray]:
    """Return what a file holds of the leaves, by what it is."""
    features, coefficients = _terms(linear, trees.n_features)
    return {
        "the constants of leaves": linear.constants,
        "the numbers of leaves": trees.leaf_values,
        **{f"the features of term {place}": each for place, each in enumerate(features)},
        **{f"the coefficients of term {place}": each for place, each in enumerate(coefficients)},
    }


def _numbers(graph: Graph, features: str) -> str:
    """Return the features with 0 for what LightGBM takes for it, and a column of 0 behind them."""
    is_zero = graph.add("LessOrEqual", graph.add("Abs", features), graph.constant(np.float64(ZERO)))
    nothing = graph.constant(np.float64(0))
    numbers = graph.add("Where", is_zero, nothing, features)
    # A product with a number of the row could be NaN: a leaf without a term takes this column.
    return graph.add("Pad", numbers, graph.constant(np.array([0, 0, 0, 1])), nothing)


def _terms(linear: LinearLeaves, n_features: int) -> tuple[np.ndarray, np.ndarray]:
    """Return features and coefficients of the first term of each leaf, of the second, and so on.

    Both have the shape (terms, leaves). A leaf that has no such term has 0 times the column behind
    the features.
    """
    counts = linear.feature_counts
    shape = (int(counts.max(initial=0)), len(counts))
    features, coefficients = np.full(shape, n_features), np.zeros(shape)
    leaves = np.repeat(np.arange(len(counts)), counts)
    terms = np.arange(len(leaves)) - np.repeat(np.cumsum(counts) - counts, counts)
    features[terms, leaves] = linear.features
    coefficients[terms, leaves] = linear.coefficients
    return features, coefficients


def _sums(graph: Graph, given: str, trees: LightGBMTrees) -> str:
    """Add up the trees of each target, one after another: (n, trees) to (n, targets)."""
    shape = graph.constant(np.array([0, trees.n_iterations, trees.n_targets]))
    of_iterations = graph.add("Reshape", given, shape)
    # A ReduceSum adds in pairs, which rounds otherwise.
    sums = graph.add("CumSum", of_iterations, graph.constant(np.array(1)))
    return graph.add("Gather", sums, graph.constant(np.array(trees.n_iterations - 1)), axis=1)
