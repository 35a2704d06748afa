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

    def add(self, values: np.ndarray) -> None:
        """Look at an output of the shape (n, ...), or at one without a batch."""
        self.rows += len(values) if values.ndim else 1
        if not values.size:
            return
        rows = values.reshape(len(values) if values.ndim else 1, -1)
        first = self._first.setdefault(values.shape[1:], rows[0].copy())
        self._differ = self._differ or not bool(np.all(same(rows, first)))

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
