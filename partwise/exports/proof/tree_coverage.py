"""Rows that reach all that can be reached of trees.

For each node, rows come to it and take each of its ways: a number on the threshold, the next number
beyond it, and NaN; of a category, each member of the node's set, one that is not, and NaN. So
every leaf is reached, every threshold stood on and passed by one ulp, and every default branch
taken. What the nodes above exclude is left out and counted: no row takes that way.

The nodes above a node bound what comes to it: each number by an interval [low, high], each category
by the sets that it is in and those that it is not in, and NaN by whether all of them send it this
way. A real row is moved into these bounds, feature by feature, as little as it takes; so the rows
differ, and lead to ordinary leaves in the other trees.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import chain

import numpy as np

from partwise.exports.onnx.tree_ensemble import TreeEnsemble

_MOST_BOUNDS = 4_000_000
"""Intervals in memory at a time: two numbers each."""

_NO_CATEGORY = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureSpace:
    """Which values the features of trees can have."""

    category_counts: Mapping[int, int]
    """Of the features whose categories are listed, how many: their codes are below."""
    zeros_are_missing: Sequence[int] = ()
    """The features of which the trees see NaN for a zero."""
    largest_zero: float = 0.0
    """What is taken for zero there: |x| up to this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """Rows, and how much of the trees they reach."""

    rows: np.ndarray
    """Shape (n, features), of the dtype of the real rows."""
    leaves: int
    leaves_reached: int
    leaves_out_of_reach: int
    """No row comes to these, with any values: the nodes above exclude each other."""
    ways: int
    """Ways that a row can take at nodes: on and beyond each threshold, missing, members, others."""
    ways_taken: int
    ways_out_of_reach: int

    @property
    def metrics(self) -> dict[str, float]:
        """Return the figures for the ledger."""
        return {f"export_{name}": float(getattr(self, name)) for name in _COUNTS}


_COUNTS = tuple(field.name for field in fields(Coverage) if field.name != "rows")


def covering_rows(
    trees: TreeEnsemble, real: np.ndarray, space: FeatureSpace, most: int
) -> Coverage:
    """Return rows that reach what can be reached of trees.

    The trees have whole numbers for categories. `real`, shape (n, features) with n >= 1, is what
    the rows are made of. Of trees that need more than about `most` rows, every k-th node is taken.
    """
    sizes = [len(members) for members in trees.sets]
    needed = 3 * len(trees.features) + sum(sizes)
    step = -(-needed // most)
    of_chunks = [
        _Chunk(trees, roots, real, space).cover(step) for roots in _chunks(trees, real.shape[1])
    ]
    counts = {name: sum(getattr(found, name) for found in of_chunks) for name in _COUNTS}
    # real[:0] gives the type and the width where there is nothing to cover.
    rows = np.concatenate([real[:0], *(found.rows for found in of_chunks)])
    return Coverage(rows=rows, **counts)


def _chunks(trees: TreeEnsemble, n_features: int) -> Iterator[np.ndarray]:
    """Yield the roots of some trees at a time, whose bounds fit into memory."""
    per_tree = max(1, len(trees.features) // max(1, len(trees.roots)))
    count = max(1, _MOST_BOUNDS // (per_tree * n_features))
    for start in range(0, len(trees.roots), count):
        yield trees.roots[start : start + count]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sets:
    """What the nodes above say of one category."""

    inside: frozenset[int] | None = None
    """Codes that it is one of; None: any."""
    outside: frozenset[int] = frozenset()

    def has(self, code: int) -> bool:
        """Whether a code, or `_NO_CATEGORY`, comes to the node."""
        return code not in self.outside and (self.inside is None or code in self.inside)

    def within(self, members: frozenset[int]) -> "_Sets":
        """Return what is left on the side of members."""
        inside = members if self.inside is None else self.inside & members
        return _Sets(inside=inside, outside=self.outside)

    def without(self, members: frozenset[int]) -> "_Sets":
        """Return what is left on the other side."""
        return _Sets(inside=self.inside, outside=self.outside | members)

    def any_code(self, count: int | None) -> int | None:
        """Return a code that comes to the node, or None where there is none.

        The count is that of the categories that are known; None: they are not listed.
        """
        if self.inside is not None:
            found = self.inside - self.outside
            known = found if count is None else {code for code in found if code < count}
            return min(known) if known else None
        # One of these is in no set of so many codes.
        candidates = range(len(self.outside) + 1 if count is None else count)
        return next((code for code in candidates if code not in self.outside), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Way:
    """Rows that take one way at nodes: the same one, such as "on the threshold"."""

    nodes: np.ndarray
    values: np.ndarray
    """What their features are set to."""
    is_true: np.ndarray
    """Whether that leads to the true branch."""


class _Chunk:
    """Some trees, and what comes to each of their nodes."""

    def __init__(
        self, trees: TreeEnsemble, roots: np.ndarray, real: np.ndarray, space: FeatureSpace
    ) -> None:
        self._trees, self._real, self._space = trees, real, space
        self._dtype = real.dtype
        self._levels = list(_levels(trees, roots))
        self._nodes = np.concatenate(self._levels)
        # Nodes are numbered again, parents first.
        self._places = np.full(len(trees.features), -1)
        self._places[self._nodes] = np.arange(len(self._nodes))
        self._features = trees.features[self._nodes]
        self._is_member = trees.is_member[self._nodes]
        self._on, self._beyond = self._beside_thresholds()
        shape = (len(self._nodes), real.shape[1])
        self._low = np.full(shape, -np.inf, self._dtype)
        self._high = np.full(shape, np.inf, self._dtype)
        self._missing = np.ones(shape, dtype=bool)
        self._categories: dict[int, dict[int, _Sets]] = {}
        self._set_places = np.cumsum(trees.is_member) - 1
        for level in self._levels:
            self._bound_children(self._places[level])

    def cover(self, step: int) -> Coverage:
        """Return the rows of every `step`-th node."""
        comes = self._comes()
        true = self._trees.true_branches[self._nodes]
        false = self._trees.false_branches[self._nodes]
        # A tree of one leaf has both branches in it: there is nothing to choose.
        splits = true != false
        nodes = np.flatnonzero(splits)
        ways = list(self._ways(nodes, comes))
        n_ways = self._count_ways(nodes)
        taken = [_every(way, step) for way in ways]
        leaves = _leaves(ways, true, false)
        reached = _leaves(taken, true, false)
        n_single = int(np.count_nonzero(~splits))
        n_leaves = int(np.count_nonzero(np.concatenate([true[splits], false[splits]]) < 0))
        return Coverage(
            rows=np.concatenate([self._real[:0], *(self._rows(way) for way in taken)]),
            leaves=n_leaves + n_single,
            leaves_reached=len(reached) + n_single,
            leaves_out_of_reach=n_leaves - len(leaves),
            ways=n_ways,
            ways_taken=sum(len(way.nodes) for way in taken),
            ways_out_of_reach=n_ways - sum(len(way.nodes) for way in ways),
        )

    def _beside_thresholds(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the largest value that each threshold lets pass, and the next one."""
        splits = self._trees.splits[self._nodes].astype(np.float64)
        infinity = self._dtype.type(np.inf)
        with np.errstate(over="ignore"):
            on = splits.astype(self._dtype)
            passes = on <= splits if self._trees.comparison == "LEQ" else on < splits
            on = np.where(passes, on, np.nextafter(on, -infinity))
            beyond = np.nextafter(on, infinity)
        zero = self._dtype.type(self._space.largest_zero)
        is_zeroed = np.isin(self._features, self._space.zeros_are_missing)
        # There a number that is taken for zero is missing: the next ones are beside these.
        on = np.where(is_zeroed & (np.abs(on) <= zero), np.nextafter(-zero, -infinity), on)
        is_zero = is_zeroed & (np.abs(beyond) <= zero)
        return on, np.where(is_zero, np.nextafter(zero, infinity), beyond)

    def _bound_children(self, level: np.ndarray) -> None:
        nodes = self._nodes[level]
        for is_true, branches in (
            (True, self._trees.true_branches),
            (False, self._trees.false_branches),
        ):
            ends = branches[nodes]
            parents = level[ends >= 0]
            children = self._places[ends[ends >= 0]]
            self._low[children] = self._low[parents]
            self._high[children] = self._high[parents]
            self._missing[children] = self._missing[parents]
            features = self._features[parents]
            tracks_true = self._trees.missing_tracks_true[self._nodes[parents]]
            self._missing[children, features] &= tracks_true == is_true
            ordered = ~self._is_member[parents]
            of, cell = parents[ordered], (children[ordered], features[ordered])
            if is_true:
                self._high[cell] = np.minimum(self._high[cell], self._on[of])
            else:
                self._low[cell] = np.maximum(self._low[cell], self._beyond[of])
                # Nothing lies beyond an infinite threshold.
                self._high[cell] = np.where(np.isposinf(self._on[of]), -np.inf, self._high[cell])
            for parent, child in zip(parents.tolist(), children.tolist(), strict=True):
                self._bound_category(parent, child, is_true)

    def _bound_category(self, parent: int, child: int, is_true: bool) -> None:
        bounds = self._categories.get(parent)
        if self._is_member[parent]:
            feature = int(self._features[parent])
            found = self._sets_at(parent, feature)
            members = self._members(parent)
            narrower = found.within(members) if is_true else found.without(members)
            bounds = {**(bounds or {}), feature: narrower}
        if bounds:
            self._categories[child] = bounds

    def _sets_at(self, node: int, feature: int) -> _Sets:
        return self._categories.get(node, {}).get(feature, _Sets())

    def _members(self, node: int) -> frozenset[int]:
        return frozenset(self._trees.sets[self._set_places[self._nodes[node]]].tolist())

    def _comes(self) -> np.ndarray:
        """Return, by node and feature, whether some value of it comes to the node."""
        comes = (self._low <= self._high) | self._missing
        for node, bounds in self._categories.items():
            for feature, found in bounds.items():
                code = found.any_code(self._space.category_counts.get(feature))
                comes[node, feature] = code is not None or self._missing[node, feature]
        return np.asarray(comes)

    def _count_ways(self, nodes: np.ndarray) -> int:
        members = sum(len(self._members(int(node))) for node in nodes[self._is_member[nodes]])
        n_sets = int(np.count_nonzero(self._is_member[nodes]))
        return 3 * (len(nodes) - n_sets) + members + 2 * n_sets

    def _ways(self, nodes: np.ndarray, comes: np.ndarray) -> Iterator[_Way]:
        """Yield the ways that some row can take."""
        features = self._features[nodes]
        others = comes.copy()
        # Its own feature is what a way sets: only the others have to be able to come to the node.
        others[np.arange(len(comes)), self._features] = True
        reached = others[nodes].all(axis=1)
        ordered = ~self._is_member[nodes] & reached
        of, cell = nodes[ordered], (nodes[ordered], features[ordered])
        low, high = self._low[cell], self._high[cell]
        on, beyond = np.minimum(high, self._on[of]), np.maximum(low, self._beyond[of])
        is_on = low <= on
        yield _Way(nodes=of[is_on], values=on[is_on], is_true=np.ones(is_on.sum(), dtype=bool))
        is_beyond = (beyond <= high) & (beyond > self._on[of])
        falsely = np.zeros(is_beyond.sum(), dtype=bool)
        yield _Way(nodes=of[is_beyond], values=beyond[is_beyond], is_true=falsely)
        missing = nodes[reached & self._missing[nodes, features]]
        tracks_true = self._trees.missing_tracks_true[self._nodes[missing]]
        nan = np.full(len(missing), np.nan, self._dtype)
        yield _Way(nodes=missing, values=nan, is_true=tracks_true)
        yield self._ways_of_categories(nodes[self._is_member[nodes] & reached])

    def _ways_of_categories(self, nodes: np.ndarray) -> _Way:
        found: list[tuple[int, int, bool]] = []
        for node in nodes.tolist():
            feature = int(self._features[node])
            count = self._space.category_counts.get(feature)
            sets, members = self._sets_at(node, feature), self._members(node)
            known = (code for code in members if count is None or code < count)
            found += [(node, code, True) for code in sorted(known) if sets.has(code)]
            other = sets.without(members).any_code(count)
            if other is not None:
                found.append((node, other, False))
        table = np.array(found, dtype=np.int64).reshape(-1, 3)
        return _Way(
            nodes=table[:, 0], values=table[:, 1].astype(self._dtype), is_true=table[:, 2] > 0
        )

    def _rows(self, way: _Way) -> np.ndarray:
        """Return real rows, moved so that they come to the nodes and take the way there."""
        bases = np.arange(len(way.nodes)) % len(self._real)
        rows = self._real[bases]
        low, high = self._low[way.nodes], self._high[way.nodes]
        may_miss = self._missing[way.nodes]
        is_missing = np.isnan(rows) & may_miss
        numbers = np.minimum(np.maximum(np.nan_to_num(rows, nan=0.0, posinf=None), low), high)
        rows = np.where(is_missing | (low > high), np.nan, numbers)
        self._leave_zero(rows, high, may_miss)
        self._move_categories(rows, way.nodes)
        # Last, since the steps above may have moved this feature as well.
        rows[np.arange(len(rows)), self._features[way.nodes]] = way.values
        return np.asarray(rows, self._dtype)

    def _leave_zero(self, rows: np.ndarray, high: np.ndarray, may_miss: np.ndarray) -> None:
        zero, infinity = self._dtype.type(self._space.largest_zero), self._dtype.type(np.inf)
        for feature in self._space.zeros_are_missing:
            column = rows[:, feature]
            is_zero = (np.abs(column) <= zero) & ~may_miss[:, feature]
            above, below = np.nextafter(zero, infinity), np.nextafter(-zero, -infinity)
            moved = np.where(above <= high[:, feature], above, below)
            rows[:, feature] = np.where(is_zero, moved, column)

    def _move_categories(self, rows: np.ndarray, nodes: np.ndarray) -> None:
        if not self._categories:
            return
        for row, node in enumerate(nodes.tolist()):
            for feature, sets in self._categories.get(node, {}).items():
                value = rows[row, feature]
                if np.isnan(value):
                    stays = bool(self._missing[node, feature])
                else:
                    stays = sets.has(int(value) if value >= 0 else _NO_CATEGORY)
                if not stays:
                    code = sets.any_code(self._space.category_counts.get(feature))
                    rows[row, feature] = np.nan if code is None else code


def _levels(trees: TreeEnsemble, roots: np.ndarray) -> Iterator[np.ndarray]:
    """Yield the inner nodes of each depth."""
    level = roots
    while len(level):
        yield level
        ends = np.concatenate([trees.true_branches[level], trees.false_branches[level]])
        level = ends[ends >= 0]


def _every(way: _Way, step: int) -> _Way:
    return _Way(nodes=way.nodes[::step], values=way.values[::step], is_true=way.is_true[::step])


def _leaves(ways: Sequence[_Way], true: np.ndarray, false: np.ndarray) -> set[int]:
    """Return the leaves that ways end in."""
    ends = (np.where(way.is_true, true[way.nodes], false[way.nodes]) for way in ways)
    return set(chain.from_iterable(found[found < 0].tolist() for found in ends))
