"""The numbers at which trees split their features."""

import numpy as np

from partwise.exports.onnx.tree_ensemble import TreeEnsemble


def split_values(trees: TreeEnsemble, n_features: int) -> list[np.ndarray]:
    """Return for each feature its thresholds and the members of its sets, ascending."""
    is_split = trees.true_branches != trees.false_branches
    ordered = is_split & ~trees.is_member
    of_sets = trees.features[trees.is_member]
    found: list[np.ndarray] = []
    for feature in range(n_features):
        members = [m for m, of in zip(trees.sets, of_sets, strict=True) if of == feature]
        splits = trees.splits[ordered & (trees.features == feature)]
        found.append(np.unique(np.concatenate([splits.astype(np.float64), *members])))
    return found
