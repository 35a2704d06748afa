"""Metrics over partitions: as a column, and their medians wherever one is shown."""

import math
from itertools import islice

import numpy as np
import pyarrow as pa

from partwise.runs.ledger import metric_values


def dense_metric(
    n_rows: int, rows: np.ndarray, values: np.ndarray, missing: float = math.nan
) -> np.ndarray:
    """Return a value of a metric for each of n rows, from what `metric_values` has; shape (n,)."""
    dense = np.full(n_rows, missing)
    dense[rows] = values
    return dense


def median(values: np.ndarray) -> float:
    """Return the median of values: of two in the middle, their mean.

    Example:
        >>> median(np.array([1.0, 2.0, 4.0, 9.0]))
        3.0
    """
    with np.errstate(over="ignore", invalid="ignore"):
        middle = float(np.median(values))
        # The sum of two very large ones has no place in a double; their halves do.
        return middle if math.isfinite(middle) else 2 * float(np.median(values / 2))


def metric_medians(ledger: pa.Table, most: int, without: str = "") -> dict[str, float]:
    """Return the median of each metric over the partitions that have it; of many, of the first.

    `without` is a beginning of names that are left out.
    """
    shown = (
        each for each in metric_values(ledger) if not (without and each[0].startswith(without))
    )
    finite = ((name, values[np.isfinite(values)]) for name, (_, values) in islice(shown, most))
    return {name: median(values) for name, values in finite if len(values)}
