"""Trees as the arrays of a TreeEnsemble node, and as that node.

An ensemble of T trees maps a row x of F numbers to K scores:

    score_k(x) = sum over trees t with target k of leaf_t(x)

where leaf_t(x) is the weight of the leaf that x comes to. From a tree's root on, an inner node with
feature f and split s sends x to its true branch where

    x_f <= s              mode BRANCH_LEQ
    x_f < s               mode BRANCH_LT
    x_f in a set          mode BRANCH_MEMBER
    x_f is NaN            where the node's `missing_tracks_true` is 1: NaN is in no order

and else to its false branch. Inner nodes and leaves of all trees stand in two lists; a branch is
the place of its end in one of them, and says in which. A tree that is one leaf is an inner node
both of whose branches end in that leaf. Splits and weights have the dtype that the library computes
in, so that a row which is exactly on a threshold, or one ulp away from it, goes where it went in
training; the older TreeEnsembleRegressor and -Classifier hold them in single.

Source: operator TreeEnsemble of the domain ai.onnx.ml, since version 5 (ONNX 1.16),
https://onnx.ai/onnx/operators/onnx_aionnxml_TreeEnsemble.html
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

DOMAIN = "ai.onnx.ml"
DOMAIN_VERSION = 5
MODES = {"LEQ": 0, "LT": 1}
"""The operator's numbers for comparisons."""
BRANCH_MEMBER = 6
_SUM = 1
_NO_TRANSFORM = 0
_NEVER = np.array([0.5])
"""A set that no whole number is in: onnxruntime takes no empty ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeEnsemble:
    """Trees whose features are numbers; categories are whole numbers."""

    dtype: Literal["float32", "float64"]
    """Of the features, splits, weights and scores."""
    comparison: Literal["LEQ", "LT"]
    """Of all nodes that ask for an order."""
    n_targets: int
    roots: np.ndarray
    """Integers, shape (trees,): the root of each tree, a place among the nodes."""
    features: np.ndarray
    """Integers, shape (nodes,), as all that follows up to the sets."""
    splits: np.ndarray
    """Numbers; not looked at where `is_member`."""
    is_member: np.ndarray
    """Booleans: whether a node asks for a set, of `sets`, instead of an order."""
    true_branches: np.ndarray
    """Integers: a place among the nodes, or ~place among the leaves."""
    false_branches: np.ndarray
    """Likewise."""
    missing_tracks_true: np.ndarray
    """Booleans: whether NaN takes the true branch."""
    sets: Sequence[np.ndarray]
    """For each node that asks for one, in the order of nodes: whole numbers >= 0."""
    leaf_targets: np.ndarray
    """Integers in [0, n_targets), shape (leaves,)."""
    leaf_weights: np.ndarray
    """Numbers, shape (leaves,)."""


def tree_ensemble_node(ensemble: TreeEnsemble, features: str, scores: str) -> Any:
    """Return the `onnx.NodeProto` that computes the scores of rows.

    The ensemble has a tree or more. Both values are of its dtype; the input has the shape (n, F),
    the output (n, n_targets).
    """
    from onnx import AttributeProto, NodeProto, numpy_helper

    # The operator wants bytes.
    order = MODES[ensemble.comparison]
    modes = np.where(ensemble.is_member, BRANCH_MEMBER, order).astype(np.uint8)
    true_places, true_is_leaf = _branch_ends(ensemble.true_branches)
    false_places, false_is_leaf = _branch_ends(ensemble.false_branches)
    numbers = {"aggregate_function": _SUM, "post_transform": _NO_TRANSFORM}
    numbers["n_targets"] = ensemble.n_targets
    lists = {
        "tree_roots": ensemble.roots,
        "nodes_featureids": ensemble.features,
        "nodes_truenodeids": true_places,
        "nodes_trueleafs": true_is_leaf,
        "nodes_falsenodeids": false_places,
        "nodes_falseleafs": false_is_leaf,
        "nodes_missing_value_tracks_true": ensemble.missing_tracks_true,
        "leaf_targetids": ensemble.leaf_targets,
    }
    tensors = {
        "nodes_modes": modes,
        "nodes_splits": np.where(ensemble.is_member, 0.0, ensemble.splits).astype(ensemble.dtype),
        "leaf_weights": ensemble.leaf_weights.astype(ensemble.dtype),
    }
    if ensemble.sets:
        tensors["membership_values"] = _sets_with_ends(ensemble.sets).astype(ensemble.dtype)
    node = NodeProto(op_type="TreeEnsemble", domain=DOMAIN, name="trees")
    node.input.append(features)
    node.output.append(scores)
    for name, number in numbers.items():
        node.attribute.add(name=name, type=AttributeProto.INT, i=number)
    for name, values in lists.items():
        integers = values.astype(np.int64).tolist()
        node.attribute.add(name=name, type=AttributeProto.INTS, ints=integers)
    for name, values in tensors.items():
        tensor = numpy_helper.from_array(values)
        node.attribute.add(name=name, type=AttributeProto.TENSOR, t=tensor)
    return node


def _branch_ends(branches: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    is_leaf = branches < 0
    return np.where(is_leaf, ~branches, branches), is_leaf


def _sets_with_ends(sets: Sequence[np.ndarray]) -> np.ndarray:
    # One list for all nodes that ask for a set, in their order; NaN ends each, as the operator has
    # it.
    end = np.array([np.nan])
    parts = [part for members in sets for part in (members if len(members) else _NEVER, end)]
    return np.concatenate(parts)
