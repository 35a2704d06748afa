"""How a quantity is distributed over partitions, with those at both ends by name."""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from partwise.formatting import number
from partwise.reports.scales import Scale, Tick
from partwise.runs.metrics import median

NAMED = 3  # partitions at each end
MOST_BINS = 40
Worst = Literal["lowest", "highest"]

_HIGH_IS_WORST = {
    *("rmse", "mae", "mse", "mape", "smape", "wape", "wmape", "mase", "rmsle", "rmspe", "msle"),
    *("error", "errors", "err", "loss", "logloss", "deviance", "pinball", "nll", "perplexity"),
    *("brier", "residual", "residuals"),
}
_LOW_IS_WORST = {
    *("r2", "accuracy", "acc", "auc", "auroc", "auprc", "f1", "precision", "recall", "ndcg"),
    *("score", "iou", "dice", "kappa", "mcc"),
}
_QUANTILES = {
    "lowest": 0.0,
    "5%": 0.05,
    "25%": 0.25,
    "median": 0.5,
    "75%": 0.75,
    "95%": 0.95,
    "highest": 1.0,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Bin:
    """A bar of a histogram; places in percent of the picture."""

    left: float
    width: float
    height: float
    count: int
    text: str
    is_open: bool
    """It also holds all that lies beyond the axis."""


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """The partitions at one end of a distribution."""

    title: str
    is_worst: bool
    partitions: tuple[tuple[str, str], ...]
    """Keys and values."""
    tied: int
    """How many more have the value of the last one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Distribution:
    """A quantity over partitions."""

    name: str
    count: int
    """Partitions with a finite value."""
    constant: str | None
    """The one value that all have; None: they differ."""
    ends: tuple[End, ...]
    bins: tuple[Bin, ...]
    ticks: tuple[Tick, ...]
    is_log: bool
    median_at: float | None
    quantiles: tuple[tuple[str, str], ...]
    odd: tuple[tuple[str, int, tuple[str, ...]], ...]
    """Values that are not numbers: which, how many partitions, some of their keys."""

    @property
    def is_plain(self) -> bool:
        """Whether one value says it all."""
        return self.constant is not None and not self.odd


def worst_end(name: str) -> Worst | None:
    """Return which end of a metric is bad, as far as its name tells; None: it does not.

    Example:
        >>> worst_end("valid_rmse"), worst_end("AUC"), worst_end("days")
        ('highest', 'lowest', None)
    """
    words = set(re.findall(r"[a-z]+\d?", re.sub(r"([a-z])([A-Z])", r"\1 \2", name).lower()))
    words |= {word.rstrip("0123456789") for word in words}
    # "error" decides over "score" in score_error.
    if words & _HIGH_IS_WORST:
        return "highest"
    return "lowest" if words & _LOW_IS_WORST else None


def describe_distribution(
    name: str,
    rows: np.ndarray,
    values: np.ndarray,
    key_of: Callable[[int], str],
    text: Callable[[float], str] = number,
) -> Distribution:
    """Describe the values that a quantity has.

    `rows` are the partitions that have it and `values` may hold NaN and infinities, both of shape
    (n,).
    """
    finite = np.isfinite(values)
    odd = _odd_values(rows[~finite], values[~finite], key_of)
    order = np.argsort(values[finite], kind="stable")
    rows, values = rows[finite][order], values[finite][order]
    count = len(values)
    differ = count > 0 and values[0] != values[-1]
    bins: tuple[Bin, ...] = ()
    ticks: tuple[Tick, ...] = ()
    scale = _axis(values) if differ else None
    if scale is not None:
        scale, has_bar_each = _whole_axis(values, scale)
        bins = _bins(values, scale, has_bar_each, text)
        ticks = tuple(scale.ticks(text, 5))
    return Distribution(
        name=name,
        count=count,
        constant=text(float(values[0])) if count and not differ else None,
        ends=_ends(worst_end(name), rows, values, key_of, text) if differ else (),
        bins=bins,
        ticks=ticks,
        is_log=scale is not None and scale.is_log,
        median_at=float(scale.place(median(values))) if scale is not None else None,
        quantiles=_quantiles(values, text),
        odd=odd,
    )


def _quantiles(values: np.ndarray, text: Callable[[float], str]) -> tuple[tuple[str, str], ...]:
    """Return quantiles of sorted values: each but the median is one that a partition has."""
    if not len(values):
        return ()
    last = len(values) - 1
    found = {name: float(values[round(share * last)]) for name, share in _QUANTILES.items()}
    found["median"] = median(values)
    return tuple((name, text(value)) for name, value in found.items())


def _axis(values: np.ndarray) -> Scale | None:
    """Return an axis for sorted values on which a few far ones do not hide all others."""
    low, high = float(values[0]), float(values[-1])
    if not math.isfinite(2 * (high - low)):
        return None  # 1e308 - -1e308: no axis is as long, nor one with room at its end
    last = len(values) - 1
    first, second = float(values[round(0.01 * last)]), float(values[round(0.99 * last)])
    if first > 0 and math.log10(second) - math.log10(first) > 2:
        far = (second / first) ** 0.5
        low = low if low * far * far >= first else first / far
        high = high if high <= second * far * far else second * far
        return Scale(low=low, high=high, is_log=True)
    if span := second - first:
        low = low if low >= first - span else first - span / 2
        high = high if high <= second + span else second + span / 2
    return Scale(low=low, high=high)


def _whole_axis(values: np.ndarray, scale: Scale) -> tuple[Scale, bool]:
    """Give a few whole numbers a bar each: return their axis, and whether they are that."""
    first, last = math.ceil(scale.low), math.floor(scale.high)
    is_few = not scale.is_log and 1 <= last - first < MOST_BINS
    if is_few and bool(np.all(values == np.round(values))):
        return Scale(low=first - 0.5, high=last + 0.5), True
    return scale, False


def _bins(
    values: np.ndarray, scale: Scale, has_bar_each: bool, text: Callable[[float], str]
) -> tuple[Bin, ...]:
    """Count sorted values along an axis."""
    count = int(np.clip(2 * len(values) ** (1 / 3) + 4, 8, MOST_BINS))
    if has_bar_each:
        count = round(scale.high - scale.low)
    places = np.minimum((scale.share(values) * count).astype(int), count - 1)
    counts = np.bincount(places, minlength=count)
    edges = scale.edges(count)
    below, above = values[0] < edges[0], values[-1] > edges[-1]
    width, most = 100 / count, counts.max()
    found = []
    for i, many in enumerate(counts.tolist()):
        is_open = bool((i == 0 and below) or (i == count - 1 and above))
        start, stop = float(edges[i]), float(edges[i + 1])
        label = f"{text(start)} to {text(stop)}"
        if has_bar_each:
            label = text(float(round((start + stop) / 2)))
        if is_open:
            label = f"up to {text(stop)}" if i == 0 else f"{text(start)} and more"
        found.append(
            Bin(
                left=round(i * width, 3),
                width=round(width, 3),
                height=round(100 * many / most, 2),
                count=many,
                text=label,
                is_open=is_open,
            )
        )
    return tuple(found)


def _ends(
    worst: Worst | None,
    rows: np.ndarray,
    values: np.ndarray,
    key_of: Callable[[int], str],
    text: Callable[[float], str],
) -> tuple[End, ...]:
    """Name the partitions at both ends of sorted values, the bad end first."""
    named = min(NAMED, len(values) // 2) or 1
    found = {}
    for end, places in (("lowest", range(named)), ("highest", range(-1, -1 - named, -1))):
        other = {"lowest": "highest", "highest": "lowest"}[end]
        title = {end: f"worst ({end})", other: f"best ({end})", None: end}[worst]
        found[end] = End(
            title=title,
            is_worst=worst == end,
            partitions=tuple((key_of(int(rows[i])), text(float(values[i]))) for i in places),
            tied=int(np.count_nonzero(values == values[places[-1]]))
            - sum(1 for i in places if values[i] == values[places[-1]]),
        )
    return tuple(found[end] for end in (("highest", "lowest") if worst == "highest" else found))


def _odd_values(
    rows: np.ndarray, values: np.ndarray, key_of: Callable[[int], str]
) -> tuple[tuple[str, int, tuple[str, ...]], ...]:
    kinds = {
        "not a number": np.isnan(values),
        "+infinite": np.isposinf(values),
        "-infinite": np.isneginf(values),
    }
    return tuple(
        (kind, int(chosen.sum()), tuple(key_of(int(row)) for row in rows[chosen][:NAMED]))
        for kind, chosen in kinds.items()
        if chosen.any()
    )
