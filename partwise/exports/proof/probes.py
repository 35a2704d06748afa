"""Rows on which exports go wrong: on every threshold and next to it, odd numbers, odd categories.

Each row is a real one with one feature replaced, so that the others lead to where that feature
matters. Nothing is drawn at random: the same model and rows give the same probes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from partwise.exports.proof.verdict import ODD_NUMBERS
from partwise.exports.protocol import ModelDescription
from partwise.models.signature import Feature, Feeds, Signature, feeds_of_matrix, matrix_of_feeds

MOST_ROWS = 2000
ONE_ROW = "one row"
EMPTY_BATCH = "empty batch"

_MOST_BASES = 3
"""Real rows that a threshold is put into."""

_ZERO_THRESHOLD = 1e-35
"""What LightGBM takes for zero: |x| <= 1e-35 (`kZeroThreshold` in its include/LightGBM/meta.h)."""

_LARGE_CODE = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Probes:
    """Inputs by the name of their case, and what was left out or changed."""

    cases: Mapping[str, Feeds]
    notes: tuple[str, ...] = ()


def make_probes(description: ModelDescription, feeds: Feeds, most_rows: int = MOST_ROWS) -> Probes:
    """Return inputs on which an export is likely to differ from its model.

    For trees ("tensor" and "columns"): "thresholds", "odd numbers", "infinities" (a case of its
    own, since XGBoost refuses them), "categories". For inputs that the user's function made:
    "perturbed rows". For all: "one row" and "empty batch".

    Args:
        description: Of the model.
        feeds: Inputs made of real rows, which the probes are variations of.
        most_rows: Of all cases together; what is more is sampled evenly, as a note says.
    """
    signature = description.signature
    if signature.layout == "custom":
        return _custom_probes(signature, feeds)
    matrix = np.asarray(matrix_of_feeds(signature, feeds))
    notes = []
    if not len(matrix):
        matrix = np.zeros((1, len(signature.features)), matrix.dtype)
        notes.append("There are no real rows: the probes vary a row of zeros.")
    maker = _Maker(description, matrix)
    quarter = most_rows // 4
    cases = {
        ODD_NUMBERS: maker.vary(maker.odd_numbers(), quarter, ODD_NUMBERS),
        "infinities": maker.vary(maker.infinities(), quarter // 2, "infinities"),
        "categories": maker.vary(maker.categories(), quarter, "categories"),
    }
    # Thresholds get what the others leave, less the one row.
    left = most_rows - sum(len(rows) for rows in cases.values()) - 1
    cases = {"thresholds": maker.thresholds(left), **cases}
    return Probes(
        cases={
            **{n: feeds_of_matrix(signature, rows) for n, rows in cases.items() if len(rows)},
            ONE_ROW: feeds_of_matrix(signature, matrix[:1]),
            EMPTY_BATCH: feeds_of_matrix(signature, matrix[:0]),
        },
        notes=(*notes, *maker.notes),
    )


class _Maker:
    """Makes rows of a model's features; a value is a pair of a feature's place and a number."""

    def __init__(self, description: ModelDescription, matrix: np.ndarray) -> None:
        self.notes: list[str] = []
        self._dtype = np.dtype(_number_dtype(description.signature))
        self._matrix = matrix.astype(self._dtype)
        self._features = description.signature.features
        self._thresholds = description.thresholds

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
        return self._for_each(self._numeric(), [np.nan, *signed, *-signed])

    def infinities(self) -> np.ndarray:
        """Return both infinities for every number."""
        return self._for_each(self._numeric(), [np.inf, -np.inf])

    def categories(self) -> np.ndarray:
        """Return every category, what is none, and missing."""
        values = [
            (place, code)
            for place, feature in enumerate(self._features)
            if feature.categories is not None
            for code in _codes(feature)
        ]
        return _pairs(values)

    def vary(self, values: np.ndarray, most_rows: int, noun: str) -> np.ndarray:
        """Return a row for each value, in real rows one after another."""
        values = self._sample(values, most_rows, noun)
        bases = np.arange(len(values)) % len(self._matrix)
        return self._replace(bases, values)

    def thresholds(self, most_rows: int) -> np.ndarray:
        """Return rows on and next to every threshold.

        They are made of the real rows whose value lies nearest to it, since those are the most
        likely to come by the node that it splits.
        """
        split = {
            place: np.asarray(found, np.float64)
            for place, found in enumerate(self._thresholds)
            if self._features[place].categories is None and len(found)
        }
        if not split:
            return self._matrix[:0]
        places = np.repeat([*split], [len(found) for found in split.values()])
        pairs = np.column_stack([places, np.concatenate([*split.values()])])
        # Nothing lies beyond an infinite threshold.
        pairs = pairs[np.isfinite(pairs[:, 1])]
        per_threshold = _neighbours(np.zeros(1), self._dtype).shape[1]
        pairs = self._sample(pairs, most_rows // per_threshold, "thresholds")
        if not len(pairs):
            return self._matrix[:0]
        n_values = len(pairs) * per_threshold
        n_bases = min(_MOST_BASES, max(1, most_rows // n_values), len(self._matrix))
        bases = np.concatenate(
            [self._nearest(int(place), pairs, n_bases) for place in np.unique(pairs[:, 0])]
        )
        places = np.repeat(pairs[:, 0], per_threshold)
        values = np.column_stack([places, _neighbours(pairs[:, 1], self._dtype).reshape(-1)])
        return np.concatenate(
            [
                self._replace(np.repeat(bases[:, choice], per_threshold), values)
                for choice in range(n_bases)
            ]
        )

    def _nearest(self, place: int, pairs: np.ndarray, n_bases: int) -> np.ndarray:
        """Return the real rows next to each threshold of a feature, of shape (n, n_bases)."""
        thresholds = pairs[pairs[:, 0] == place, 1]
        column = self._matrix[:, place]
        order = np.argsort(column, kind="stable")
        found = np.searchsorted(column[order], thresholds.astype(self._dtype))
        # The row at the threshold or above it, the one below, the next one above.
        steps = np.array([0, -1, 1])[:n_bases]
        return np.asarray(order[np.clip(found[:, None] + steps, 0, len(column) - 1)])

    def _replace(self, bases: np.ndarray, values: np.ndarray) -> np.ndarray:
        rows = self._matrix[bases]
        with np.errstate(over="ignore"):
            rows[np.arange(len(rows)), values[:, 0].astype(np.int64)] = values[:, 1]
        return np.asarray(rows)

    def _sample(self, values: np.ndarray, most: int, noun: str) -> np.ndarray:
        if len(values) <= most:
            return values
        self.notes.append(f"{most} of {len(values)} {noun} are probed, evenly spread.")
        return np.asarray(values[np.linspace(0, len(values) - 1, most).astype(np.int64)])

    def _numeric(self) -> list[int]:
        """Return the places of numbers, those first that the trees split."""
        numeric = [p for p, feature in enumerate(self._features) if feature.categories is None]
        split = {place for place, found in enumerate(self._thresholds) if len(found)}
        return sorted(numeric, key=lambda place: place not in split)

    def _for_each(self, places: Sequence[int], numbers: Sequence[float]) -> np.ndarray:
        return _pairs([(place, number) for number in numbers for place in places])


def _neighbours(thresholds: np.ndarray, dtype: np.dtype[np.floating]) -> np.ndarray:
    """Return for each threshold the values on and next to it, of shape (n, k).

    In double, also what it is in single precision: converters are known to round thresholds.
    """
    with np.errstate(over="ignore"):
        single = thresholds.astype(np.float32)
    if dtype == np.float32:
        return np.column_stack([single, *_beside(single)]).astype(np.float64)
    return np.column_stack([thresholds, *_beside(thresholds), single.astype(np.float64)])


def _beside(numbers: np.ndarray) -> list[np.ndarray]:
    """Return the next numbers below and above, in the numbers' own dtype."""
    with np.errstate(over="ignore", under="ignore"):
        infinity = numbers.dtype.type(np.inf)
        return [np.nextafter(numbers, -infinity), np.nextafter(numbers, infinity)]


def _codes(feature: Feature) -> list[float]:
    n_categories = len(feature.categories or ())
    return [*map(float, range(n_categories)), float(n_categories), float(_LARGE_CODE), np.nan]


def _pairs(values: Sequence[tuple[int, float]]) -> np.ndarray:
    return np.array(values, np.float64).reshape(-1, 2)


def _number_dtype(signature: Signature) -> str:
    """Return the dtype of a model's numbers; of one that takes only text, that of its codes."""
    return next((t.dtype for t in signature.inputs if t.dtype != "string"), "float64")


def _custom_probes(signature: Signature, feeds: Feeds) -> Probes:
    """Vary what the user's function made: floats by a tenth of their spread, up and down in turn.

    Whole numbers, bools and text stay as they are, for they may be indices, masks or tokens; NaN
    is not put in, for a model of one's own may not be made for it.
    """
    batched = {tensor.name for tensor in signature.inputs if tensor.shape[:1] == (None,)}
    cases: dict[str, Feeds] = {}
    if any(values.dtype.kind == "f" and values.size for values in feeds.values()):
        cases["perturbed rows"] = {name: _perturb(values) for name, values in feeds.items()}
    notes = ["The inputs were made by a function: of the odd rows, only perturbed ones are tried."]
    if batched:
        for case, stop in ((ONE_ROW, 1), (EMPTY_BATCH, 0)):
            cases[case] = {n: v[:stop] if n in batched else v for n, v in feeds.items()}
    return Probes(cases=cases, notes=tuple(notes))


def _perturb(values: np.ndarray) -> np.ndarray:
    if values.dtype.kind != "f" or not values.size:
        return values
    finite = values[np.isfinite(values)].astype(np.float64)
    spread = float(np.std(finite)) if finite.size else 0.0
    signs = np.where(np.arange(values.size) % 2, -1.0, 1.0).reshape(values.shape)
    return np.asarray((values + 0.1 * (spread or 1.0) * signs).astype(values.dtype))
