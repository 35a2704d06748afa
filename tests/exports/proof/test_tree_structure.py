"""No node or leaf of a file can differ from those of its model without being seen."""

import dataclasses

import numpy as np
import onnx
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from onnx import helper, numpy_helper

from partwise.exports.onnx.tree_ensemble import TreeEnsemble, tree_ensemble_node
from partwise.exports.proof.tree_structure import check_trees
from tests.exports.random_trees import ensembles


def file_of(trees, change=None):
    node = tree_ensemble_node(trees, "x", "y")
    if change is not None:
        change({attribute.name: attribute for attribute in node.attribute})
    return helper.make_model(helper.make_graph([node], "g", [], []))


@settings(max_examples=60, deadline=None)
@given(trees=ensembles())
def test_the_trees_of_a_model_are_its_own(trees):
    found = check_trees(file_of(trees), trees)
    assert found.findings == ()
    ends = np.concatenate([trees.true_branches, trees.false_branches])
    assert found.metrics["export_nodes_compared"] == len(trees.features) + np.count_nonzero(
        ends < 0
    )


LISTS = (
    "nodes_featureids", "nodes_truenodeids", "nodes_falsenodeids", "nodes_trueleafs",
    "nodes_falseleafs", "nodes_missing_value_tracks_true", "tree_roots",
)  # fmt: skip


@settings(max_examples=120, deadline=None)
@given(trees=ensembles(), name=st.sampled_from(LISTS), data=st.data())
def test_one_changed_number_of_a_node_is_seen(trees, name, data):
    def change(attributes):
        ints = attributes[name].ints
        place = data.draw(st.integers(0, len(ints) - 1))
        wanted = data.draw(st.integers(0, 3))
        assume(ints[place] != wanted)
        ints[place] = wanted

    assert check_trees(file_of(trees, change), trees).findings


@settings(max_examples=120, deadline=None)
@given(
    trees=ensembles(),
    name=st.sampled_from(["nodes_splits", "leaf_weights", "nodes_modes", "membership_values"]),
    data=st.data(),
)
def test_one_ulp_and_the_like_is_seen(trees, name, data):
    assume(name != "membership_values" or any(len(members) for members in trees.sets))

    def change(attributes):
        values = numpy_helper.to_array(attributes[name].t).copy()
        # What a set is not asked for, and the ends of sets, are not numbers of the model.
        allowed = np.ones(len(values), dtype=bool)
        if name == "nodes_splits":
            allowed = ~trees.is_member
        if name == "membership_values":
            allowed = values == np.floor(values)
        assume(allowed.any())
        place = data.draw(st.sampled_from(np.flatnonzero(allowed).tolist()))
        if name == "nodes_modes":
            values[place] = (values[place] + 1) % 7
        elif name == "membership_values":
            values[place] += data.draw(st.sampled_from([7, 0.5]))
        else:
            values[place] = data.draw(
                st.sampled_from([np.nextafter(values[place], -9e9), -values[place] - 1, np.nan])
            )
        attributes[name].t.CopyFrom(numpy_helper.from_array(values))

    assert check_trees(file_of(trees, change), trees).findings


def of_two_leaves(**changes) -> TreeEnsemble:
    trees = TreeEnsemble(
        dtype="float64",
        comparison="LEQ",
        n_targets=1,
        roots=np.array([0]),
        features=np.array([0]),
        splits=np.array([0.5]),
        is_member=np.array([False]),
        true_branches=np.array([~0]),
        false_branches=np.array([~1]),
        missing_tracks_true=np.array([False]),
        sets=(),
        leaf_targets=np.array([0, 0]),
        leaf_weights=np.array([1.0, 0.0]),
    )
    return dataclasses.replace(trees, **changes)


def told(file, trees) -> str:
    (finding,) = check_trees(file, trees).findings
    assert finding.check == "trees"
    return finding.message


def test_what_differs_is_said():
    trees = of_two_leaves()
    found = told(file_of(of_two_leaves(leaf_weights=np.array([1.0, -0.0]))), trees)
    assert "differ from the model's in the value of the leaf, in 1 places" in found
    assert "-0.0" in found
    assert "the dtype of splits float32, where float64 is expected" in told(
        file_of(of_two_leaves(dtype="float32")), trees
    )
    assert "the n_targets 2, where 1 is expected" in told(
        file_of(of_two_leaves(n_targets=2)), trees
    )


def test_a_file_that_goes_in_circles_ends():
    circle = of_two_leaves(true_branches=np.array([0]))
    assert "a leaf on the true branch" in told(file_of(circle), of_two_leaves())


def test_other_operators_of_trees_are_no_trees():
    trees = of_two_leaves()
    empty = helper.make_model(helper.make_graph([], "g", [], []))
    assert "the nodes of trees []" in told(empty, trees)
    twice = file_of(trees)
    twice.graph.node.append(onnx.NodeProto.FromString(twice.graph.node[0].SerializeToString()))
    assert "['TreeEnsemble', 'TreeEnsemble']" in told(twice, trees)
    broken = file_of(trees, lambda attributes: attributes["nodes_truenodeids"].ints.append(0))
    assert "its lists of nodes differ in length" in told(broken, trees)
