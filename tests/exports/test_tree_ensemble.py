"""The arrays of a TreeEnsemble mean in onnxruntime what they say."""

import dataclasses

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from partwise.exports.onnx.tree_ensemble import TreeEnsemble, tree_ensemble_node
from tests.lazily import Lazily

onnxruntime = Lazily("onnxruntime")

# x0 <= 0.1 ? (x1 in {0, 3, 40, 1000} ? 1 : 2) : 4, and a tree of one leaf.
TREES = TreeEnsemble(
    dtype="float64",
    comparison="LEQ",
    n_targets=1,
    roots=np.array([0, 2]),
    features=np.array([0, 1, 0]),
    splits=np.array([0.1, 0.0, 0.0]),
    is_member=np.array([False, True, False]),
    true_branches=np.array([1, ~0, ~3]),
    false_branches=np.array([~2, ~1, ~3]),
    missing_tracks_true=np.array([True, False, False]),
    sets=[np.array([0, 3, 40, 1000])],
    leaf_targets=np.zeros(4, dtype=np.int64),
    leaf_weights=np.array([1.0, 2.0, 4.0, 0.1]),
)
ABOVE = np.nextafter(0.1, 1)


def scores(trees, rows):
    kind = {"float32": TensorProto.FLOAT, "float64": TensorProto.DOUBLE}[trees.dtype]
    row_info = helper.make_tensor_value_info("x", kind, [None, 2])
    score_info = helper.make_tensor_value_info("y", kind, [None, trees.n_targets])
    graph = helper.make_graph([tree_ensemble_node(trees, "x", "y")], "g", [row_info], [score_info])
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("ai.onnx.ml", 5)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    onnx.checker.check_model(model, full_check=True)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    (found,) = session.run(None, {"x": np.array(rows, dtype=trees.dtype)})
    return found


@pytest.mark.parametrize(
    ("row", "leaf"),
    [
        ([0.1, 3.0], 1.0),
        ([ABOVE, 3.0], 4.0),
        ([np.nan, 1000.0], 1.0),
        ([-np.inf, -0.0], 1.0),
        ([0.0, 40.0], 1.0),
        ([0.0, 39.0], 2.0),
        ([0.0, np.nan], 2.0),
        ([0.0, np.inf], 2.0),
        ([0.0, -3.0], 2.0),
        ([np.inf, np.nan], 4.0),
    ],
)
def test_a_row_comes_to_its_leaf(row, leaf):
    assert scores(TREES, [row]) == leaf + 0.1


def test_an_empty_set_has_no_members():
    trees = dataclasses.replace(TREES, sets=[np.array([], dtype=np.int64)])
    values = [0.0, 1.0, 3.0, -1.0, np.nan]
    np.testing.assert_array_equal(scores(trees, [[0.0, value] for value in values]), 2.0 + 0.1)


def test_trees_have_targets():
    trees = dataclasses.replace(TREES, n_targets=2, leaf_targets=np.array([0, 0, 0, 1]))
    np.testing.assert_array_equal(scores(trees, [[0.0, 3.0], [1.0, 0.0]]), [[1.0, 0.1], [4.0, 0.1]])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("comparison", ["LEQ", "LT"])
def test_a_row_on_a_threshold_goes_by_the_comparison(dtype, comparison):
    trees = dataclasses.replace(TREES, dtype=dtype, comparison=comparison)
    on = np.dtype(dtype).type(0.1)
    rows = [[value, 3.0] for value in (np.nextafter(on, -np.inf), on, np.nextafter(on, np.inf))]
    wanted = np.array([[1.0], [1.0 if comparison == "LEQ" else 4.0], [4.0]], dtype) + on
    np.testing.assert_array_equal(scores(trees, rows), wanted)
    # np.nextafter of a Python number would be a double.
    assert len({value for value, _ in rows}) == 3
