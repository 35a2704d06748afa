"""What partitions took by what they held: seconds against rows, the slowest by name."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from partwise.outcomes import PartitionStatus
from partwise.reports.distributions import Distribution, describe_distribution
from partwise.reports.scales import Tick, plain_number, scale_of, seconds_text

MOST_DOTS = 1_500
SLOWEST = 5
_BANDS = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Dot:
    """A partition; places in percent from the left and from the top."""

    x: float
    y: float
    is_wrong: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Slow:
    """One of the slowest partitions."""

    dot: Dot
    key: str
    seconds: str
    rows: str
    status: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Band:
    """Partitions of about as many rows."""

    rows: str
    partitions: int
    median: str
    slowest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Skew:
    """Seconds against rows."""

    partitions: int
    """That have both."""
    histogram: Distribution | None
    """Of seconds, where all have the same number of rows; None: they have not."""
    dots: tuple[Dot, ...]
    slowest: tuple[Slow, ...]
    bands: tuple[Band, ...]
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]
    is_log: tuple[bool, bool]
    """Of rows and of seconds."""
    median: str
    total: str
    times_median: float | None
    """The slowest one's seconds in those of the median."""
    slowest_share: float
    """Of the seconds of all partitions, in percent."""


def describe_skew(ledger: pa.Table, key_of: Callable[[int], str]) -> Skew | None:
    """Return seconds against rows; None where no partition has both."""
    has_both = pc.and_(pc.is_finite(ledger["seconds"]), pc.is_valid(ledger["rows"]))
    places = np.flatnonzero(pc.fill_null(has_both, fill_value=False).to_numpy(zero_copy_only=False))
    if not len(places):
        return None
    table = ledger.select(["seconds", "rows", "status"]).take(pa.array(places))
    seconds = np.maximum(table["seconds"].to_numpy(), 0.0)
    rows = table["rows"].to_numpy().astype(float)
    wrong = pc.not_equal(table["status"], PartitionStatus.DONE.value).to_numpy(zero_copy_only=False)
    order = np.argsort(-seconds, kind="stable")
    slowest = order[:SLOWEST]
    x_scale, y_scale = scale_of(rows), scale_of(seconds)
    xs, ys = x_scale.place(rows), np.round(100 - y_scale.place(seconds), 2)

    def dot(i: int) -> Dot:
        return Dot(x=float(xs[i]), y=float(ys[i]), is_wrong=bool(wrong[i]))

    others = np.sort(order[SLOWEST:])
    if len(others) > MOST_DOTS - SLOWEST:
        # The one of most rows, which is an end of the picture, and others by chance.
        largest = others[rows[others].argmax()]
        # With a fixed seed, since the same run is to give the same report.
        drawn = np.random.default_rng(0).permutation(others[others != largest])
        others = np.sort([largest, *drawn[: MOST_DOTS - SLOWEST - 1]])
    total, median = float(seconds.sum()), float(np.median(seconds))
    return Skew(
        partitions=len(places),
        histogram=describe_distribution("seconds", places, seconds, key_of, seconds_text)
        if rows.min() == rows.max()
        else None,
        dots=tuple(dot(i) for i in others.tolist()),
        slowest=tuple(
            Slow(
                dot=dot(i),
                key=key_of(int(places[i])),
                seconds=seconds_text(float(seconds[i])),
                rows=f"{rows[i]:,.0f}",
                status=table["status"][i].as_py(),
            )
            for i in slowest.tolist()
        ),
        bands=_bands(rows, seconds),
        x_ticks=tuple(x_scale.ticks(plain_number, 5)),
        y_ticks=tuple(y_scale.ticks(seconds_text, 5)),
        is_log=(x_scale.is_log, y_scale.is_log),
        median=seconds_text(median),
        total=seconds_text(total),
        times_median=round(float(seconds[order[0]]) / median, 1) if median else None,
        slowest_share=round(100 * float(seconds[order[0]]) / total, 1) if total else 0.0,
    )


def _bands(rows: np.ndarray, seconds: np.ndarray) -> tuple[Band, ...]:
    """Divide the partitions into bands of about as many, by their rows."""
    edges = np.unique(np.quantile(rows, np.linspace(0, 1, _BANDS + 1), method="nearest"))
    bands = []
    band_of = np.searchsorted(edges[1:-1], rows, side="right") if len(edges) > 2 else rows * 0
    for band in np.unique(band_of):
        chosen = band_of == band
        low, high = rows[chosen].min(), rows[chosen].max()
        bands.append(
            Band(
                rows=f"{low:,.0f}" if low == high else f"{low:,.0f} to {high:,.0f}",
                partitions=int(chosen.sum()),
                median=seconds_text(float(np.median(seconds[chosen]))),
                slowest=seconds_text(float(seconds[chosen].max())),
            )
        )
    return tuple(bands)
