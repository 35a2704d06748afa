"""The trees of a LightGBM model, read from its text, and as a TreeEnsemble.

How LightGBM goes through a tree (include/LightGBM/tree.h, `NumericalDecision` and
`CategoricalDecision`; src/c_api.cpp, `RowPairFunctionFromDenseMatric`), with z = 1e-35 as a float:

- A value with |x| <= z is 0 before any tree sees it.
- A number takes the left branch where x <= threshold. NaN is 0 in a node without missing values;
  in one whose missing values are NaN it takes the default branch; in one whose missing values are
  zeros, 0 and NaN do.
- A category is x without its fraction, so -0.5 is 0. It takes the left branch where it is in the
  node's set; NaN and negative numbers never do.

A TreeEnsemble compares the values as they are. It does the same after two changes. First, a
threshold in [0, z) becomes z, and one in [-z, 0) the next number below -z: so all that LightGBM
takes for 0 is on the side of 0, and all else stays where it was. Second, the features in
`zero_is_missing` have NaN for 0, and those in `categorical` no fractions.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from partwise.errors import ExportRefusedError
from partwise.exports.onnx.tree_ensemble import TreeEnsemble
from partwise.tables.column_names import names_in_words

ZERO = float(np.float32(1e-35))
"""LightGBM's kZeroThreshold: numbers up to it are 0."""

_IS_CATEGORICAL = 1
_DEFAULT_IS_LEFT = 2
_MISSING_IS_ZERO, _MISSING_IS_NAN = 1, 2
_READ = (
    *("num_leaves", "is_linear", "split_feature", "threshold", "decision_type", "left_child"),
    *("right_child", "leaf_value", "cat_boundaries", "cat_threshold"),
    *("leaf_const", "num_features", "leaf_features", "leaf_coeff"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LinearLeaves:
    """What leaves give in place of a number (`linear_tree`): a constant + sum of coefficient * x.

    A leaf gives its number nevertheless where one of its features is NaN (`Tree::Predict`).
    """

    constants: np.ndarray
    """Double, shape (leaves,); of a tree without linear leaves, their numbers."""
    feature_counts: np.ndarray
    """Integers, shape (leaves,)."""
    features: np.ndarray
    """Integers, shape (sum of the counts,), of one leaf after another."""
    coefficients: np.ndarray
    """Double, likewise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LightGBMTrees:
    """The trees that a model predicts with, and what becomes of their sum."""

    objective: str
    """As the text has it, such as "binary sigmoid:1"; empty where it was a function."""
    n_targets: int
    """Trees of one iteration: one, or one for each class."""
    is_average: bool
    """Whether the sum is divided by the number of iterations (random forests)."""
    feature_names: tuple[str, ...]
    leaf_counts: np.ndarray
    """Integers, shape (trees,); the target of tree t is t % n_targets."""
    node_counts: np.ndarray
    """Integers, shape (trees,); a tree of one leaf has one node, with it on both sides."""
    features: np.ndarray
    """Integers, shape (nodes,), as all up to `right`."""
    thresholds: np.ndarray
    """Double; for a category, the place of its set among those of the tree."""
    decision_types: np.ndarray
    """Bits: 1 a category, 2 missing values go left, 4 they are zeros and NaN, 8 they are NaN."""
    left: np.ndarray
    """Integers: the place of a node in its tree, or ~place of a leaf."""
    right: np.ndarray
    leaf_values: np.ndarray
    """Double, shape (leaves,)."""
    sets: Sequence[np.ndarray]
    """For each node of a category, in the order of nodes: the categories that go left."""
    linear: LinearLeaves | None
    """None: no leaf is a linear model."""

    @property
    def n_features(self) -> int:
        """Return the columns of its matrix."""
        return len(self.feature_names)

    @property
    def n_iterations(self) -> int:
        """Return the rounds that it predicts with."""
        return len(self.leaf_counts) // self.n_targets

    @property
    def is_split(self) -> np.ndarray:
        """Return which nodes are some of the model's own: those of trees with several leaves."""
        return np.repeat(self.leaf_counts > 1, self.node_counts)

    @property
    def is_category(self) -> np.ndarray:
        """Return which nodes ask for a category."""
        is_category: np.ndarray = (self.decision_types & _IS_CATEGORICAL) > 0
        return is_category

    @property
    def categorical(self) -> np.ndarray:
        """Return the features that are split as categories, ascending."""
        found: np.ndarray = np.unique(self.features[self.is_category])
        return found

    @property
    def zero_is_missing(self) -> np.ndarray:
        """Return the features whose zeros are missing values, ascending."""
        return np.unique(self.features[self._missing_is(_MISSING_IS_ZERO)])

    def _missing_is(self, kind: int) -> np.ndarray:
        is_kind: np.ndarray = (self.decision_types >> 2) & 3 == kind
        kept: np.ndarray = is_kind & self.is_split & ~self.is_category
        return kept

    def check(self) -> None:
        """Return when each feature is used in one way."""
        nan = self.features[self._missing_is(_MISSING_IS_NAN)]
        if len(both := np.intersect1d(self.zero_is_missing, nan)):
            raise ExportRefusedError(
                f"This LightGBM model takes zeros of the feature {self._names(both)} for missing "
                "in some trees, and for numbers in others: train it again with one zero_as_missing."
            )
        numeric = self.features[self.is_split & ~self.is_category]
        if len(both := np.intersect1d(numeric, self.categorical)):
            raise ExportRefusedError(
                f"This LightGBM model splits the feature {self._names(both)} as a number in some "
                "trees, and as a category in others: train it again with one categorical_feature."
            )

    def _names(self, features: np.ndarray) -> str:
        return names_in_words([self.feature_names[feature] for feature in features])

    def is_constant(self) -> bool:
        """Tell whether all leaves of each tree are equal, and none is a linear model."""
        if self.linear is not None and len(self.linear.features):
            return False
        starts = np.cumsum(self.leaf_counts) - self.leaf_counts
        firsts = np.repeat(self.leaf_values[starts], self.leaf_counts)
        return bool((firsts == self.leaf_values).all())

    def ensemble(self) -> TreeEnsemble:
        """Return the trees as a TreeEnsemble; a model without trees gets one that adds 0.

        Where leaves are linear models, each tree has a target of its own, and gives the place of
        the leaf among those of all trees.
        """
        if not len(self.leaf_counts):
            return _nothing(self.n_targets)
        kind = (self.decision_types >> 2) & 3
        default_is_left = (self.decision_types & _DEFAULT_IS_LEFT) > 0
        # Where nothing is missing, NaN is 0, and 0 goes left of thresholds from 0 on.
        nan_is_left = np.where(kind == 0, self.thresholds >= 0, default_is_left)
        node_starts = np.cumsum(self.node_counts) - self.node_counts
        node_offsets = np.repeat(node_starts, self.node_counts)
        leaf_starts = np.cumsum(self.leaf_counts) - self.leaf_counts
        leaf_offsets = np.repeat(leaf_starts, self.node_counts)
        # The text has one iteration after another, and in each a tree for each class.
        trees = np.arange(len(self.leaf_counts))
        n_targets, targets, weights = self.n_targets, trees % self.n_targets, self.leaf_values
        if self.linear is not None:
            n_targets, targets, weights = len(trees), trees, np.arange(len(weights)) * 1.0
        return TreeEnsemble(
            dtype="float64",
            comparison="LEQ",
            n_targets=n_targets,
            roots=node_starts,
            features=self.features,
            splits=_beside_zero(self.thresholds),
            is_member=self.is_category,
            true_branches=_branches(self.left, node_offsets, leaf_offsets),
            false_branches=_branches(self.right, node_offsets, leaf_offsets),
            missing_tracks_true=nan_is_left & ~self.is_category,
            sets=self.sets,
            leaf_targets=np.repeat(targets, self.leaf_counts),
            leaf_weights=weights,
        )


def _branches(ends: np.ndarray, node_offsets: np.ndarray, leaf_offsets: np.ndarray) -> np.ndarray:
    # ~(leaf + offset) is ~leaf - offset.
    branches: np.ndarray = np.where(ends < 0, ends - leaf_offsets, ends + node_offsets)
    return branches


def _beside_zero(thresholds: np.ndarray) -> np.ndarray:
    """Move thresholds that part the values which LightGBM takes for 0 (see the module)."""
    is_above = (thresholds >= 0) & (thresholds < ZERO)
    is_below = (thresholds < 0) & (thresholds >= -ZERO)
    moved = np.where(is_above, ZERO, thresholds)
    return np.where(is_below, np.nextafter(-ZERO, -np.inf), moved)


def _nothing(n_targets: int) -> TreeEnsemble:
    zeros = np.zeros(n_targets, dtype=np.int64)
    leaves = ~np.arange(n_targets)
    return TreeEnsemble(
        dtype="float64",
        comparison="LEQ",
        n_targets=n_targets,
        roots=np.arange(n_targets),
        features=zeros,
        splits=np.zeros(n_targets),
        is_member=zeros > 0,
        true_branches=leaves,
        false_branches=leaves,
        missing_tracks_true=zeros > 0,
        sets=(),
        leaf_targets=np.arange(n_targets),
        leaf_weights=np.zeros(n_targets),
    )


def read_trees(text: str) -> LightGBMTrees:
    """Read the text of a model: that of `Booster.model_to_string`, whose numbers are exact.

    Raises:
        ExportRefusedError: A feature is used in two ways.
    """
    header, _, rest = text.partition("\nTree=")
    settings = dict(line.partition("=")[::2] for line in header.splitlines())
    lines = _lines(rest.partition("\nend of trees")[0])
    leaf_counts = _integers(lines["num_leaves"])
    # A tree of n leaves has n - 1 nodes. That of one leaf has none, and ONNX wants a root.
    node_counts = np.maximum(leaf_counts - 1, 1)
    is_split = np.repeat(leaf_counts > 1, node_counts)

    def of_nodes(name: str, where_none: int) -> np.ndarray:
        found = _doubles(lines[name]) if name == "threshold" else _integers(lines[name])
        # The text has no words for the nodes that stand in for such trees.
        values = np.full(len(is_split), where_none, dtype=found.dtype)
        values[is_split] = found
        return values

    thresholds, decision_types = of_nodes("threshold", 0), of_nodes("decision_type", 0)
    set_places = thresholds[(decision_types & _IS_CATEGORICAL) > 0].astype(np.int64)
    leaf_values = _doubles(lines["leaf_value"])
    trees = LightGBMTrees(
        objective=settings.get("objective", "").strip(),
        n_targets=int(settings["num_tree_per_iteration"]),
        is_average="average_output" in settings,
        feature_names=tuple(settings["feature_names"].split(" ")),
        leaf_counts=leaf_counts,
        node_counts=node_counts,
        features=of_nodes("split_feature", 0),
        thresholds=thresholds,
        decision_types=decision_types,
        left=of_nodes("left_child", -1),
        right=of_nodes("right_child", -1),
        leaf_values=leaf_values,
        sets=_sets(lines["cat_boundaries"], lines["cat_threshold"], set_places),
        linear=_linear_leaves(lines, leaf_counts, leaf_values),
    )
    trees.check()
    return trees


def _linear_leaves(
    lines: dict[str, list[str]], leaf_counts: np.ndarray, leaf_values: np.ndarray
) -> LinearLeaves | None:
    is_linear = _integers(lines["is_linear"]) > 0
    if not is_linear.any():
        return None
    # Trees of a model that was continued can have none.
    of_linear = np.repeat(is_linear, leaf_counts)
    constants, counts = leaf_values.copy(), np.zeros(len(leaf_values), dtype=np.int64)
    constants[of_linear] = _doubles(lines["leaf_const"])
    counts[of_linear] = _integers(lines["num_features"])
    return LinearLeaves(
        constants=constants,
        feature_counts=counts,
        features=_integers(lines["leaf_features"]),
        coefficients=_doubles(lines["leaf_coeff"]),
    )


def _lines(trees: str) -> dict[str, list[str]]:
    """Return what stands in each line that is needed, by its name: a text for each tree."""
    lines: dict[str, list[str]] = {name: [] for name in _READ}
    for line in trees.split("\n"):
        name, _, values = line.partition("=")
        if name in lines:
            lines[name].append(values)
    return lines


def _integers(lines: list[str]) -> np.ndarray:
    return _numbers(lines, pa.int64())


def _doubles(lines: list[str]) -> np.ndarray:
    return _numbers(lines, pa.float64())


def _numbers(lines: list[str], kind: pa.DataType) -> np.ndarray:
    # Arrow reads each number to the nearest double, as Python does, in a quarter of the time.
    return np.asarray(pa.array(" ".join(lines).split(), pa.string()).cast(kind))


def _sets(boundaries: list[str], thresholds: list[str], places: np.ndarray) -> list[np.ndarray]:
    """Return the sets of the nodes of categories.

    `boundaries` say for each tree with categories where in its bits (`thresholds`, words of 32)
    each set starts and ends; `places` has for each node of a category the place of its set among
    those of its tree.
    """
    sets: list[np.ndarray] = []
    nodes = iter(places.tolist())
    for bounds, written in zip(boundaries, thresholds, strict=True):
        starts = np.array(bounds.split(), dtype=np.int64)
        of_tree = _sets_of_tree(starts, written)
        sets += [of_tree[next(nodes)] for _ in starts[1:]]
    return sets


def _sets_of_tree(starts: np.ndarray, written: str) -> list[np.ndarray]:
    """Return the sets of a tree, by place.

    Large codes make millions of words, nearly all of them 0: only the others are read.
    """
    text = np.frombuffer(written.encode(), dtype=np.uint8)
    firsts = np.append(0, np.flatnonzero(text == ord(" ")) + 1)
    # No other word begins with a 0.
    words = np.flatnonzero(text[firsts] != ord("0"))
    ends = np.append(firsts[1:] - 1, len(text))
    values = np.array(
        [int(written[first:end]) for first, end in zip(firsts[words], ends[words], strict=True)],
        dtype=np.int64,
    )
    # Bit b of word w of a set stands for the category 32 w + b.
    rows, bits = np.nonzero((values[:, None] >> np.arange(32)) & 1)
    of_sets = np.searchsorted(starts, words[rows], side="right") - 1
    members = 32 * (words[rows] - starts[of_sets]) + bits
    return np.split(members, np.searchsorted(of_sets, np.arange(1, len(starts) - 1)))
