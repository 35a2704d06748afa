"""How large the values of an output are: what a difference is small beside."""

from collections.abc import Mapping, Sequence

import numpy as np

from partwise.exports.proof.verdict import Case

_LEAST_ROWS = 16
"""Of fewer, the median at one place may be close to nothing by chance."""

_LEAST_FRACTION = 0.05
"""Places of one output are computed together, as a probability and what it leaves of 1: what rounds
at the size of the output rounds at a place that is smaller than this."""


class Scale:
    """The size of one output: the median of |value|, zeros and what is not finite left out.

    A median, since one weight or leaf of 1e20 would make every difference look small beside a mean.
    It is taken at each place of a row, such as a column of (n, k), where enough rows are known;
    else over the whole output.
    """

    def __init__(self, values: Sequence[np.ndarray] = ()) -> None:
        self._places: dict[tuple[int, ...], np.ndarray] = {}
        sizes = {shape: _sizes(rows) for shape, rows in _by_shape(values).items()}
        every = [_lower_median(each.reshape(-1), 1) for each in sizes.values()]
        known = [size for size in every if np.isfinite(size)]
        self.output = float(np.median(known)) if known else 0.0
        """Of the whole output; 0: it has no value that is finite and not zero."""
        for shape, each in sizes.items():
            found = _lower_median(each, _LEAST_ROWS)
            found = np.where(np.isfinite(found), found, self.output)
            self._places[shape] = np.maximum(found, self.output * _LEAST_FRACTION)

    def of(self, row_shape: tuple[int, ...]) -> np.ndarray:
        """Return the sizes at all places of a row of this shape."""
        return self._places.get(row_shape, np.array(self.output))


def measure_scales(cases: Sequence[Case]) -> dict[str, Scale]:
    """Return the scales of a model's outputs, by their names.

    They are those of the real rows; of the others only where the real ones say nothing.
    """
    found: dict[str, Scale] = {}
    for name in {name: None for case in cases for name in case.expected}:
        for kinds in (("real",), ("real", "made"), ("real", "made", "odd")):
            values = [
                case.expected[name]
                for case in cases
                if case.kind in kinds and name in case.expected
            ]
            found[name] = Scale([each for each in values if each.dtype.kind == "f"])
            if found[name].output > 0:
                break
    return found


def _by_shape(values: Sequence[np.ndarray]) -> Mapping[tuple[int, ...], np.ndarray]:
    """Return all rows of one shape in one array, by that shape."""
    grouped: dict[tuple[int, ...], list[np.ndarray]] = {}
    for each in values:
        rows = np.atleast_1d(each)
        grouped.setdefault(rows.shape[1:], []).append(rows)
    return {shape: np.concatenate(rows) for shape, rows in grouped.items()}


def _sizes(values: np.ndarray) -> np.ndarray:
    sizes = np.abs(values.astype(np.float64))
    sizes[~np.isfinite(sizes) | (sizes == 0)] = np.nan
    return sizes


def _lower_median(sizes: np.ndarray, least: int) -> np.ndarray:
    """Return the median along the first axis without NaN; NaN where there are fewer than least."""
    if not len(sizes):
        return np.full(sizes.shape[1:], np.nan)
    ordered = np.sort(sizes, axis=0)  # puts NaN last
    counts = np.count_nonzero(~np.isnan(sizes), axis=0)
    middle = np.maximum(counts - 1, 0) // 2
    found = np.take_along_axis(ordered, np.expand_dims(middle, 0), axis=0)[0]
    return np.where(counts >= least, found, np.nan)
