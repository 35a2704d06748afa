"""The trees of an ONNX file, node by node, beside those that its model has.

Rows show a difference where it alters a prediction by more than the tolerance. Here each number is
compared with its bits, so nothing is too small. What is compared with was read from the training
library's own dump of the model, in another process than the one that reads the file here.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from partwise.exports.onnx.tree_ensemble import BRANCH_MEMBER, MODES, TreeEnsemble
from partwise.exports.proof.verdict import Finding, Verdict


def check_trees(model: Any, expected: TreeEnsemble) -> Verdict:
    """Compare the trees of a file with those of its model.

    export_nodes_compared are inner nodes and leaves of the model.
    """
    found = [node for node in model.graph.node if node.op_type.startswith("TreeEnsemble")]
    if len(found) != 1 or found[0].op_type != "TreeEnsemble":
        names = [node.op_type for node in found]
        return _failed(f"The file has the nodes of trees {names}, where one TreeEnsemble is due.")
    try:
        trees = _FileTrees(found[0])
    except (KeyError, ValueError) as error:
        return _failed(f"The file's trees cannot be read: {type(error).__name__}: {error}")
    if wrong := trees.wrong_settings(expected):
        return _failed(f"The file's trees have {wrong}.")
    return _Walk(trees, expected).compare()


def _failed(message: str) -> Verdict:
    return _verdict([Finding(check="trees", message=message)], 0)


def _verdict(findings: Sequence[Finding], compared: int) -> Verdict:
    return Verdict(findings=tuple(findings), metrics={"export_nodes_compared": compared})


class _FileTrees:
    """The attributes of a TreeEnsemble node, as they stand in the file.

    Raises:
        KeyError: One is missing.
        ValueError: Lists that go together differ in length, or a place is out of them.
    """

    def __init__(self, node: Any) -> None:
        from onnx import helper, numpy_helper

        values = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        self.n_targets = values.get("n_targets")
        self.aggregate = values.get("aggregate_function", 1)
        self.transform = values.get("post_transform", 0)
        self.roots = np.array(values["tree_roots"], np.int64)
        self.features = np.array(values["nodes_featureids"], np.int64)
        self.modes = numpy_helper.to_array(values["nodes_modes"])
        self.splits = numpy_helper.to_array(values["nodes_splits"])
        no = np.zeros(len(self.features), np.int64)
        self.missing = np.array(values.get("nodes_missing_value_tracks_true", no), np.int64)
        self.ends = {
            side: np.array(values[f"nodes_{side}nodeids"], np.int64) for side in ("true", "false")
        }
        self.is_leaf = {
            side: np.array(values[f"nodes_{side}leafs"], np.int64) for side in ("true", "false")
        }
        self.leaf_targets = np.array(values["leaf_targetids"], np.int64)
        self.leaf_weights = numpy_helper.to_array(values["leaf_weights"])
        members = values.get("membership_values")
        self._members = np.empty(0) if members is None else numpy_helper.to_array(members)
        self._check()
        self._ends_of_sets = np.flatnonzero(np.isnan(self._members))
        self._set_places = np.cumsum(self.modes == BRANCH_MEMBER) - 1

    def members(self, node: int) -> np.ndarray:
        """Return the set of a node: the list has one after another, with NaN after each."""
        place = self._set_places[node]
        if self.modes[node] != BRANCH_MEMBER or place >= len(self._ends_of_sets):
            return np.empty(0)
        start = 0 if place == 0 else self._ends_of_sets[place - 1] + 1
        return np.unique(self._members[start : self._ends_of_sets[place]])

    def wrong_settings(self, expected: TreeEnsemble) -> str:
        """Return in words what is said of all trees and is not what is expected, or nothing."""
        wanted = {
            "n_targets": (self.n_targets, expected.n_targets),
            "aggregate_function": (self.aggregate, 1),
            "post_transform": (self.transform, 0),
            "number of trees": (len(self.roots), len(expected.roots)),
            "dtype of splits": (self.splits.dtype.name, expected.dtype),
            "dtype of weights": (self.leaf_weights.dtype.name, expected.dtype),
        }
        return ", ".join(
            f"the {name} {there}, where {due} is expected"
            for name, (there, due) in wanted.items()
            if there != due
        )

    def _check(self) -> None:
        lists = (self.modes, self.splits, self.missing, *self.ends.values(), *self.is_leaf.values())
        if {len(values) for values in lists} != {len(self.features)}:
            raise ValueError("its lists of nodes differ in length")
        if len(self.leaf_targets) != len(self.leaf_weights):
            raise ValueError("its lists of leaves differ in length")
        for side, ends in self.ends.items():
            if not np.isin(self.is_leaf[side], (0, 1)).all():
                raise ValueError(f"nodes_{side}leafs has numbers other than 0 and 1")
            most = np.where(self.is_leaf[side] == 1, len(self.leaf_weights), len(self.features))
            if ((ends < 0) | (ends >= most)).any():
                raise ValueError(f"a {side} branch ends nowhere")
        if ((self.roots < 0) | (self.roots >= len(self.features))).any():
            raise ValueError("a root is not a node")


class _Walk:
    """Goes through both from the roots, one depth after another, pair by pair."""

    def __init__(self, found: _FileTrees, expected: TreeEnsemble) -> None:
        self._found, self._expected = found, expected
        self._set_places = np.cumsum(expected.is_member) - 1
        self._counts: dict[str, int] = {}
        self._firsts: dict[str, str] = {}

    def compare(self) -> Verdict:
        """Return what differs."""
        found, expected, compared = self._found.roots, self._expected.roots, 0
        # The expected trees have an end, also where the file has circles.
        while len(expected):
            compared += len(expected)
            self._compare_nodes(found, expected)
            next_found, next_expected = [], []
            for side, branches in (
                ("true", self._expected.true_branches),
                ("false", self._expected.false_branches),
            ):
                ends, wanted = self._found.ends[side][found], branches[expected]
                is_leaf, due = self._found.is_leaf[side][found] == 1, wanted < 0
                self._note(f"a leaf on the {side} branch", is_leaf, due, expected)
                leaves = is_leaf & due
                compared += int(np.count_nonzero(due))
                self._compare_leaves(ends[leaves], ~wanted[leaves])
                inner = ~is_leaf & ~due
                next_found.append(ends[inner])
                next_expected.append(wanted[inner])
            found, expected = np.concatenate(next_found), np.concatenate(next_expected)
        findings = [
            Finding(
                check="trees",
                message=f"The file's trees differ from the model's in {name}, in {count} places: "
                f"first {self._firsts[name]}.",
                count=count,
            )
            for name, count in self._counts.items()
        ]
        return _verdict(findings, compared)

    def _compare_nodes(self, found: np.ndarray, expected: np.ndarray) -> None:
        trees, due = self._found, self._expected
        is_member = due.is_member[expected]
        modes = np.where(is_member, BRANCH_MEMBER, MODES[due.comparison])
        self._note("the comparison", trees.modes[found].astype(np.int64), modes, expected)
        self._note(
            "the feature", trees.features[found], due.features[expected].astype(np.int64), expected
        )
        missing = due.missing_tracks_true[expected].astype(np.int64)
        self._note("the branch of missing values", trees.missing[found], missing, expected)
        ordered = ~is_member
        splits = due.splits[expected][ordered].astype(due.dtype)
        self._note("the threshold", trees.splits[found][ordered], splits, expected[ordered])
        for node, wanted in zip(
            found[is_member].tolist(), expected[is_member].tolist(), strict=True
        ):
            members = due.sets[self._set_places[wanted]]
            there = trees.members(node)
            # A set without members stands in the file as one with a number that no category has.
            there = there[there == np.floor(there)]
            if not np.array_equal(there, np.unique(members)):
                self._add("the set of categories", 1, f"{there} at node {wanted}, not {members}")

    def _compare_leaves(self, found: np.ndarray, expected: np.ndarray) -> None:
        trees, due = self._found, self._expected
        self._note(
            "the target",
            trees.leaf_targets[found],
            due.leaf_targets[expected].astype(np.int64),
            expected,
        )
        weights = due.leaf_weights[expected].astype(due.dtype)
        self._note("the value of the leaf", trees.leaf_weights[found], weights, expected)

    def _note(self, name: str, found: np.ndarray, expected: np.ndarray, places: np.ndarray) -> None:
        # As bits: -0.0 is another number than 0.0, and NaN is itself.
        bits = f"u{expected.dtype.itemsize}"
        there, due = (np.ascontiguousarray(values).view(bits) for values in (found, expected))
        differ = np.flatnonzero(there != due)
        if len(differ):
            first = differ[0]
            self._add(
                name,
                len(differ),
                f"{found[first]!r} at place {places[first]} of the model, not {expected[first]!r}",
            )

    def _add(self, name: str, count: int, first: str) -> None:
        self._counts[name] = self._counts.get(name, 0) + count
        self._firsts.setdefault(name, first)
