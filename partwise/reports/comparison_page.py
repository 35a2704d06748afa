"""Two runs side by side as one HTML file: for each metric its values per partition, A against B."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from partwise.formatting import number
from partwise.reports.comparison import MetricChange, compare_runs, paired_values
from partwise.reports.pages import page_environment
from partwise.reports.scales import Tick, plain_number, scale_of
from partwise.runs.key_texts import key_reader
from partwise.runs.run import Run

MOST_METRICS = 30
MOST_DOTS = 1500
NAMED = 5
MOST_KEYS = 20
_SEED = 7


@dataclass(frozen=True, slots=True, kw_only=True)
class Dot:
    """A partition; places in percent from the left and from the top."""

    x: float
    y: float
    kind: str
    """better, worse or equal; lower or higher where it is not known which is better."""
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricPicture:
    """A metric of both runs."""

    change: MetricChange
    medians: tuple[str, str, str]
    """Of A, of B, and of the differences."""
    dots: tuple[Dot, ...]
    ticks: tuple[Tick, ...]
    is_log: bool
    gains: tuple[tuple[str, str, str], ...]
    """Partitions with the largest changes for the better: key, value in A, value in B."""
    losses: tuple[tuple[str, str, str], ...]
    titles: tuple[str, str]
    names: tuple[str, str]


def render_comparison(before: Run, after: Run) -> str:
    """Return the comparison of two runs: one HTML file without references to others."""
    found = compare_runs(before, after)
    known_first = sorted(found.metrics, key=lambda metric: metric.better is None)
    shown = [metric for metric in known_first if metric.count][:MOST_METRICS]
    return (
        page_environment()
        .get_template("comparison.html.j2")
        .render(
            before=before,
            after=after,
            found=found,
            pictures=[_picture(before, after, metric) for metric in shown],
            n_metrics=len(found.metrics),
            most_keys=MOST_KEYS,
        )
    )


def _picture(before: Run, after: Run, change: MetricChange) -> MetricPicture:
    rows, first, second = paired_values(before, after, change.metric)
    return picture_of(change, key_reader(before.ledger), rows, first, second)


def picture_of(
    change: MetricChange,
    key_of: Callable[[int], str],
    rows: np.ndarray,
    first: np.ndarray,
    second: np.ndarray,
    names: tuple[str, str] = ("A", "B"),
) -> MetricPicture:
    """Draw a metric of two candidates: `rows` of a ledger, and the finite values of both there."""
    with np.errstate(over="ignore"):
        gain = first - second if change.better == "lower" else second - first
    scale = scale_of(np.concatenate([first, second]))
    order = np.argsort(gain, kind="stable")

    def row(i: int) -> tuple[str, str, str]:
        return key_of(int(rows[i])), number(first[i]), number(second[i])

    is_known = change.better is not None
    medians = (change.median_before, change.median_after, change.median_change)
    return MetricPicture(
        change=change,
        medians=(number(medians[0]), number(medians[1]), number(medians[2])),
        dots=tuple(
            Dot(
                x=float(scale.place(first[i])),
                y=round(100 - float(scale.place(second[i])), 2),
                kind=_kind(float(gain[i]), is_known=is_known),
                text=f"{key_of(int(rows[i]))}: {names[0]} {number(first[i])}, "
                f"{names[1]} {number(second[i])}",
            )
            for i in _drawn(len(rows), order)
        ),
        ticks=tuple(scale.ticks(plain_number, 5)),
        is_log=scale.is_log,
        gains=tuple(row(i) for i in reversed(order[-NAMED:].tolist()) if gain[i] > 0),
        losses=tuple(row(i) for i in order[:NAMED].tolist() if gain[i] < 0),
        titles=(f"Better by most: {names[1]}", f"Worse by most: {names[1]}")
        if is_known
        else ("Rose most", "Fell most"),
        names=names,
    )


def _drawn(count: int, order: np.ndarray) -> list[int]:
    """Return the places that are drawn: all, or those at both ends and some by chance."""
    if count <= MOST_DOTS:
        return list(range(count))
    chosen = np.random.default_rng(_SEED).choice(count, MOST_DOTS, replace=False)
    places: list[int] = np.union1d(chosen, [*order[:NAMED], *order[-NAMED:]]).tolist()
    return places


def _kind(gain: float, *, is_known: bool) -> str:
    if not gain:
        return "equal"
    if is_known:
        return "better" if gain > 0 else "worse"
    return "higher" if gain > 0 else "lower"
