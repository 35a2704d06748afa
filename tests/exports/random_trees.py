"""Random trees, in which nodes may exclude each other."""

import numpy as np
from hypothesis import strategies as st

from partwise.exports.onnx.tree_ensemble import TreeEnsemble

NUMBERS, CODES = 2, 4
"""Features 0 and 1 are numbers, feature 2 a category of so many codes."""
THRESHOLDS = [-1.0, 0.0, 0.5, 1e-35, np.inf]


def build(draw, depth):
    """Return a tree of nested tuples; a leaf is None."""
    if depth == 0 or draw(st.integers(0, 4)) == 0:
        return None
    feature = draw(st.integers(0, 2))
    if feature == NUMBERS:
        split = draw(st.frozensets(st.integers(0, CODES), max_size=3))
    else:
        split = draw(st.sampled_from(THRESHOLDS))
    return feature, split, draw(st.booleans()), build(draw, depth - 1), build(draw, depth - 1)


@st.composite
def ensembles(draw):
    nodes, leaves, roots = [], [], []

    def add(tree):
        if tree is None:
            leaves.append(float(len(leaves) + 1))
            return ~(len(leaves) - 1)
        place = len(nodes)
        nodes.append(None)
        feature, split, missing, true, false = tree
        nodes[place] = (feature, split, missing, add(true), add(false))
        return place

    for _ in range(draw(st.integers(1, 3))):
        end = add(build(draw, 4))
        if end < 0:  # a tree of one leaf
            nodes.append((0, 0.0, False, end, end))
            end = len(nodes) - 1
        roots.append(end)
    sets = [np.array(sorted(node[1])) for node in nodes if node[0] == NUMBERS]
    return TreeEnsemble(
        dtype="float64",
        comparison=draw(st.sampled_from(["LEQ", "LT"])),
        n_targets=1,
        roots=np.array(roots),
        features=np.array([node[0] for node in nodes]),
        splits=np.array([0.0 if node[0] == NUMBERS else node[1] for node in nodes]),
        is_member=np.array([node[0] == NUMBERS for node in nodes]),
        true_branches=np.array([node[3] for node in nodes]),
        false_branches=np.array([node[4] for node in nodes]),
        missing_tracks_true=np.array([node[2] for node in nodes]),
        sets=sets,
        leaf_targets=np.zeros(len(leaves), dtype=np.int64),
        leaf_weights=np.array(leaves),
    )
