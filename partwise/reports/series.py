"""Predictions over time, drawn: of the best key, of one in the middle and of the worst."""

import math
import re
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from partwise.errors import PartwiseError
from partwise.formatting import number
from partwise.reports.accuracy import PREDICTION, finite_numbers, has_numbers
from partwise.reports.scales import Scale, Tick, plain_number, scale_of
from partwise.runs.ledger import metric_values
from partwise.runs.run import Run

MOST_POINTS = 400
"""The latest rows of a key that are drawn."""
MOST_ROWS_READ = 1_000_000
"""Of a file of output, which is read as a whole: a run of more has other means to draw."""
_BAND = re.compile(r"prediction_(?:lower|upper)_[\d.]+|prediction_q[\d.]+")
# The first of these that training has for a key says how good its model is.
_METRICS = ("mase", "wape", "smape", "mae", "rmse", "mape")


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesPicture:
    """A key's predictions over time. Places are in percent, from the left and from the top."""

    title: str
    key: str
    score: str
    """How good its model is; empty: nobody knows."""
    predicted: str
    """The points of a line, as SVG has them."""
    actual: tuple[str, ...]
    """Of lines, which end where a label is missing."""
    bands: tuple[str, ...]
    """Of areas, the widest first."""
    across: tuple[Tick, ...]
    upwards: tuple[Tick, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesReport:
    """Some keys of a run, and what the columns are called."""

    time: str
    label: str
    """The column that was kept and tells what came true; empty: there is none."""
    has_bands: bool
    metric: str
    """By which the keys are chosen; empty: by their order."""
    pictures: tuple[SeriesPicture, ...]


def describe_series(
    run: Run, trained_label: str, key_of: Callable[[int], str]
) -> SeriesReport | None:
    """Describe the predictions of a run that kept a column of times; None: there is none to draw.

    With the label of its training, if it kept that. The rows of at most three keys are read.
    """
    if run.kind != "infer":
        return None
    is_small = pc.less_equal(run.ledger["rows_in_file"], MOST_ROWS_READ)
    having = np.flatnonzero(pc.fill_null(is_small, False).to_numpy(zero_copy_only=False))
    if not len(having):
        return None
    keys = {column.name for column in run.key_columns}
    # First, since few runs keep times: the ledger of the training may have millions of rows.
    some = (_rows(run, place) for place in having[:3].tolist())
    rows = next((each for each in some if each is not None), None)
    if rows is None or (columns := _columns(rows, keys, trained_label)) is None:
        return None
    time, label = columns
    metric, scores = _scores(run)
    pictures, has_bands = [], False
    for title, place in _chosen(having, scores):
        rows = _rows(run, place)
        if rows is None or _columns(rows, keys, label) != columns:
            continue
        has_bands = has_bands or any(map(_BAND.fullmatch, rows.column_names))
        score = f"{metric} {number(scores[place])}" if place in scores else ""
        pictures.append(_picture(title, key_of(place), score, rows, time, label))
    drawn = tuple(picture for picture in pictures if picture is not None)
    if not drawn:
        return None
    return SeriesReport(
        time=time,
        label=label,
        has_bands=has_bands,
        metric=metric,
        pictures=drawn,
    )


def _scores(run: Run) -> tuple[str, dict[int, float]]:
    """Return a metric of the training, and its value for the rows of the ledger that have one."""
    trained_by = run.document.training_run_id
    if trained_by is None:
        return "", {}
    # It may be gone or damaged, which does not keep anybody from reading this one.
    with suppress(PartwiseError):
        trained = Run.open(trained_by, run.store).ledger
        found = dict(metric_values(trained))
        names = (name for metric in _METRICS for name in (f"holdout_{metric}", metric))
        for name in (name for name in names if name in found):
            rows, values = found[name]
            ids = trained["partition_id"].take(rows).to_pylist()
            of_id = dict(zip(ids, values.tolist(), strict=True))
            own = enumerate(run.ledger["partition_id"].to_pylist())
            return name, {place: of_id[each] for place, each in own if each in of_id}
    return "", {}


def _chosen(having: np.ndarray, scores: dict[int, float]) -> list[tuple[str, int]]:
    """Return titles and rows of the ledger of the best, the middle and the worst with output."""
    ordered = [place for place in having.tolist() if np.isfinite(scores.get(place, np.nan))]
    titles = ("Best", "Median", "Worst")
    if not ordered:
        ordered, titles = having.tolist(), ("", "", "")
    # All of these metrics are errors.
    ordered.sort(key=lambda place: scores.get(place, 0.0))
    places = {ordered[0]: titles[0]} | {ordered[len(ordered) // 2]: titles[1]}
    places = places | {ordered[-1]: titles[2]} if len(ordered) > 1 else {ordered[0]: ""}
    return [(title, place) for place, title in places.items()]


def _rows(run: Run, place: int) -> pa.Table | None:
    """Return the rows of a partition; None: there are none, or they are gone or damaged."""
    name = run.ledger["partition_id"][place].as_py()
    with suppress(PartwiseError):
        rows = list(run.iter_predictions(partition_id=name))
        return pa.concat_tables(rows) if rows else None
    return None


def _columns(rows: pa.Table, keys: Collection[str], trained: str) -> tuple[str, str] | None:
    """Return the column of times, and that of labels where it was kept."""
    times = [
        field.name
        for field in rows.schema
        if field.name not in keys
        and (pa.types.is_date(field.type) or pa.types.is_timestamp(field.type))
    ]
    if len(times) != 1 or not has_numbers(rows.schema, PREDICTION):
        return None
    return times[0], trained if has_numbers(rows.schema, trained) else ""


def _picture(
    title: str, key: str, score: str, rows: pa.Table, time: str, label: str
) -> SeriesPicture | None:
    rows = rows.filter(pc.is_valid(rows[time])).sort_by(time)
    rows = rows.slice(max(rows.num_rows - MOST_POINTS, 0))
    seconds = rows[time].cast(pa.timestamp("us"), safe=False).cast(pa.int64()).to_numpy() / 1e6
    lines = {PREDICTION: finite_numbers(rows, PREDICTION)}
    lines |= {label: finite_numbers(rows, label)} if label else {}
    bounds = [finite_numbers(rows, name) for name in rows.column_names if _BAND.fullmatch(name)]
    seen = np.concatenate([*lines.values(), *bounds])
    seen = seen[np.isfinite(seen)]
    if len(seen) == 0 or len(np.unique(seconds)) < 2:
        return None
    across = Scale(low=float(seconds[0]), high=float(seconds[-1]))
    # Heights are compared with each other: no logarithms.
    upwards = replace(scale_of(seen), is_log=False)
    x = across.place(seconds)
    heights = {name: 100 - upwards.place(values) for name, values in lines.items()}
    return SeriesPicture(
        title=title,
        key=key,
        score=score,
        predicted=" ".join(_line(x, heights[PREDICTION])),
        actual=tuple(_line(x, heights[label])) if label else (),
        bands=tuple(_bands(x, [100 - upwards.place(each) for each in bounds])),
        across=tuple(_time_ticks(across)),
        upwards=tuple(upwards.ticks(plain_number, 4)),
    )


def _line(x: np.ndarray, y: np.ndarray) -> list[str]:
    """Return the points of each stretch without a gap."""
    known = np.isfinite(y)
    starts = np.flatnonzero(known & ~np.r_[False, known[:-1]])
    stops = np.flatnonzero(known & ~np.r_[known[1:], False]) + 1
    return [_points(x[a:b], y[a:b]) for a, b in zip(starts, stops, strict=True)]


def _bands(x: np.ndarray, bounds: list[np.ndarray]) -> list[str]:
    """Return the areas between the lowest and the highest bound, the next ones, and so on."""
    if not bounds:
        return []
    ordered = np.sort(np.array(bounds), axis=0)
    known = np.isfinite(ordered).all(axis=0)
    x, ordered = x[known], ordered[:, known]
    return [
        _points(np.r_[x, x[::-1]], np.r_[ordered[each], ordered[-1 - each][::-1]])
        for each in range(len(ordered) // 2)
        if len(x)
    ]


def _points(x: np.ndarray, y: np.ndarray) -> str:
    return " ".join(f"{a:g},{b:g}" for a, b in zip(x, y.round(2), strict=True))


def _time_ticks(scale: Scale) -> list[Tick]:
    """Return ticks at the ends of an axis of seconds since 1970, and between them."""
    has_days = scale.high - scale.low > 2 * 86_400

    def text(value: float) -> str:
        # Not by Python's own, which end with 9999: a time that stands for ever may be beyond it.
        day, _, clock = str(np.datetime64(math.floor(value), "s")).partition("T")
        return day if has_days else f"{day[-5:]} {clock[:5]}"

    return scale.label(np.linspace(scale.low, scale.high, 4), text)
