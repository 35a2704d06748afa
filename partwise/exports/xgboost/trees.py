"""What XGBoost says of a model: its objective and base score, and its trees."""

import json
from dataclasses import dataclass
from typing import Any

import numpy as np

from partwise.errors import ExportRefused

IDENTITY = (
    "reg:squarederror", "reg:squaredlogerror", "reg:pseudohubererror", "reg:absoluteerror",
    "reg:quantileerror",
)  # fmt: skip
"""Objectives whose prediction is the sum of the leaves."""
LOG_LINK = ("count:poisson", "reg:gamma", "reg:tweedie")
"""Objectives whose prediction is exp of the sum."""
CLASSIFIERS = ("binary:logistic", "binary:hinge", "multi:softprob")

LONGEST_PATH = 4000
"""Nodes on a path in ONNX, where each category of a set is a node. onnxruntime (1.31) calls itself
for each when it loads a tree, and with the usual stack of 8 MiB it died of 16,000, not of 8,000."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Forest:
    """What the description needs of a Booster's trees."""

    thresholds: tuple[np.ndarray, ...]
    """Per feature; of a categorical one, the codes in the sets."""
    largest_leaves: np.ndarray
    """Per tree, the largest absolute value of a leaf: double, shape (trees,)."""
    is_constant: bool


def used_booster(model: Any) -> Any:
    """Return a Booster of the trees that the model's `predict` uses.

    A wrapper stops at its best iteration; a Booster uses all it has, whatever its attributes say.
    """
    if not hasattr(model, "get_booster"):
        return model
    booster = model.get_booster()
    best = getattr(model, "best_iteration", None)
    if best is None or best + 1 >= booster.num_boosted_rounds():
        return booster
    return booster[: best + 1]


def learner_of(booster: Any) -> dict[str, Any]:
    """Return what a Booster's configuration says of its learner."""
    learner: dict[str, Any] = json.loads(booster.save_config())["learner"]
    return learner


def class_count(learner: dict[str, Any]) -> int:
    """Return the number of classes; 0 for what has one output."""
    return int(learner["learner_model_param"]["num_class"])


def classes_of_trees(trees: np.ndarray, learner: dict[str, Any]) -> np.ndarray:
    """Return the class that trees are of: a round has all trees of class 0, then of class 1 ..."""
    in_parallel = int(learner["gradient_booster"]["gbtree_model_param"]["num_parallel_tree"])
    return trees // in_parallel % max(1, class_count(learner))


def read_forest(booster: Any) -> Forest:
    """Read the trees from XGBoost's JSON.

    Raises:
        ExportRefused: There are no trees, or leaves that are vectors or no finite numbers, or sets
            of too many categories.
    """
    content = json.loads(bytes(booster.save_raw("json")))
    splits: list[list[np.ndarray]] = [[] for _ in range(booster.num_features())]
    largest, is_constant = [], True
    for tree in content["learner"]["gradient_booster"]["model"]["trees"]:
        if int(tree["tree_param"]["size_leaf_vector"]) > 1:
            raise ExportRefused(
                "The leaves of the XGBoost model's trees are vectors (multi_output_tree), which are"
                ' not exported to ONNX: train it with multi_strategy="one_output_per_tree".'
            )
        if (path := _longest_path(tree)) > LONGEST_PATH:
            raise ExportRefused(
                f"The sets of categories of the XGBoost model would make a path of {path} nodes in "
                f"ONNX, and {LONGEST_PATH} are what loads safely: lower max_cat_threshold or "
                "max_depth, or give categorical features fewer categories."
            )
        leaves = _read_tree(tree, splits)
        largest.append(np.abs(leaves).max())
        is_constant = is_constant and bool((leaves == leaves[0]).all())
    if not largest or not np.isfinite(largest).all():
        what = "leaves that are no finite numbers" if largest else "no trees"
        raise ExportRefused(
            f"The XGBoost model has {what}, so that there is nothing to export: look at the labels "
            "and the rounds that it was trained with."
        )
    return Forest(
        thresholds=tuple(
            np.unique(np.concatenate(found)).astype(np.float64) if found else np.empty(0)
            for found in splits
        ),
        largest_leaves=np.array(largest, dtype=np.float64),
        is_constant=is_constant,
    )


def _longest_path(tree: dict[str, Any]) -> int:
    """Return the nodes on the longest path of a tree, with a node for each category of a set."""
    if not tree["categories_nodes"]:
        return 0  # Depth alone never makes it long.
    sizes = dict(zip(tree["categories_nodes"], tree["categories_sizes"], strict=True))
    left, right = tree["left_children"], tree["right_children"]
    longest, waiting = 0, [(0, 0)]
    while waiting:
        node, above = waiting.pop()
        longest = max(longest, above)
        if left[node] >= 0:
            below = above + sizes.get(node, 1)
            waiting += [(left[node], below), (right[node], below)]
    return longest


def _read_tree(tree: dict[str, Any], splits: list[list[np.ndarray]]) -> np.ndarray:
    """Return the leaves of a tree, and add its splits to those of the features.

    XGBoost writes arrays with a place for each node. The condition of a leaf, which has no
    children, is its value. Nodes that pruning has deleted keep their places, without children.
    """
    conditions = np.array(tree["split_conditions"], dtype=np.float32)
    features = np.array(tree["split_indices"], dtype=np.int64)
    left = np.array(tree["left_children"])
    inner = np.flatnonzero(left >= 0)
    of_numbers = inner[np.array(tree["split_type"])[inner] == 0]
    for feature in np.unique(features[of_numbers]):
        splits[feature].append(conditions[of_numbers[features[of_numbers] == feature]])
    sets = (tree["categories_nodes"], tree["categories_segments"], tree["categories_sizes"])
    for node, start, size in zip(*sets, strict=True):
        if left[node] >= 0:
            codes = tree["categories"][start : start + size]
            splits[features[node]].append(np.array(codes, dtype=np.float32))
    # Only what the root leads to: pruned nodes still have a value.
    reached = np.concatenate([[0], left[inner], np.array(tree["right_children"])[inner]])
    return np.asarray(conditions[reached[left[reached] < 0]])


def base_margins(learner: dict[str, Any]) -> np.ndarray:
    """Return the base score as margins, as XGBoost derives them: single, one or one per class."""
    scores = np.array(json.loads(learner["learner_model_param"]["base_score"]), dtype=np.float32)
    one, least = np.float32(1), np.float32(1e-6)
    if learner["objective"]["name"] == "binary:logistic":
        return np.asarray(-np.log(one / np.clip(scores, least, one - least) - one))
    if learner["objective"]["name"] in LOG_LINK:
        with np.errstate(divide="ignore"):  # counts that are all 0
            return np.asarray(np.log(scores))
    return scores
