"""Two runs side by side: which keys both have, and for how many of them a metric got better."""

from collections import Counter
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from partwise.errors import InputError
from partwise.reports.distributions import worst_end
from partwise.runs.key_texts import key_columns_text, key_texts
from partwise.runs.ledger import metric_values
from partwise.runs.metrics import dense_metric, median
from partwise.runs.run import Run

Better = Literal["lower", "higher"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricChange:
    """A metric over the partitions in which both runs have a finite value of it."""

    metric: str
    better: Better | None
    """Which values are better, as far as its name tells."""
    count: int
    """Partitions with a finite value in both runs."""
    lower: int
    """In how many of them the second run has the lower value."""
    higher: int
    median_before: float
    median_after: float
    median_change: float
    """Of the differences, partition by partition."""
    only_before: int
    """Partitions that both runs have, with a finite value in the first run alone."""
    only_after: int

    @property
    def improved(self) -> int | None:
        """Partitions for which the second run is better; None: unknown which values are."""
        return None if self.better is None else getattr(self, self.better)

    @property
    def worsened(self) -> int | None:
        """Partitions for which the second run is worse."""
        if self.better is None:
            return None
        return self.higher if self.better == "lower" else self.lower

    @property
    def equal(self) -> int:
        """Partitions with the very same value in both."""
        return self.count - self.lower - self.higher


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """What two runs have in common, and where they differ."""

    in_both: int
    only_before: tuple[str, ...]
    """Keys of the first run alone, as text."""
    only_after: tuple[str, ...]
    statuses: tuple[tuple[str, str, int], ...]
    """Status before, status after, partitions; where they differ."""
    metrics: tuple[MetricChange, ...]
    metrics_only_before: tuple[str, ...]
    """Metrics that no partition of the second run has."""
    metrics_only_after: tuple[str, ...]


def compare_runs(before: Run, after: Run) -> Comparison:
    """Compare the partitions of two runs, as readers see them, by their keys."""
    if before.key_columns != after.key_columns:
        one, other = (key_columns_text(run.key_columns) for run in (before, after))
        raise InputError(
            f"The run {before.run_id!r} has partitions by {one}, and {after.run_id!r} by {other}: "
            "only runs of the same keys can be compared."
        )
    first, second = before.ledger, after.ledger
    there, rows, partners = _in_both(first, second)
    missing = np.ones(second.num_rows, dtype=bool)
    missing[partners] = False
    values_of = [dict(metric_values(table)) for table in (first, second)]
    shared = sorted(values_of[0].keys() & values_of[1].keys())
    return Comparison(
        in_both=len(rows),
        only_before=tuple(key_texts(first.filter(pa.array(~there)))),
        only_after=tuple(key_texts(second.filter(pa.array(missing)))),
        statuses=_statuses(first["status"].take(rows), second["status"].take(partners)),
        metrics=tuple(
            metric_change(
                name,
                dense_metric(first.num_rows, *values_of[0][name])[rows],
                dense_metric(second.num_rows, *values_of[1][name])[partners],
            )
            for name in shared
        ),
        metrics_only_before=tuple(sorted(values_of[0].keys() - values_of[1].keys())),
        metrics_only_after=tuple(sorted(values_of[1].keys() - values_of[0].keys())),
    )


def paired_values(
    before: Run, after: Run, metric: str
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the finite values that partitions of two runs both have of a metric.

    Returned are rows of the first run's ledger, and the values of both, each of shape (n,).
    """
    first, second = before.ledger, after.ledger
    _, rows, partners = _in_both(first, second)
    found = []
    for table, places in ((first, rows), (second, partners)):
        values = dict(metric_values(table))[metric]
        found.append(dense_metric(table.num_rows, *values)[places])
    finite = np.isfinite(found[0]) & np.isfinite(found[1])
    return rows[finite], found[0][finite], found[1][finite]


def _in_both(first: pa.Table, second: pa.Table) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return which rows of the first the second has, their places, and those in the second."""
    places = pc.index_in(first["partition_id"], second["partition_id"].combine_chunks()).to_numpy(
        zero_copy_only=False
    )
    there = ~np.isnan(places.astype(float))
    return there, np.flatnonzero(there), places[there].astype(np.int64)


def _statuses(before: pa.ChunkedArray, after: pa.ChunkedArray) -> tuple[tuple[str, str, int], ...]:
    pairs = Counter(zip(before.to_pylist(), after.to_pylist(), strict=True))
    changed = [(*pair, count) for pair, count in pairs.items() if pair[0] != pair[1]]
    return tuple(sorted(changed, key=lambda change: (-change[2], change)))


def metric_change(
    name: str, before: np.ndarray, after: np.ndarray, better: Better | None = None
) -> MetricChange:
    """Describe a metric of partitions before and after, both of shape (n,), NaN where it has none.

    `better` None: as far as the name tells.
    """
    has_before, has_after = np.isfinite(before), np.isfinite(after)
    both = has_before & has_after
    # Beyond what a double holds, a difference is infinite, and its sign is right.
    with np.errstate(over="ignore"):
        differences = after[both] - before[both]
    worst = worst_end(name)
    if better is None and worst is not None:
        better = "lower" if worst == "highest" else "higher"
    return MetricChange(
        metric=name,
        better=better,
        count=int(both.sum()),
        lower=int((differences < 0).sum()),
        higher=int((differences > 0).sum()),
        median_before=_median(before[both]),
        median_after=_median(after[both]),
        median_change=_median(differences),
        only_before=int((has_before & ~has_after).sum()),
        only_after=int((has_after & ~has_before).sum()),
    )


def _median(values: np.ndarray) -> float:
    return median(values) if len(values) else float("nan")
