"""Rows reach every leaf and way of random trees that any row at all can reach."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from partwise.exports.proof.tree_coverage import FeatureSpace, covering_rows
from tests.exports.random_trees import CODES, NUMBERS, THRESHOLDS, ensembles

ZERO = 1e-35


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
@settings(max_examples=60, deadline=None)
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
