"""A model that was trained at random, and how its user asks it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from tests.exports.fuzz_columns import Columns


@dataclass(frozen=True)
class Trained:
    """A model, and the rows that it was trained on."""

    what: str
    """How it was trained."""
    model: Any
    columns: Columns
    table: pa.Table
    predict: Callable[[pa.Table], Any]
    """The library's own prediction, of what a user makes of rows."""
    rtol: float
    """By how much predictions may differ, as a part of what they are and of their spread."""
    inputs: Literal["tensor", "columns", "custom"] = "tensor"
    """"custom": its user makes the matrix."""
    is_pickled: bool = False
    """Whether its user gave a PickleSerde."""
    takes_unseen: bool = False
    """Whether it predicts rows with categories that training had not met."""
    gives_labels: bool = False

    def ask(self, table: pa.Table) -> np.ndarray | None:
        """Return what the library predicts, or None where it refuses to."""
        try:
            return np.asarray(self.predict(table))
        except Exception:  # each library has its own
            return None

    @property
    def scale(self) -> float:
        """Return the spread of its predictions for the rows that it was trained on."""
        found = self.ask(self.table)
        if found is None or found.dtype.kind != "f":
            return 1.0
        finite = found[np.isfinite(found)].astype(np.float64)
        with np.errstate(over="ignore"):
            return float(np.ptp(finite)) if finite.size else 0.0


def draw_inputs(random: np.random.Generator, form: str) -> Any:
    """Return the form of an export's inputs, for a model that was trained on a frame or matrix."""
    if form == "matrix" and random.random() < 0.8:
        return "custom"
    return "columns" if random.random() < 0.4 else "tensor"


def draw_scale(random: np.random.Generator) -> float:
    """Return a factor for labels: 1 mostly, else from 1e-13 to 1e12."""
    return 1.0 if random.random() < 0.6 else float(10.0 ** random.integers(-13, 13))


def draw_size(random: np.random.Generator) -> int:
    """Return a number of rows: from 1 to 1,500."""
    sizes, shares = [1, 2, 20, 100, 400, 1500], [0.02, 0.02, 0.06, 0.2, 0.5, 0.2]
    return int(random.choice(sizes, p=shares))


def draw_labels(random: np.random.Generator, target: np.ndarray, n_classes: int) -> np.ndarray:
    """Return classes of a target: whole numbers, others than 0, 1 ..., text, or bools."""
    edges = np.quantile(target, np.linspace(0, 1, n_classes + 1)[1:-1])
    codes = np.digitize(target, edges)
    kind = random.choice(["codes", "numbers", "text", "bools", "floats"])
    match str(kind):
        case "numbers":
            return codes * 7 - 3
        case "text":
            return np.array([f"ü{code}" for code in codes], dtype=object)
        case "bools" if n_classes == 2:
            return codes > 0
        case "floats":
            return codes / 2
    return codes
