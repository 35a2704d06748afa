"""Rows reach every leaf and way of random trees that any row at all can reach."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from partwise.exports.onnx.tree_ensemble import TreeEnsemble
from partwise.exports.proof.tree_coverage import FeatureSpace, covering_rows

NUMBERS, CODES = 2, 4
"""Features 0 and 1 are numbers, feature 2 a category of so many codes."""
ZERO = 1e-35
THRESHOLDS = [-1.0, 0.0, 0.5, ZERO, np.inf]


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


def travel(trees, row, space):
    """Return the leaves that a row comes to, and the nodes with the branches that it takes."""
    set_places = np.cumsum(trees.is_member) - 1
    leaves, steps = set(), set()
    for root in trees.roots.tolist():
        place = root
        while place >= 0:
            value = row[trees.features[place]]
            if trees.features[place] in space.zeros_are_missing and abs(value) <= ZERO:
                value = np.nan
            if np.isnan(value):
                is_true = bool(trees.missing_tracks_true[place])
            elif trees.is_member[place]:
                is_true = value in trees.sets[set_places[place]]
            elif trees.comparison == "LEQ":
                is_true = bool(value <= trees.splits[place])
            else:
                is_true = bool(value < trees.splits[place])
            kind = "nan" if np.isnan(value) else is_true
            steps.add((place, kind, 0.0 if kind == "nan" else float(value)))
            place = int((trees.true_branches if is_true else trees.false_branches)[place])
        leaves.add(place)
    return leaves, steps


def nearest(trees, steps):
    """Return for each node the ways taken: the numbers next to its threshold, members, others."""
    ways = {}
    for node, kind, value in steps:
        if kind == "nan":
            ways[node, "nan"] = True
        elif trees.is_member[node]:
            ways[(node, value) if kind else (node, "other")] = True
        else:
            most = max if kind else min
            ways[node, kind] = most(value, ways.get((node, kind), value))
    return ways


def of_rows(trees, rows, space):
    leaves, steps = set(), set()
    for row in rows:
        of_row, taken = travel(trees, row, space)
        leaves |= of_row
        steps |= taken
    return leaves, nearest(trees, steps)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@settings(max_examples=150, deadline=None)
@given(
    trees=ensembles(),
    zeros=st.sampled_from([(), (1,), (0, 1)]),
    listed=st.booleans(),
    data=st.data(),
)
def test_rows_reach_what_any_row_can(dtype, trees, zeros, listed, data):
    space = FeatureSpace(
        category_counts={NUMBERS: CODES} if listed else {},
        zeros_are_missing=zeros,
        largest_zero=ZERO,
    )
    kind = np.dtype(dtype).type
    beside = [np.nextafter(kind(s), kind(to)) for s in THRESHOLDS for to in (-np.inf, np.inf)]
    zero = kind(ZERO)
    around = [np.nextafter(kind(side * zero), kind(side * np.inf)) for side in (-1, 1)]
    numbers = [kind(np.nan), *map(kind, THRESHOLDS), *beside, *around, kind(-np.inf), kind(7)]
    codes = [np.nan, *range(CODES if listed else CODES + 2)]
    real = np.array(
        data.draw(
            st.lists(
                st.tuples(*[st.sampled_from(numbers)] * NUMBERS, st.sampled_from(codes)),
                min_size=1,
                max_size=4,
            )
        ),
        dtype=dtype,
    )
    found = covering_rows(trees, real, space, 1_000_000)
    every = np.array(list(itertools.product(numbers, numbers, codes)), dtype=dtype)
    leaves, ways = of_rows(trees, every, space)
    # The real rows come to the leaf of a tree that has no other.
    own_leaves, _ = of_rows(trees, [*found.rows, real[0]], space)
    _, own_ways = of_rows(trees, found.rows, space)
    assert own_leaves == leaves
    single = {
        int(t) for t, f in zip(trees.true_branches, trees.false_branches, strict=True) if t == f
    }
    singles = {node for node, _ in ways if trees.true_branches[node] in single}
    wanted = {way: value for way, value in ways.items() if way[0] not in singles}
    assert {way: v for way, v in own_ways.items() if way[0] not in singles} == wanted
    assert found.leaves == len(trees.leaf_weights)
    assert found.leaves_reached == len(leaves)
    assert found.leaves_out_of_reach == found.leaves - found.leaves_reached
    assert found.ways_taken == len(wanted)
    assert found.ways_out_of_reach == found.ways - found.ways_taken
