"""Whether a model's outputs differ between rows at all."""

import numpy as np


class Variety:
    """The values of one output over all cases: whether two rows differ.

    A model that gives zeros everywhere, because its weights are untrained or its inputs dead,
    equals any other that does so; a comparison with it proves nothing.
    """

    def __init__(self) -> None:
        self.rows = 0
        self._first: dict[tuple[int, ...], np.ndarray] = {}
        self._differ = False
        self._lowest: dict[tuple[int, ...], np.ndarray] = {}
        self._highest: dict[tuple[int, ...], np.ndarray] = {}

    def add(self, values: np.ndarray, *, is_odd: bool = False) -> None:
        """Look at an output of the shape (n, ...), or at one without a batch.

        Odd rows were made to go wrong, and so do not count for its range.
        """
        values = np.atleast_1d(values)
        self.rows += len(values)
        if not values.size:
            return
        rows = values.reshape(len(values), -1)
        first = self._first.setdefault(values.shape[1:], rows[0].copy())
        self._differ = self._differ or not bool(np.all(same(rows, first)))
        if values.dtype.kind == "f" and not is_odd:
            self._widen(values)

    def ranges(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """Return the smallest and the largest finite value at each place of a row, in double.

        There is a pair for each shape that rows have, and where they have several, one for all
        places together. A place without finite values has (inf, -inf).
        """
        pairs = [(low, self._highest[shape]) for shape, low in self._lowest.items()]
        if len(pairs) > 1:
            lows, highs = zip(*pairs, strict=True)
            lowest = min(float(np.min(low)) for low in lows)
            pairs.append((np.array(lowest), np.array(max(float(np.max(high)) for high in highs))))
        return pairs

    def _widen(self, values: np.ndarray) -> None:
        shape, finite = values.shape[1:], np.isfinite(values)
        for known, found, least, best in (
            (self._lowest, np.min, np.inf, np.minimum),
            (self._highest, np.max, -np.inf, np.maximum),
        ):
            limit = found(values, axis=0, initial=least, where=finite).astype(np.float64)
            known[shape] = best(known.get(shape, limit), limit)

    @property
    def varies(self) -> bool:
        """Whether two rows differ; rows of different sizes do when they hold different values."""
        if self._differ or not self._first:
            return self._differ
        if len(self._first) == 1:
            return False
        values = np.concatenate(list(self._first.values()))
        return not bool(np.all(same(values, values[0])))

    def describe(self) -> str:
        """Return the value that all rows have, in words."""
        values = next(iter(self._first.values()), np.empty(0))
        if not values.size:
            return "empty"
        if np.all(same(values, values[0])):
            return f"{values[0]}" + (" everywhere" if values.size > 1 else "")
        return f"{values[0]}, ... {values[-1]}"


def same(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Return where values are equal or both NaN."""
    return np.asarray((first == second) | ((first != first) & (second != second)))
