"""LightGBM's objectives by rows: gradients, whose sums do not depend on how the rows are divided.

A histogram is a sum of single numbers in double. Its last bits depend on the order, hence on who
has which rows; where two splits are worth the same, they decide which one is taken. So gradients
are cut to multiples of one step, which is so large that every sum of them is exact.

The formulas are those of src/objective of LightGBM 4.6, in which `score` is `raw` here.
"""

from collections.abc import Callable, Mapping, Sequence
from math import fsum
from typing import Any

import numpy as np

Gradients = Callable[[np.ndarray, np.ndarray, np.ndarray | None], tuple[np.ndarray, np.ndarray]]
"""From raw predictions of shape (n,) or (n, classes), labels and weights of shape (n,) to first and
second derivatives, shaped as the predictions."""

L2 = frozenset({
    "regression", "regression_l2", "l2", "mean_squared_error", "mse", "l2_root",
    "root_mean_squared_error", "rmse",
})  # fmt: skip
_LOG_LINK = frozenset({"poisson", "gamma", "tweedie"})
# The digits of a double, and the least power of two that is not denormal in single precision.
_DOUBLE_BITS, _LEAST_EXPONENT = 53, -126
_ROWS_AT_ONCE = 1 << 13
"""So few that the C library serves each array from memory that it has: 3M rows in arrays of 512 kB,
which it asks the kernel for each time, took 240 ms in place of 40."""
_SMALL = 1e-15


def gradients_of(params: Mapping[str, Any], label_counts: Mapping[float, int]) -> Gradients:
    """Return the gradients of an objective, unweighted; label_counts are those of all ranks."""
    objective = params["objective"]
    if objective in L2:
        return lambda raw, labels, _: (raw - labels, np.ones_like(raw))
    if objective == "binary":
        weigh = _label_weights(params, label_counts, 1)
        return lambda raw, labels, _: _logistic(raw, labels == 1, params, weigh)
    if objective == "multiclass":
        return lambda raw, labels, _: _softmax(raw, labels)
    if objective == "multiclassova":
        n_classes = int(params["num_class"])
        weigh_each = [_label_weights(params, label_counts, k) for k in range(n_classes)]
        return lambda raw, labels, _: _one_against_all(raw, labels, params, weigh_each)
    return lambda raw, labels, _: _of_numbers(str(objective), raw, labels, params)


def _of_numbers(
    objective: str, raw: np.ndarray, labels: np.ndarray, params: Mapping[str, Any]
) -> tuple[np.ndarray, np.ndarray]:
    if objective == "huber":
        bound = float(params.get("alpha", 0.9))
        return np.clip(raw - labels, -bound, bound), np.ones_like(raw)
    if objective == "fair":
        c = float(params.get("fair_c", 1.0))
        beyond = np.abs(raw - labels) + c
        return c * (raw - labels) / beyond, c * c / (beyond * beyond)
    if objective == "poisson":
        expected = np.exp(raw)
        step = float(params.get("poisson_max_delta_step", 0.7))
        return expected - labels, expected * np.exp(step)
    if objective == "gamma":
        ratio = labels * np.exp(-raw)
        return 1.0 - ratio, ratio
    rho = float(params.get("tweedie_variance_power", 1.5))
    first, second = labels * np.exp((1 - rho) * raw), np.exp((2 - rho) * raw)
    return second - first, (2 - rho) * second - (1 - rho) * first


def _logistic(
    raw: np.ndarray, is_positive: np.ndarray, params: Mapping[str, Any], weigh: tuple[float, float]
) -> tuple[np.ndarray, np.ndarray]:
    sigmoid = float(params.get("sigmoid", 1.0))
    sign = np.where(is_positive, 1.0, -1.0)
    with np.errstate(over="ignore"):
        response = -sign * sigmoid / (1.0 + np.exp(sign * sigmoid * raw))
    size = np.abs(response)
    weights = np.where(is_positive, weigh[1], weigh[0])
    return response * weights, size * (sigmoid - size) * weights


def _label_weights(
    params: Mapping[str, Any], counts: Mapping[float, int], positive: int
) -> tuple[float, float]:
    """Return the weight of a row of another class, and of one of this class."""
    ones = counts.get(float(positive), 0)
    others = sum(counts.values()) - ones
    other, one = 1.0, 1.0
    if params.get("is_unbalance") and ones and others:
        other, one = (ones / others, 1.0) if ones > others else (1.0, others / ones)
    return other, one * float(params.get("scale_pos_weight", 1.0))


def _softmax(raw: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    n_classes = raw.shape[1]
    of_class = np.exp(raw - raw.max(axis=1, keepdims=True))
    total = of_class[:, 0].copy()
    for k in range(1, n_classes):
        # One after another, as a sum along an axis may depend on the array's layout.
        total += of_class[:, k]
    of_class /= total[:, None]
    is_label = labels[:, None] == np.arange(n_classes)
    return of_class - is_label, n_classes / (n_classes - 1) * of_class * (1.0 - of_class)


def _one_against_all(
    raw: np.ndarray,
    labels: np.ndarray,
    params: Mapping[str, Any],
    weigh: Sequence[tuple[float, float]],
) -> tuple[np.ndarray, np.ndarray]:
    parts = [_logistic(raw[:, k], labels == k, params, weigh[k]) for k in range(raw.shape[1])]
    first, second = zip(*parts, strict=True)
    return np.stack(first, axis=1), np.stack(second, axis=1)


def label_sums(labels: np.ndarray, weights: np.ndarray | None, n_classes: int) -> list[float]:
    """Return the weight of all rows, and the weighted sums of labels or, if any, of each class."""
    if weights is None and n_classes:
        counts = [np.count_nonzero(labels == k) for k in range(n_classes)]
        return [float(len(labels)), *map(float, counts)]
    counted = np.ones(len(labels)) if weights is None else weights.astype(np.float64)
    of_labels = (
        [counted * labels] if not n_classes else [counted[labels == k] for k in range(n_classes)]
    )
    return [fsum(counted), *map(fsum, of_labels)]


def start_scores(params: Mapping[str, Any], sums: Sequence[Sequence[float]]) -> list[float]:
    """Return the raw predictions to begin with: those of the mean label; `BoostFromScore`.

    LightGBM itself takes the mean of the ranks' means, however many rows each has. Here they are
    made of the `label_sums` of each rank, one for each class, or one.
    """
    weight, *of_labels = (fsum(column) for column in zip(*sums, strict=True))
    objective = params["objective"]
    means = [total / weight if weight else 0.0 for total in of_labels]
    if objective == "multiclass":
        scores = [np.log(max(_SMALL, mean)) for mean in means]
    elif objective in ("binary", "multiclassova"):
        sigmoid = float(params.get("sigmoid", 1.0))
        means = means[1:] if objective == "binary" else means
        shares = [min(max(mean, _SMALL), 1.0 - _SMALL) for mean in means]
        scores = [np.log(share / (1.0 - share)) / sigmoid for share in shares]
    elif objective in _LOG_LINK:
        scores = [np.log(means[0]) if means[0] > 0 else -np.inf]
    else:
        scores = means
    # In single precision, where the order of the sums does not show.
    return [float(np.float32(score)) for score in scores]


def exact_gradients(
    gradients: Gradients,
    raw: np.ndarray,
    labels: np.ndarray,
    weights: np.ndarray | None,
    rows: int,
    largest_of_all: Callable[[np.ndarray], np.ndarray],
) -> tuple[np.ndarray, np.ndarray]:
    """Compute gradients whose sums over the rows of all ranks are exact in double.

    The largest one is 2**e at most, and there are 2**l rows at most: multiples of 2**(e + l - 53)
    can be added up without rounding. Of 6M rows that leaves 30 bits, and single numbers have 24:
    only what is less than a 64th of the largest one loses anything.

    Returns:
        Single, shaped as `raw`, in column order.
    """
    both = [np.empty(raw.shape, np.float32, order="F") for _ in range(2)]
    for start in range(0, len(raw), _ROWS_AT_ONCE):
        part = slice(start, start + _ROWS_AT_ONCE)
        of_rows = None if weights is None else weights[part]
        made = gradients(raw[part], labels[part], of_rows)
        for kept, values in zip(both, made, strict=True):
            kept[part] = values
    largest = largest_of_all(np.array([np.abs(kept).max(initial=0.0) for kept in both]))
    for kept, bound in zip(both, largest, strict=True):
        if bound > 0 and np.isfinite(bound):
            exponent = np.frexp(bound)[1] + int(rows).bit_length() - _DOUBLE_BITS
            # A power of two, so that to divide and to multiply by it rounds nothing.
            step = np.float32(2.0 ** max(exponent, _LEAST_EXPONENT))
            np.divide(kept, step, out=kept)
            np.rint(kept, out=kept)
            np.multiply(kept, step, out=kept)
    return both[0], both[1]


def weighted(gradients: Gradients) -> Gradients:
    """Return gradients that are multiplied by the weights of rows."""

    def multiplied(
        raw: np.ndarray, labels: np.ndarray, weights: np.ndarray | None
    ) -> tuple[np.ndarray, np.ndarray]:
        first, second = gradients(raw, labels, None)
        if weights is None:
            return first, second
        shaped = weights if first.ndim == 1 else weights[:, None]
        return first * shaped, second * shaped

    return multiplied
