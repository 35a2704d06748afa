"""What was predicted against what came true, where an inference has kept the label."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from partwise.errors import PartwiseError
from partwise.formatting import number
from partwise.reports.distributions import Distribution, describe_distribution
from partwise.reports.scales import Scale, Tick, plain_number, scale_of
from partwise.runs.documents import RUN_SCHEME
from partwise.runs.run import Run

PREDICTION = "prediction"
MOST_ROWS_READ = 1_000_000
"""Of all partitions together: `evaluate_predictions` is for more."""
MOST_STEPS = 2
"""From an inference to an export, and from that to its training."""
_LARGEST = 1e150
"""The squares of larger numbers have no place in a double."""
CELLS = 40
"""Of the picture, on each side."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """A square of the picture: its left and its upper side in percent, and how full it is."""

    left: float
    top: float
    opacity: float
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AccuracyReport:
    """How far predictions are from the label that was kept beside them."""

    label: str
    rows: int
    """Those that have both."""
    pending: int
    """Those that have no label yet, or no prediction."""
    numbers: tuple[tuple[str, str], ...]
    """Over all rows: mean absolute error, bias and so on."""
    cells: tuple[Cell, ...]
    ticks: tuple[Tick, ...]
    """Of both axes."""
    is_log: bool
    by_key: Distribution
    """The mean absolute error of each partition, relative to its mean label."""


def describe_accuracy(run: Run, label: str, key_of: Callable[[int], str]) -> AccuracyReport | None:
    """Compare predictions of an inference with the label of its training, if it kept that.

    None: there is none, or there are too many rows to read.
    """
    ledger = run.ledger
    if run.kind != "infer" or not label:
        return None
    having = np.flatnonzero(pc.is_valid(ledger["rows_file"]).to_numpy(zero_copy_only=False))
    if not len(having) or (pc.sum(ledger["rows_count"]).as_py() or 0) > MOST_ROWS_READ:
        return None
    with suppress(PartwiseError):
        read = _predicted_and_actual(run, label)
        return None if read is None else _describe(label, *read, _rows_of(ledger, having), key_of)
    return None


def trained_label(run: Run) -> str:
    """Return the label of the trainer whose models a run used; empty: nobody says which it is."""
    # A run that is gone or damaged keeps nobody from reading the rest of the report.
    with suppress(PartwiseError):
        used = run
        for _ in range(MOST_STEPS):
            models = used.document.models[:1]
            if not models or not models[0].startswith(RUN_SCHEME):
                break
            used = Run.open(models[0].removeprefix(RUN_SCHEME), run.store)
        trainer = used.read_generation_document().arguments.get("trainer")
        return str(trainer.get("label") or "") if isinstance(trainer, dict) else ""
    return ""


def has_numbers(schema: pa.Schema, *names: str) -> bool:
    """Whether rows have columns of these names, and all are of numbers."""
    kinds = [schema.field(name).type for name in names if name in schema.names]
    are_numbers = (pa.types.is_integer(each) or pa.types.is_floating(each) for each in kinds)
    return len(kinds) == len(names) and all(are_numbers)


def finite_numbers(rows: pa.Table, name: str) -> np.ndarray:
    """Return a column as float64, NaN where there is no finite value."""
    values = rows[name].cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    return np.where(np.isfinite(values), values, np.nan)


def _predicted_and_actual(run: Run, label: str) -> tuple[np.ndarray, np.ndarray] | None:
    """Return both columns of all files, in the order of `_rows_of`; None: some have not both."""
    parts = []
    for table in run.iter_predictions():
        if not has_numbers(table.schema, PREDICTION, label):
            return None
        parts.append((finite_numbers(table, PREDICTION), finite_numbers(table, label)))
    predicted, actual = (np.concatenate(each) for each in zip(*parts, strict=True))
    return predicted, actual


def _rows_of(ledger: pa.Table, having: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the partitions in the order of their output, and how many rows each has."""
    chosen = ledger.select(["rows_file", "rows_offset", "rows_count"]).take(pa.array(having))
    order = pc.sort_indices(
        chosen, sort_keys=[("rows_file", "ascending"), ("rows_offset", "ascending")]
    ).to_numpy()
    return having[order], chosen["rows_count"].to_numpy()[order]


def _describe(
    label: str,
    predicted: np.ndarray,
    actual: np.ndarray,
    partitions: tuple[np.ndarray, np.ndarray],
    key_of: Callable[[int], str],
) -> AccuracyReport | None:
    both = (np.abs(predicted) < _LARGEST) & (np.abs(actual) < _LARGEST)
    if not both.any():
        return None
    errors = np.where(both, np.abs(predicted - actual), 0.0)
    sizes = np.where(both, np.abs(actual), 0.0)
    places, counts = partitions
    starts = np.cumsum(counts) - counts
    # Sums over stretches of rows; of an empty stretch numpy would give the row at its beginning.
    filled = counts > 0
    error, size, rows = (
        np.add.reduceat(values, starts[filled]) for values in (errors, sizes, both.astype(float))
    )
    known = (rows > 0) & (size > 0)
    with np.errstate(over="ignore"):
        relative = error[known] / size[known]
    scale = scale_of(np.concatenate([predicted[both], actual[both]]))
    return AccuracyReport(
        label=label,
        rows=int(both.sum()),
        pending=int((~both).sum()),
        numbers=_overall(predicted[both], actual[both]),
        cells=_cells(scale, predicted[both], actual[both]),
        ticks=tuple(scale.ticks(plain_number, 4)),
        is_log=scale.is_log,
        by_key=describe_distribution(
            "Error by key, relative to the label (wape)", places[filled][known], relative, key_of
        ),
    )


def _overall(predicted: np.ndarray, actual: np.ndarray) -> tuple[tuple[str, str], ...]:
    difference = predicted - actual
    numbers = {
        "mean absolute error": float(np.abs(difference).mean()),
        "root mean squared error": float(np.sqrt((difference**2).mean())),
        "bias": float(difference.mean()),
    }
    if total := float(np.abs(actual).sum()):
        numbers["relative error (wape)"] = float(np.abs(difference).sum()) / total
    return tuple((name, number(value)) for name, value in numbers.items())


def _cells(scale: Scale, predicted: np.ndarray, actual: np.ndarray) -> tuple[Cell, ...]:
    """Return the squares that have rows, darker the more, by the logarithm of their number."""
    across, upwards = (
        np.minimum((scale.share(values) * CELLS).astype(int), CELLS - 1)
        for values in (actual, predicted)
    )
    counts = np.zeros((CELLS, CELLS), int)
    np.add.at(counts, (across, upwards), 1)
    width, most = 100 / CELLS, np.log1p(counts.max())
    return tuple(
        Cell(
            left=round(width * x, 2),
            top=round(100 - width * (y + 1), 2),
            opacity=round(0.15 + 0.85 * float(np.log1p(counts[x, y]) / most), 2),
            text=f"{counts[x, y]:,}",
        )
        for x, y in zip(*np.nonzero(counts), strict=True)
    )
