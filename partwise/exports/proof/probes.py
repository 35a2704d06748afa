"""Rows on which exports go wrong: every way through trees, odd numbers, odd categories.

Each row is a real one with one feature replaced, or moved to where it takes a way, so that the
others stay ordinary. Nothing is drawn at random: the same model and rows give the same probes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from partwise.exports.onnx.tree_ensemble import TreeEnsemble
from partwise.exports.proof.tree_coverage import Coverage, FeatureSpace, covering_rows
from partwise.exports.protocol import ModelDescription
from partwise.models.signature import Feature, Feeds, Signature, feeds_of_matrix, matrix_of_feeds

MOST_ROWS = 2000
MOST_WAYS = 50_000
"""Rows through the trees of one model; of larger ones every k-th node is taken."""
ONE_ROW = "one row"
EMPTY_BATCH = "empty batch"
ODD_NUMBERS = "odd numbers"
"""The case of zeros, missing values and numbers of every magnitude."""
INFINITIES = "infinities"

_ZERO_THRESHOLD = 1e-35
"""What LightGBM takes for zero: |x| <= 1e-35 (`kZeroThreshold` in its include/LightGBM/meta.h)."""

_LARGE_CODE = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Probes:
    """Inputs by the name of their case, and what was left out or changed."""

    cases: Mapping[str, Feeds]
    notes: tuple[str, ...] = ()
    metrics: Mapping[str, float] = field(default_factory=dict)
    """How much of trees the rows reach, for the ledger."""


def make_probes(description: ModelDescription, feeds: Feeds) -> Probes:
    """Return inputs on which an export is likely to differ from its model.

    For trees: "branches", rows that take every way through them (see `tree_coverage`). For numbers
    in columns: "odd numbers", "infinities" (a case of its own, since XGBoost refuses them),
    "categories". For inputs that the user's function made: "perturbed rows". For all: "one row" and
    "empty batch".

    Of all cases together but "branches", what is more than `MOST_ROWS` is sampled evenly, as a note
    says.
    """
    signature = description.signature
    if signature.layout == "custom" and description.trees is None:
        return _custom_probes(description, feeds)
    matrix = np.asarray(matrix_of_feeds(signature, feeds))
    notes = []
    if not len(matrix):
        matrix = np.zeros((1, matrix.shape[1]), matrix.dtype)
        notes.append("There are no real rows: the probes vary a row of zeros.")
    maker = _Maker(description, matrix)
    quarter = MOST_ROWS // 4
    cases = {
        ODD_NUMBERS: maker.vary(maker.odd_numbers(), quarter, ODD_NUMBERS),
        INFINITIES: maker.vary(maker.infinities(), quarter // 2, INFINITIES),
        "categories": maker.vary(maker.categories(), quarter, "categories"),
    }
    metrics: Mapping[str, float] = {}
    if description.trees is not None:
        covered = maker.covering_rows(description, description.trees)
        cases, metrics = {"branches": covered.rows, **cases}, covered.metrics
        left_out = covered.ways - covered.ways_taken - covered.ways_out_of_reach
        if left_out:
            notes.append(
                f"Rows take {covered.ways_taken} of the {covered.ways} ways at the nodes of the "
                "trees, evenly spread."
            )
    elif not has_trees(description):
        cases = {"perturbed rows": _perturb(matrix), "categories": cases["categories"]}
    return Probes(
        cases={
            **{name: feeds_of_matrix(signature, rows) for name, rows in cases.items() if len(rows)},
            ONE_ROW: feeds_of_matrix(signature, matrix[:1]),
            EMPTY_BATCH: feeds_of_matrix(signature, matrix[:0]),
        },
        notes=(*notes, *maker.notes),
        metrics=metrics,
    )


class _Maker:
    """Makes rows of a model's features; a value is a pair of a feature's place and a number."""

    def __init__(self, description: ModelDescription, matrix: np.ndarray) -> None:
        self.notes: list[str] = []
        self._dtype = np.dtype(_number_dtype(description.signature))
        self._matrix = matrix.astype(self._dtype)
        self._features = description.signature.features
        trees = description.trees
        self._split = frozenset[int]() if trees is None else frozenset(trees.features.tolist())
        self._members = {} if trees is None else _members(description.signature, trees)
        missing = description.missing_number
        self._missing = np.array([] if missing is None else [missing], self._dtype)

    def covering_rows(self, description: ModelDescription, trees: TreeEnsemble) -> Coverage:
        """Return rows that take every way through trees."""
        space = FeatureSpace(
            category_counts={
                place: len(feature.categories)
                for place, feature in enumerate(self._features)
                if feature.categories is not None
            },
            zeros_are_missing=description.zeros_are_missing,
            largest_zero=description.largest_zero,
        )
        # Where the trees see NaN, also where the row has a value.
        seen = np.where(np.isin(self._matrix, self._missing), np.nan, self._matrix)
        return covering_rows(trees, seen.astype(self._dtype), space, MOST_WAYS)

    def odd_numbers(self) -> np.ndarray:
        """Return missing, zeros of both signs and what stands for zero, large and small numbers."""
        # LightGBM's zero is a float, which as a double is a little more than 1e-35: both are tried.
        tiny = np.array([_ZERO_THRESHOLD, float(np.float32(_ZERO_THRESHOLD))], self._dtype)
        tiny = np.unique(np.concatenate([tiny, *_beside(tiny)]))
        limits = np.finfo(self._dtype)
        # Infinite in single precision, which shows a graph that is not double all the way.
        large = 1e300 if self._dtype == np.float64 else float(limits.max)
        small = float(limits.smallest_subnormal)
        # A time stamp, of which single precision keeps two minutes.
        large_numbers = [1.7e9 + 0.123456, large]
        signed = np.concatenate([[0.0, small], tiny, large_numbers])
        missing = np.concatenate([self._missing, *_beside(self._missing)])
        return self._for_each(self._numeric(), [np.nan, *missing, *signed, *-signed])

    def infinities(self) -> np.ndarray:
        """Return both infinities for every number."""
        return self._for_each(self._numeric(), [np.inf, -np.inf])

    def categories(self) -> np.ndarray:
        """Return every category, what is none, and missing; where codes are numbers, odd ones."""
        values = [
            (place, code)
            for place, feature in enumerate(self._features)
            if feature.categories is not None
            for code in _codes(feature)
        ]
        # The libraries cut codes to whole numbers, which a TreeEnsemble does not do by itself.
        values += [
            (place, code) for place in self._members for code in (*self._members[place] + 0.5, -0.5)
        ]
        return _pairs(values)

    def vary(self, values: np.ndarray, most_rows: int, noun: str) -> np.ndarray:
        """Return a row for each value, in real rows one after another."""
        if len(values) > most_rows:
            self.notes.append(f"{most_rows} of {len(values)} {noun} are probed, evenly spread.")
            values = values[np.linspace(0, len(values) - 1, most_rows).astype(np.int64)]
        rows: np.ndarray = self._matrix[np.arange(len(values)) % len(self._matrix)]
        with np.errstate(over="ignore"):
            rows[np.arange(len(rows)), values[:, 0].astype(np.int64)] = values[:, 1]
        return rows

    def _numeric(self) -> list[int]:
        """Return the places of numbers, those first that the trees split."""
        known = {
            place for place, found in enumerate(self._features) if found.categories is not None
        }
        numeric = [place for place in range(self._matrix.shape[1]) if place not in known]
        return sorted(numeric, key=lambda place: place not in self._split)

    def _for_each(self, places: Sequence[int], numbers: Sequence[float]) -> np.ndarray:
        return _pairs([(place, number) for number in numbers for place in places])


def _beside(numbers: np.ndarray) -> list[np.ndarray]:
    """Return the next numbers below and above, in the numbers' own dtype."""
    with np.errstate(over="ignore", under="ignore"):
        infinity = numbers.dtype.type(np.inf)
        return [np.nextafter(numbers, -infinity), np.nextafter(numbers, infinity)]


def _members(signature: Signature, trees: TreeEnsemble) -> dict[int, np.ndarray]:
    """Return for each feature that takes codes as numbers those that are in any set."""
    found: dict[int, list[np.ndarray]] = {}
    for place, members in zip(trees.features[trees.is_member].tolist(), trees.sets, strict=True):
        if signature.layout != "columns" or signature.inputs[place].dtype != "string":
            found.setdefault(place, []).append(members)
    return {place: np.unique(np.concatenate(sets)) for place, sets in found.items()}


def _codes(feature: Feature) -> list[float]:
    n_categories = len(feature.categories or ())
    return [*map(float, range(n_categories)), float(n_categories), float(_LARGE_CODE), np.nan]


def _pairs(values: Sequence[tuple[int, float]]) -> np.ndarray:
    return np.array(values, np.float64).reshape(-1, 2)


def _number_dtype(signature: Signature) -> str:
    """Return the dtype of a model's numbers; of one that takes only text, that of its codes."""
    return next((t.dtype for t in signature.inputs if t.dtype != "string"), "float64")


def has_trees(description: ModelDescription) -> bool:
    """Whether a model has trees, whose odd numbers are probed here; else `odd_inputs.py` does."""
    return description.trees is not None or description.is_constant


def _custom_probes(description: ModelDescription, feeds: Feeds) -> Probes:
    """Vary what the user's function made: floats by a tenth of their spread, up and down in turn.

    Whole numbers, bools and text stay as they are, for they may be indices, masks or tokens.
    """
    signature = description.signature
    batched = {tensor.name for tensor in signature.inputs if tensor.shape[:1] == (None,)}
    cases: dict[str, Feeds] = {}
    if any(values.dtype.kind == "f" and values.size for values in feeds.values()):
        cases["perturbed rows"] = {name: _perturb(values) for name, values in feeds.items()}
    if batched:
        for case, stop in ((ONE_ROW, 1), (EMPTY_BATCH, 0)):
            cases[case] = {n: v[:stop] if n in batched else v for n, v in feeds.items()}
    return Probes(cases=cases)


def _perturb(values: np.ndarray) -> np.ndarray:
    if values.dtype.kind != "f" or not values.size:
        return values
    finite = values[np.isfinite(values)].astype(np.float64)
    spread = float(np.std(finite)) if finite.size else 0.0
    signs = np.where(np.arange(values.size) % 2, -1.0, 1.0).reshape(values.shape)
    return np.asarray((values + 0.1 * (spread or 1.0) * signs).astype(values.dtype))
