"""Single changes to the TreeEnsemble of an ONNX file, and rows on which each would show."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

LEQ, LT, GTE, GT, EQ, NEQ, MEMBER = range(7)
"""Modes of a node, as the operator TreeEnsemble of ai.onnx.ml 5 numbers them."""

KINDS = (
    *("threshold 1 ulp", "threshold 1e-3", "threshold 0.1 std", "threshold to float32"),
    *("leaf 1 ulp", "leaf 1e-6", "leaf sign", "leaf zero", "leaf swap", "leaf target"),
    *("default branch", "children", "comparison", "feature"),
    *("category added", "category removed", "tree repeated"),
)
_BASES = 24
"""Rows that each odd value is put into."""

Edit = Callable[[dict[str, Any]], None]
"""Changes the attributes of a node, by name."""


@dataclass(frozen=True)
class TreeChange:
    """One change, and rows (n, features) made for it."""

    place: str
    edit: Edit
    rows: np.ndarray


def ensemble_node(model: onnx.ModelProto) -> Any | None:
    """Return the node of the trees, or None where a graph has none."""
    return next((node for node in model.graph.node if node.op_type == "TreeEnsemble"), None)


def attributes_of(node: Any) -> dict[str, Any]:
    """Return the attributes of a node by name."""
    return {attribute.name: attribute for attribute in node.attribute}


class EnsembleReader:
    """The trees of a TreeEnsemble node, as the operator's specification has them.

    Source: https://onnx.ai/onnx/operators/onnx_aionnxml_TreeEnsemble.html
    """

    def __init__(self, node: Any) -> None:
        found = attributes_of(node)

        def integers(name: str) -> np.ndarray:
            return np.array(found[name].ints, np.int64)

        self.splits = numpy_helper.to_array(found["nodes_splits"].t)
        self.modes = numpy_helper.to_array(found["nodes_modes"].t).astype(np.int64)
        self.weights = numpy_helper.to_array(found["leaf_weights"].t)
        self.roots, self.features = integers("tree_roots"), integers("nodes_featureids")
        self.targets = integers("leaf_targetids")
        self.n_targets = found["n_targets"].i
        tracks = "nodes_missing_value_tracks_true"
        self.nan_is_true = (
            integers(tracks) > 0 if tracks in found else np.zeros(len(self.splits), bool)
        )
        ends = {}
        for side, branch, leaf in (
            (True, "nodes_truenodeids", "nodes_trueleafs"),
            (False, "nodes_falsenodeids", "nodes_falseleafs"),
        ):
            ends[side] = (integers(branch), integers(leaf) > 0)
        self.ends = ends
        self.sets: dict[int, np.ndarray] = {}
        members = np.flatnonzero(self.modes == MEMBER)
        if len(members):
            values = numpy_helper.to_array(found["membership_values"].t)
            parts = np.split(values, np.flatnonzero(np.isnan(values)))
            for node_place, part in zip(members.tolist(), parts, strict=False):
                self.sets[node_place] = part[~np.isnan(part)]

    @cached_property
    def _above(self) -> dict[tuple[int, bool], tuple[int, bool]]:
        """Of each node and leaf, the node above it and the side that leads to it."""
        return {
            (int(end), bool(is_leaf)): (node, side)
            for side, (places, leaves) in self.ends.items()
            for node, (end, is_leaf) in enumerate(zip(places, leaves, strict=True))
        }

    def path(self, place: int, *, is_leaf: bool) -> list[tuple[int, bool]]:
        """Return the nodes from a root to a node or leaf, with the side taken at each."""
        steps = []
        at = (place, is_leaf)
        while at in self._above:
            node, side = self._above[at]
            steps.append((node, side))
            at = (node, False)
        return steps[::-1]

    def is_true(self, node: int, values: np.ndarray) -> np.ndarray:
        """Return for which values of a node's feature it takes its true branch."""
        split, mode = self.splits[node], self.modes[node]
        given = values.astype(self.splits.dtype)
        with np.errstate(invalid="ignore"):
            found = {
                LEQ: given <= split, LT: given < split, GTE: given >= split,
                GT: given > split, EQ: given == split, NEQ: given != split,
            }.get(int(mode))  # fmt: skip
        if found is None:
            found = np.isin(given, self.sets[node])
        return np.where(np.isnan(given), self.nan_is_true[node], found)

    def candidates(self, nodes: list[int], column: np.ndarray) -> np.ndarray:
        """Return values of a feature, of which one is in each range that these nodes divide."""
        ordered = [node for node in nodes if self.modes[node] != MEMBER]
        splits = np.unique(self.splits[ordered])
        middles = splits[:-1] + np.diff(splits) / 2
        codes = [self.sets[node] for node in nodes if self.modes[node] == MEMBER]
        if codes:
            known = np.concatenate(codes)
            codes = [known, np.arange(min(known.max(initial=0) + 3, 2000))]
        odd = [np.nan, 0.0, -1.0, np.inf, -np.inf, *beside(splits)]
        parts = [splits, middles, column, *codes, np.array(odd)]
        return np.unique(np.concatenate([np.asarray(part, np.float64) for part in parts]))

    def rows_at(
        self, path: list[tuple[int, bool]], matrix: np.ndarray, random: np.random.Generator
    ) -> np.ndarray:
        """Return ordinary rows, changed so that they follow a path; none where nothing can."""
        rows = matrix[random.integers(len(matrix), size=_BASES)].astype(np.float64)
        for feature in {int(self.features[node]) for node, _ in path}:
            steps = [step for step in path if self.features[step[0]] == feature]
            column = matrix[random.integers(len(matrix), size=60), feature]
            values = self.candidates([node for node, _ in steps], column)
            fitting = values[self.fits(steps, values)]
            if not len(fitting):
                return rows[:0]
            unfit = ~self.fits(steps, rows[:, feature])
            rows[unfit, feature] = random.choice(fitting, size=int(unfit.sum()))
        return rows

    def fits(self, steps: list[tuple[int, bool]], values: np.ndarray) -> np.ndarray:
        """Return which values of one feature take these sides of these nodes."""
        fitting = np.ones(len(values), bool)
        for node, side in steps:
            fitting &= self.is_true(node, values) == side
        return fitting


def beside(numbers: np.ndarray) -> list[float]:
    """Return the next numbers below and above, in the numbers' own dtype."""
    infinity = numbers.dtype.type(np.inf)
    with np.errstate(over="ignore", under="ignore"):
        both = [np.nextafter(numbers, -infinity), np.nextafter(numbers, infinity)]
    return [float(number) for found in both for number in found]


class TreeMutator:
    """Makes changes of a kind at a random place.

    Args:
        model: A file with a TreeEnsemble.
        matrix: Ordinary rows, shape (n, features), in double; categories as codes.
    """

    def __init__(self, model: onnx.ModelProto, matrix: np.ndarray) -> None:
        self.trees = EnsembleReader(ensemble_node(model))
        self.matrix = matrix
        self.std = np.array([_spread(column) for column in matrix.T])

    def change(self, kind: str, random: np.random.Generator) -> TreeChange | None:
        """Return one change, or None where the trees have no place for it."""
        family = kind.split()[0]
        match family:
            case "threshold":
                return self._threshold(kind, random)
            case "leaf":
                return self._leaf(kind, random)
            case "category":
                return self._category(kind, random)
            case "tree":
                return self._tree(random)
        return self._node(kind, random)

    def _threshold(self, kind: str, random: np.random.Generator) -> TreeChange | None:
        nodes = np.flatnonzero(self.trees.modes != MEMBER)
        if not len(nodes):
            return None
        node = int(random.choice(nodes))
        old, sign = self.trees.splits[node], random.choice([-1.0, 1.0])
        dtype = self.trees.splits.dtype.type
        with np.errstate(over="ignore"):
            new = {
                "threshold 1 ulp": np.nextafter(old, dtype(sign * np.inf)),
                "threshold 1e-3": old * dtype(1 + sign * 1e-3),
                "threshold 0.1 std": old + dtype(sign * 0.1 * self.std[self.trees.features[node]]),
                "threshold to float32": dtype(np.float32(old)),
            }[kind]
        if new == old:
            return None

        def edit(attributes: dict[str, Any]) -> None:
            _set(attributes["nodes_splits"], node, new)

        values = np.array([old, new, old / 2 + new / 2])
        return TreeChange(
            f"node {node}: {old!r} to {new!r}",
            edit,
            self._rows_of_node(node, [*values, *beside(values)], random),
        )

    def _leaf(self, kind: str, random: np.random.Generator) -> TreeChange | None:
        weights, targets = self.trees.weights.copy(), self.trees.targets.copy()
        leaf = int(random.integers(len(weights)))
        paths = [self.trees.path(leaf, is_leaf=True)]
        old, sign = weights[leaf], random.choice([-1.0, 1.0])
        match kind:
            case "leaf 1 ulp":
                weights[leaf] = np.nextafter(old, weights.dtype.type(sign * np.inf))
            case "leaf 1e-6":
                weights[leaf] = old * weights.dtype.type(1 + sign * 1e-6)
            case "leaf sign":
                weights[leaf] = -old
            case "leaf zero":
                weights[leaf] = 0
            case "leaf swap":
                other = int(random.integers(len(weights)))
                weights[[leaf, other]] = weights[[other, leaf]]
                paths.append(self.trees.path(other, is_leaf=True))
            case "leaf target":
                targets[leaf] = (targets[leaf] + 1) % self.trees.n_targets
        is_same = (weights == self.trees.weights).all() and (targets == self.trees.targets).all()
        if is_same:
            return None

        def edit(attributes: dict[str, Any]) -> None:
            _set_all(attributes["leaf_weights"], weights)
            attributes["leaf_targetids"].ints[leaf] = int(targets[leaf])

        rows = [self.trees.rows_at(path, self.matrix, random) for path in paths for _ in range(8)]
        place = f"leaf {leaf}: {old!r} to {weights[leaf]!r}, target {targets[leaf]}"
        return TreeChange(place, edit, np.concatenate(rows))

    def _category(self, kind: str, random: np.random.Generator) -> TreeChange | None:
        if not self.trees.sets:
            return None
        sets = dict(self.trees.sets)
        node = int(random.choice([*sets]))
        known = np.unique(np.concatenate([*sets.values()]))
        if kind == "category removed":
            if len(sets[node]) < 2:
                return None
            code = random.choice(sets[node])
            sets[node] = sets[node][sets[node] != code]
        else:
            others = np.setdiff1d([*known, known.max() + 1], sets[node])
            if not len(others):
                return None
            code = random.choice(others)
            sets[node] = np.append(sets[node], code)

        def edit(attributes: dict[str, Any]) -> None:
            tensor = attributes["membership_values"].t
            end = np.array([np.nan])
            parts = [part for each in sorted(sets) for part in (sets[each], end)]
            values = np.concatenate(parts).astype(numpy_helper.to_array(tensor).dtype)
            tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))

        rows = self._rows_of_node(node, [float(code), float(code) + 0.5], random)
        return TreeChange(f"node {node}: category {code:g}", edit, rows)

    def _tree(self, random: np.random.Generator) -> TreeChange | None:
        roots = self.trees.roots
        if len(roots) < 2:
            return None
        place, other = random.choice(len(roots), size=2, replace=False)

        def edit(attributes: dict[str, Any]) -> None:
            attributes["tree_roots"].ints[int(place)] = int(roots[other])

        rows = np.concatenate(
            [self._rows_of_node(int(root), [], random) for root in roots[[place, other]]]
        )
        return TreeChange(f"tree {place}: that of {other}", edit, rows)

    def _node(self, kind: str, random: np.random.Generator) -> TreeChange | None:
        node = int(random.integers(len(self.trees.splits)))
        trees, old = self.trees, int(self.trees.modes[node])
        edit: Edit
        if kind == "default branch":

            def edit(attributes: dict[str, Any]) -> None:
                tracks = attributes["nodes_missing_value_tracks_true"].ints
                tracks[node] = 1 - tracks[node]

            return TreeChange(f"node {node}", edit, self._rows_of_node(node, [], random))
        if kind == "children":

            def edit(attributes: dict[str, Any]) -> None:
                for one, two in (
                    ("nodes_truenodeids", "nodes_falsenodeids"),
                    ("nodes_trueleafs", "nodes_falseleafs"),
                ):
                    first, second = attributes[one].ints, attributes[two].ints
                    first[node], second[node] = second[node], first[node]

            return TreeChange(f"node {node}", edit, self._rows_of_node(node, [], random))
        if kind == "comparison":
            if old == MEMBER:
                return None
            new = int(random.choice([mode for mode in (LEQ, LT, LEQ, LT, GTE, GT) if mode != old]))

            def edit(attributes: dict[str, Any]) -> None:
                _set(attributes["nodes_modes"], node, new)

            return TreeChange(
                f"node {node}: mode {old} to {new}", edit, self._rows_of_node(node, [], random)
            )
        feature, n_features = int(trees.features[node]), self.matrix.shape[1]
        if n_features < 2:
            return None
        other = int((feature + random.integers(1, n_features)) % n_features)

        def edit(attributes: dict[str, Any]) -> None:
            attributes["nodes_featureids"].ints[node] = other

        rows = self._rows_of_node(node, [], random)
        moved = rows.copy()
        moved[:, other] = random.permutation(rows[:, feature])
        place = f"node {node}: feature {feature} to {other}"
        return TreeChange(place, edit, np.concatenate([rows, moved]))

    def _rows_of_node(
        self, node: int, values: list[float], random: np.random.Generator
    ) -> np.ndarray:
        """Return rows that come by a node, with odd values in its feature."""
        path, feature = self.trees.path(node, is_leaf=False), int(self.trees.features[node])
        bases = self.trees.rows_at(path, self.matrix, random)
        if not len(bases):
            return bases
        steps = [step for step in path if self.trees.features[step[0]] == feature]
        nodes = [node, *(step[0] for step in steps)]
        split = self.trees.splits[[node]]
        odd = [*values, *split, *beside(split), np.nan, 0.0, -0.0, 1e-36, -1e-36, np.inf, -np.inf]
        column = self.matrix[random.integers(len(self.matrix), size=20), feature]
        tried = np.concatenate([np.array(odd), self.trees.candidates(nodes, column)[:200]])
        tried = tried[self.trees.fits(steps, tried)]
        rows = np.repeat(bases, len(tried), axis=0)
        rows[:, feature] = np.tile(tried, len(bases))
        return np.concatenate([bases, rows])


def changes(
    model: onnx.ModelProto, matrix: np.ndarray, random: np.random.Generator
) -> Iterator[tuple[str, TreeChange]]:
    """Yield changes without end, of each kind in turn."""
    mutator, kinds = TreeMutator(model, matrix), random.permutation(KINDS).tolist()
    while True:
        for kind in kinds:
            if (change := mutator.change(kind, random)) is not None:
                yield kind, change


def _spread(column: np.ndarray) -> float:
    finite = column[np.isfinite(column)]
    return float(finite.std()) if len(finite) and finite.std() else 1.0


def _set(attribute: Any, place: int, value: Any) -> None:
    values = numpy_helper.to_array(attribute.t).copy()
    values[place] = value
    _set_all(attribute, values)


def _set_all(attribute: Any, values: np.ndarray) -> None:
    attribute.t.CopyFrom(numpy_helper.from_array(values, attribute.t.name))
