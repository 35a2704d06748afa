"""What an evaluation of predictions came to, for people: which keys got worse, and how it looks."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from partwise.catalogs.evaluated import (
    CORRECTED,
    ERROR,
    LABELLED,
    LOST,
    PENDING,
    PREDICTED,
    UNPREDICTED,
    VERDICTS,
    WORSE,
    Evaluated,
    Nights,
    nights_of,
)
from partwise.formatting import counted, number
from partwise.reports.comparison import metric_change
from partwise.reports.comparison_page import MetricPicture, picture_of
from partwise.reports.scales import Scale
from partwise.runs.run import Run
from partwise.tables.column_names import names_in_words
from partwise.tables.column_types import is_number

MOST_WORST = 20
_MOST_DOTS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class WorstKey:
    """A key that got worse, with its rows: what was predicted against what came true."""

    key: str
    before: str
    after: str
    rows_before: str
    rows: int
    lost: int
    """Rows more, whose predictions are no finite numbers."""
    drifted: str
    """Features that drifted; empty: none did."""
    dots: tuple[tuple[float, float], ...]
    """Places in percent: what came true from the left, what was predicted from the bottom."""
    nights: "ErrorOverNights | None"
    """None: no night before has a value of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorOverNights:
    """The metric of a key in some evaluations, the oldest first, as a line."""

    line: str
    """Through the nights that have a value, as SVG's `points`, in percent of width and height."""
    level: float
    """Where the metric of before stands, in percent from the top; NaN: it is not known."""
    words: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationReport:
    """An evaluation in words and pictures."""

    metric: str
    inference_run_id: str
    models: str
    verdicts: tuple[tuple[int, str], ...]
    """How many keys, and what became of them."""
    rows: tuple[tuple[str, int], ...]
    """Rows over all keys, and which."""
    picture: MetricPicture
    """The metric now against the one of before."""
    tests: int
    """Features that were compared, over all keys."""
    drifted: tuple[tuple[str, int], ...]
    """Features, and of how many keys they drifted."""
    drifted_keys: int
    worst: tuple[WorstKey, ...]
    """Those that got worse by most, at most `MOST_WORST`."""


def describe_evaluation(run: Run, key_of: Callable[[int], str]) -> EvaluationReport | None:
    """Describe what a run of evaluate_predictions found; None: it is no such run, or found nothing.

    The rows of the worst keys are read; of others, nothing but what stands in the ledger.
    """
    if run.kind != "evaluate" or not run.ledger.num_rows:
        return None
    found = Evaluated.of(run)
    verdicts = found.verdicts
    before, after = found.values_then, found.values
    both = np.flatnonzero(np.isfinite(before) & np.isfinite(after))
    change = metric_change(found.metric, before, after, "higher" if found.maximized else "lower")
    counts = {name: int(values.sum()) for name, values in found.counts.items()}
    return EvaluationReport(
        metric=found.metric,
        inference_run_id=found.inference_run_id,
        models=", then ".join(found.models),
        verdicts=tuple(
            (count, VERDICTS[verdict])
            for verdict in VERDICTS
            if (count := int((verdicts == verdict).sum()))
        ),
        rows=tuple(
            (words, counts[name])
            for name, words in (
                (PREDICTED, "predictions"),
                (LABELLED, "of these with a label"),
                (PENDING, "of these pending"),
                (LOST, "of these no finite number, with a label"),
                (UNPREDICTED, "labels that nobody predicted"),
                (CORRECTED, "labels that a later one replaced"),
            )
            if counts[name]
        ),
        picture=picture_of(change, key_of, both, before[both], after[both], ("before", "now")),
        tests=found.tests,
        drifted=_drift_lines(found),
        drifted_keys=int((found.table["drifted_features"].to_numpy() > 0).sum()),
        worst=tuple(_worst(run, found, key_of)),
    )


def _worst(run: Run, found: Evaluated, key_of: Callable[[int], str]) -> list[WorstKey]:
    """Return the keys that got worse by most, the worst first."""
    places = np.flatnonzero(found.verdicts == WORSE)
    increases = np.nan_to_num(found.increases[places], nan=np.inf)
    increases[found.counts[LOST][places] > 0] = np.inf
    places = places[np.argsort(-increases, kind="stable")][:MOST_WORST]
    if not len(places):
        return []
    names = found.keys["partition_id"].take(places).to_pylist()
    nights = nights_of(run, names)
    worst = []
    for row, (place, name) in enumerate(zip(places, names, strict=True)):
        then, rows_then = float(found.values_then[place]), found.rows_then[place]
        worst.append(
            WorstKey(
                key=key_of(int(place)),
                before="not known" if np.isnan(then) else number(then),
                after=number(float(found.values[place])),
                rows_before="" if np.isnan(rows_then) else f"{int(rows_then):,}",
                rows=int(found.counts[LABELLED][place]),
                lost=int(found.counts[LOST][place]),
                drifted=names_in_words(_drifted(found, int(place)), 5),
                dots=_dots(run, name, found.label),
                nights=_over_nights(nights, row, then),
            )
        )
    return worst


def _over_nights(nights: Nights, key: int, before: float) -> ErrorOverNights | None:
    """Return the line of one of the keys that were looked up."""
    values = nights.values[:, key]
    known = np.flatnonzero(np.isfinite(values))
    if len(known) < 2:
        return None
    finite = np.r_[values[known], before if np.isfinite(before) else values[known[0]]]
    # From nothing, so that a line that rises by a little does not look like one that doubles.
    low, high = min(0.0, float(finite.min())), max(0.0, float(finite.max()))
    scale = Scale(low=low, high=high if high > low else low + 1.0)
    across = 100 * known / (len(values) - 1)
    points = zip(across, 100 - scale.place(values[known]), strict=True)
    lowest, highest = number(float(values[known].min())), number(float(values[known].max()))
    since = nights.finished_at[known[0]]
    return ErrorOverNights(
        line=" ".join(f"{x:.4g},{y:.4g}" for x, y in points),
        level=round(100 - float(scale.place(before)), 2),
        words=f"{counted(len(known), 'night')} since {since:%Y-%m-%d}: {lowest} to {highest}",
    )


def _drifted(found: Evaluated, place: int | None = None) -> list[str]:
    """Return the features that drifted, of one key or of all, as often as they did."""
    table = found.drift.filter(found.drift["drifted"])
    if place is not None:
        table = table.filter(pc.equal(table["place"], place))
    names: list[str] = table["feature"].to_pylist()
    return names


def _drift_lines(found: Evaluated) -> tuple[tuple[str, int], ...]:
    """Return the features that drifted for most keys, and for how many."""
    return tuple(Counter(_drifted(found)).most_common(MOST_WORST))


def _dots(run: Run, name: str, label: str) -> tuple[tuple[float, float], ...]:
    """Return some rows of a partition as places in a square, both axes of one scale."""
    rows = pa.concat_tables(run.iter_predictions(partition_id=name))
    if ERROR not in rows.column_names or label not in rows.column_names:
        return ()  # of several classes there is no one number
    if not is_number(rows[label].type):
        return ()  # nor of classes that are texts
    errors = rows[ERROR].to_numpy()
    true = rows[label].cast(pa.float64(), safe=False).to_numpy()
    finite = np.flatnonzero(np.isfinite(errors) & np.isfinite(true))
    if not len(finite):
        return ()
    chosen = finite[np.linspace(0, len(finite) - 1, min(len(finite), _MOST_DOTS)).astype(np.int64)]
    true, predicted = true[chosen], true[chosen] + errors[chosen]
    low, high = min(predicted.min(), true.min()), max(predicted.max(), true.max())
    scale = 100 / ((high - low) or 1.0)
    places = zip(scale * (true - low), scale * (predicted - low), strict=True)
    return tuple((round(float(x), 1), round(float(y), 1)) for x, y in places)
