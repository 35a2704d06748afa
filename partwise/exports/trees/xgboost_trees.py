"""The trees of an XGBoost model, and as a TreeEnsemble.

How XGBoost goes through a tree (src/predictor/predict_fn.h, src/common/categorical.h), all in
float32:

- A number takes the left branch where x < threshold; NaN the node's default branch.
- A category is x without its fraction. It takes the right branch where it is in the node's set,
  else the left one, as codes below 0 and from 2^24 on do; NaN takes the default branch.
- The sum of the leaves begins with the base (a margin), and goes through the trees in their order.
- With booster="dart", each leaf is multiplied by its tree's weight before (`Dart` in
  src/gbm/gbtree.cc). Wrappers predict in place, where the leaf is (base + leaf) - base in float32.

A TreeEnsemble does the same with the base in the leaves of the first tree of each target: one that
is added at the end, as the operator's own base was, rounds otherwise. Of labels of 1e6 +- 3 the
leaves of 1,000 trees, added up by themselves, gave 28 more.
"""

import json
from dataclasses import dataclass
from typing import Any

import numpy as np

from partwise.errors import ExportRefusedError
from partwise.exports.onnx.tree_ensemble import TreeEnsemble
from partwise.exports.trees.ubjson import read_ubjson

_IS_CATEGORICAL = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class XGBoostTrees:
    """The trees that a model's `predict` uses, and what becomes of their sum."""

    objective: str
    """Such as "binary:logistic"."""
    n_classes: int
    """As `num_class` has it: 0 for one output."""
    n_features: int
    base: np.ndarray
    """float32, shape (targets,): what the sums begin with, as margins."""
    ensemble: TreeEnsemble
    """With the base in the leaves."""
    largest_leaves: np.ndarray
    """float32, shape (trees,): of each tree the largest absolute value, without the base."""
    tree_targets: np.ndarray
    """Integers, shape (trees,)."""
    leaf_counts: np.ndarray
    """Likewise."""

    @property
    def n_targets(self) -> int:
        """Return the sums of leaves: classes, or what is predicted side by side."""
        return len(self.base)

    def is_constant(self) -> bool:
        """Tell whether all leaves of each tree are equal."""
        trees = self.ensemble
        starts = np.cumsum(self.leaf_counts) - self.leaf_counts
        firsts = np.repeat(trees.leaf_weights[starts], self.leaf_counts)
        return bool((firsts == trees.leaf_weights).all())


def read_trees(model: Any) -> XGBoostTrees:
    """Read a Booster, or a wrapper, which stops at its best iteration.

    Raises:
        ExportRefusedError: The model is linear, has no trees, lost their weights, or has leaves
            that are not finite numbers.
    """
    is_wrapper = hasattr(model, "get_booster")
    booster = model.get_booster() if is_wrapper else model
    whole = read_ubjson(bytes(booster.save_raw("ubj")))
    learner = whole["learner"]
    machine = learner["gradient_booster"]
    trees, targets, weights = _used_trees(machine, model)
    base, count = base_margins(whole), len(trees)
    places = np.array(targets, dtype=np.int64)
    if int(trees[0]["tree_param"]["size_leaf_vector"]) > 1:
        # A tree of vectors is one for each target, of the same nodes.
        trees = [_tree_of_target(tree, target) for tree in trees for target in range(len(base))]
        places, weights = np.tile(np.arange(len(base)), count), np.repeat(weights, len(base))
    nodes = _Nodes(trees)
    of_leaves = nodes.trees[nodes.leaves]
    of_base, leaves = base[places[of_leaves]], nodes.conditions[nodes.leaves]
    if machine["name"] == "dart" and is_wrapper:
        leaves = (of_base + leaves) - of_base
    leaves = leaves * weights[of_leaves]
    if not np.isfinite(leaves).all():
        raise ExportRefusedError(
            "The XGBoost model has leaves that are not finite numbers: look at the labels that it "
            "was trained with."
        )
    largest = np.zeros(len(trees), dtype=np.float32)
    np.maximum.at(largest, of_leaves, np.abs(leaves))
    first = np.array([np.flatnonzero(places == target)[0] for target in range(len(base))])
    leaves = np.where(np.isin(of_leaves, first), of_base + leaves, leaves)
    return XGBoostTrees(
        objective=learner["objective"]["name"],
        n_classes=int(learner["learner_model_param"]["num_class"]),
        n_features=int(learner["learner_model_param"]["num_feature"]),
        base=base,
        ensemble=nodes.ensemble(places[of_leaves], leaves, len(base)),
        largest_leaves=largest,
        tree_targets=places,
        leaf_counts=np.bincount(of_leaves),
    )


def _used_trees(
    machine: dict[str, Any], model: Any
) -> tuple[list[dict[str, Any]], list[int], np.ndarray]:
    """Return the trees that `predict` uses, and for each its target and its weight."""
    if machine["name"] == "gblinear":
        raise ExportRefusedError(
            'The model\'s booster is "gblinear", whose sums of products round otherwise in ONNX: '
            'train it with booster="gbtree", or export it in the format "native".'
        )
    content = machine.get("gbtree", machine)["model"]
    # A Booster uses all that it has, and not what its attributes say.
    best = getattr(model, "best_iteration", None) if hasattr(model, "get_booster") else None
    ends = content["iteration_indptr"]
    count = ends[-1] if best is None else ends[min(best + 1, len(ends) - 1)]
    if not count:
        raise ExportRefusedError(
            "The XGBoost model has no trees, so that there is nothing to export: look at the rounds"
            " that it was trained with."
        )
    weights = machine["weight_drop"] if machine["name"] == "dart" else [1.0] * count
    if len(weights) < count:
        raise ExportRefusedError(
            "The trees of the XGBoost model have lost their weights, as those of booster="
            '"dart" do in a slice without an end (XGBoost 3.2), which cannot predict any more: '
            "give the end, such as booster[4:12]."
        )
    single = np.array(weights[:count], dtype=np.float32)
    return content["trees"][:count], content["tree_info"][:count], single


def _tree_of_target(tree: dict[str, Any], target: int) -> dict[str, Any]:
    """Return a tree of vectors as one of a target, in the form of others.

    A leaf's value stands in its condition then, instead of among the vectors, where its right child
    says which it is.
    """
    size = int(tree["tree_param"]["size_leaf_vector"])
    is_leaf = tree["left_children"] < 0
    vectors = tree["leaf_weights"].reshape(-1, size)
    values = tree["split_conditions"].copy()
    values[is_leaf] = vectors[tree["right_children"][is_leaf], target]
    return {**tree, "split_conditions": values}


class _Nodes:
    """All nodes of all trees, leaves too, one tree after another.

    XGBoost writes arrays with a place for each node. The condition of a leaf, which has no
    children, is its value. Nodes that pruning has deleted keep their places, without children.
    """

    def __init__(self, trees: list[dict[str, Any]]) -> None:
        sizes = np.array([len(tree["left_children"]) for tree in trees])
        self.roots = np.cumsum(sizes) - sizes
        self.trees = np.repeat(np.arange(len(trees)), sizes)
        starts = self.roots[self.trees]

        def together(name: str) -> np.ndarray:
            parts = np.concatenate([tree[name] for tree in trees])
            # Of this machine's byte order.
            return parts.astype(parts.dtype.newbyteorder("="))

        self.is_inner = together("left_children") >= 0
        self.left = np.where(self.is_inner, together("left_children") + starts, -1)
        self.right = np.where(self.is_inner, together("right_children") + starts, -1)
        self.features = together("split_indices").astype(np.int64)
        self.conditions = together("split_conditions").astype(np.float32)
        self.default_is_left = together("default_left") != 0
        self.is_category = together("split_type") == _IS_CATEGORICAL
        # Only what a root or a node leads to: pruned nodes still have a value.
        inner = np.flatnonzero(self.is_inner)
        reached = np.concatenate([self.roots, self.left[inner], self.right[inner]])
        self.leaves = np.sort(reached[~self.is_inner[reached]])
        self.sets = dict(self._read_sets(trees))

    def _read_sets(self, trees: list[dict[str, Any]]) -> list[tuple[int, np.ndarray]]:
        found = []
        for root, tree in zip(self.roots.tolist(), trees, strict=True):
            parts = (tree["categories_nodes"], tree["categories_segments"])
            for node, start, size in zip(*parts, tree["categories_sizes"], strict=True):
                codes = tree["categories"][start : start + size]
                found.append((root + int(node), codes.astype(np.float32)))
        return found

    def ensemble(
        self, leaf_targets: np.ndarray, leaf_weights: np.ndarray, n_targets: int
    ) -> TreeEnsemble:
        """Return all trees as a TreeEnsemble, leaves in the order of `leaves`."""
        # A tree that is one leaf needs a node with it on both sides.
        is_alone = np.zeros(len(self.trees), dtype=bool)
        is_alone[self.roots] = ~self.is_inner[self.roots]
        nodes = np.flatnonzero(self.is_inner | is_alone)
        ends = np.zeros(len(self.trees), dtype=np.int64)
        ends[self.leaves] = ~np.arange(len(self.leaves))
        places = np.cumsum(self.is_inner | is_alone) - 1
        ends[self.is_inner] = places[self.is_inner]
        alone = is_alone[nodes]
        left = np.where(alone, ends[nodes], ends[self.left[nodes]])
        right = np.where(alone, ends[nodes], ends[self.right[nodes]])
        is_member = self.is_category[nodes] & ~alone
        return TreeEnsemble(
            dtype="float32",
            comparison="LT",
            n_targets=n_targets,
            roots=places[self.roots],
            features=self.features[nodes],
            splits=np.where(alone, np.float32(0), self.conditions[nodes]),
            is_member=is_member,
            true_branches=np.where(is_member, right, left),
            false_branches=np.where(is_member, left, right),
            missing_tracks_true=self.default_is_left[nodes] != is_member,
            sets=[self.sets[node] for node in nodes[is_member].tolist()],
            leaf_targets=leaf_targets,
            leaf_weights=leaf_weights,
        )


def base_margins(whole: dict[str, Any]) -> np.ndarray:
    """Return what the sums of a model begin with: float32, shape (targets,).

    XGBoost itself says so, of a model that has a tree of one leaf, 0, for each target: its
    logarithms and those of numpy differ in the last bit in 3 of 10 cases.
    """
    import xgboost

    learner = whole["learner"]
    params = learner["learner_model_param"]
    n_targets = max(1, int(params["num_class"]), int(params["num_target"]))
    model = {
        "cats": {"enc": [], "feature_segments": [], "sorted_idx": []},
        "gbtree_model_param": {"num_parallel_tree": "1", "num_trees": str(n_targets)},
        "iteration_indptr": [0, n_targets],
        "tree_info": [*range(n_targets)],
        "trees": [_tree_of_zero(place, params["num_feature"]) for place in range(n_targets)],
    }
    content = {
        "learner": {
            "attributes": {},
            "feature_names": [],
            "feature_types": [],
            "gradient_booster": {"model": model, "name": "gbtree"},
            "learner_model_param": params,
            "objective": learner["objective"],
        },
        "version": [int(number) for number in whole["version"]],
    }
    booster = xgboost.Booster({"nthread": 1})
    booster.load_model(bytearray(json.dumps(content).encode()))
    row = np.zeros((1, int(params["num_feature"])), dtype=np.float32)
    margins: np.ndarray = booster.inplace_predict(row, predict_type="margin")
    return margins.reshape(n_targets)


def _tree_of_zero(place: int, n_features: str) -> dict[str, Any]:
    """Return a tree of one leaf, 0, in the form of XGBoost's JSON."""
    none = ("categories", "categories_nodes", "categories_segments", "categories_sizes")
    zero = ("base_weights", "loss_changes", "split_conditions", "sum_hessian")
    return {
        **{name: [] for name in none},
        **{name: [0.0] for name in zero},
        **{name: [0] for name in ("default_left", "split_indices", "split_type")},
        **{name: [-1] for name in ("left_children", "right_children")},
        "id": place,
        "parents": [2**31 - 1],
        "tree_param": {
            "num_deleted": "0",
            "num_feature": n_features,
            "num_nodes": "1",
            "size_leaf_vector": "1",
        },
    }
