"""What a child process does with one partition to see whether its predictions came true."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from partwise.catalogs.drift import drift_of
from partwise.catalogs.evaluated import (
    CONFIDENCE,
    CORRECTED,
    ERROR,
    LABELLED,
    LEVEL,
    LOST,
    PENDING,
    PREDICTED,
    ROWS_THEN,
    UNPREDICTED,
    VALUE_THEN,
    drift_metrics,
)
from partwise.connector.context import PartitionContext
from partwise.connector.data_connector import DataConnector
from partwise.connector.vectors import matrix_of
from partwise.engine.outcome import Produced
from partwise.engine.works import StoredModel
from partwise.errors import InputError
from partwise.evaluation.paired import worse_confidence
from partwise.evaluation.scores import Metric, Predicted
from partwise.formatting import counted
from partwise.outcomes import PartitionStatus
from partwise.tables.classes import classes_among
from partwise.tables.column_names import names_in_words
from partwise.tables.features import label_numbers
from partwise.tables.keys.partition_keys import KeyColumn, hash_keys, normalize_keys
from partwise.tables.parquet_types import storable
from partwise.tables.sorting import sortable


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluateWork:
    """Join the predictions of a partition with the labels that are there, and measure them."""

    source_column: str
    """0 in rows with labels, 1 in predictions."""
    key_columns: tuple[str, ...]
    on: tuple[KeyColumn, ...]
    """Columns that tell the rows of a partition apart."""
    label: str
    latest_by: str
    predictions: tuple[str, ...]
    """The columns that were predicted: one, or one for each class."""
    level_column: str
    """Which level predicted a row; empty: the only one."""
    metric: Metric
    measures_drift: bool = False

    def __call__(
        self,
        data: DataConnector,
        context: PartitionContext,  # noqa: ARG002 (the protocol)
        models: Sequence[StoredModel],
        directory: str,  # noqa: ARG002 (the protocol)
    ) -> Produced:
        """Evaluate one partition.

        Raises:
            InputError: Two labels, or two predictions, are of one row.
        """
        table = data.to_arrow()
        is_prediction = pc.equal(table[self.source_column], 1)
        predicted = table.filter(is_prediction)
        actual = table.filter(pc.invert(is_prediction))
        level = self._level(predicted)
        model = next((each for each in models if each.level == level), None)
        actual, numbers, corrected = self._labels(actual, model)
        at = self._places(predicted, actual)
        found = at >= 0
        labels = np.where(found, numbers[at] if len(numbers) else np.nan, np.nan)
        values = _numbers(predicted.select(self.predictions))
        finite = np.isfinite(values if values.ndim == 1 else values.sum(axis=1))
        counts = {
            PREDICTED: predicted.num_rows,
            LABELLED: int((found & finite).sum()),
            PENDING: int((~found).sum()),
            LOST: int((found & ~finite).sum()),
            UNPREDICTED: len(numbers) - int(found.sum()),
            CORRECTED: corrected,
        }
        metrics = {name: float(count) for name, count in counts.items() if count}
        if predicted.num_rows:
            metrics[LEVEL] = float(level)
        now = Predicted(labels=labels[found & finite], predictions=values[found & finite])
        metrics |= self._measured(now, model)
        if self.measures_drift and model is not None and (sketch := model.trained_sketch()):
            metrics |= drift_metrics(drift_of(sketch, actual))
        rows = self._rows(predicted, actual, at, values - labels if values.ndim == 1 else None)
        return Produced(status=PartitionStatus.DONE, metrics=metrics, rows=rows)

    def _level(self, predicted: pa.Table) -> int:
        """Return which level predicted the rows: it is the same one for all of a partition."""
        if not self.level_column or not predicted.num_rows:
            return 0
        return int(predicted[self.level_column][0].as_py())

    def _labels(
        self, actual: pa.Table, model: StoredModel | None
    ) -> tuple[pa.Table, np.ndarray, int]:
        """Return the rows that have a label, their labels, and how many others these replaced.

        The labels are numbers, shape (n,); no two are of one row.
        """
        categories = None if model is None else model.trained_categories()
        named = None if categories is None else classes_among(categories)
        classes = named[1].to_pylist() if named is not None and named[0] == self.label else ()
        numbers = label_numbers(self.label, actual[self.label], classes)
        places = np.flatnonzero(np.isfinite(numbers))
        if self.latest_by:
            times = sortable(actual[self.latest_by], f"latest_by, {self.latest_by!r},")
            # Nulls come last: they are to come first.
            order = np.roll(pc.sort_indices(times).to_numpy(), times.null_count)
            places = order[np.isin(order, places)]
        identities = self._identities(actual)[places]
        # Of equal ones the last, hence the latest: the first of the reversed.
        _, last = np.unique(identities[::-1], return_index=True)
        kept = np.sort(len(places) - 1 - last)
        more = len(places) - len(kept)
        if more and not self.latest_by:
            raise InputError(
                f"{counted(more, 'label')} more than rows are there: {self._identity} tells rows "
                "apart. Name a column by which the last of several counts, as latest_by=, or more "
                "columns as on=."
            )
        chosen = places[kept]
        return actual.take(pa.array(chosen)), numbers[chosen], more

    def _places(self, predicted: pa.Table, actual: pa.Table) -> np.ndarray:
        """Return for each prediction the row of its label; -1: it has none. Shape (n,)."""
        wanted, there = self._identities(predicted), self._identities(actual)
        if (more := len(wanted) - len(np.unique(wanted))) > 0:
            raise InputError(
                f"{counted(more, 'prediction')} more than rows are there: {self._identity} tells "
                "rows apart. Name more columns as on=, which the inference has to keep."
            )
        order = np.argsort(there)
        places = np.searchsorted(there, wanted, sorter=order)
        if not len(there):
            return np.full(len(wanted), -1)
        at = order[np.minimum(places, len(there) - 1)]
        return np.where(there[at] == wanted, at, -1)

    @property
    def _identity(self) -> str:
        return names_in_words([*self.key_columns, *(column.name for column in self.on)])

    def _identities(self, rows: pa.Table) -> np.ndarray:
        """Return what tells the rows of a partition apart, shape (n,)."""
        if not self.on:
            return np.zeros(rows.num_rows, np.uint64)
        columns = rows.select([column.name for column in self.on])
        return hash_keys(normalize_keys(columns, self.on))

    def _measured(self, now: Predicted, model: StoredModel | None) -> dict[str, float]:
        """Return the metric beside that of before."""
        metrics: dict[str, float] = {}
        if len(now.labels):
            metrics[self.metric.name] = self.metric(now)
        if model is None or model.value_then is None:
            return metrics
        metrics[VALUE_THEN] = model.value_then
        if model.rows_then is not None:
            metrics[ROWS_THEN] = float(model.rows_then)
        sure = worse_confidence(self.metric, now, model.value_then, model.rows_then)
        return metrics if sure != sure else {**metrics, CONFIDENCE: sure}

    def _rows(
        self, predicted: pa.Table, actual: pa.Table, at: np.ndarray, errors: np.ndarray | None
    ) -> pa.Table:
        """Return the predictions that have a label, with it and their errors."""
        found = np.flatnonzero(at >= 0)
        rows = predicted.select([*self.key_columns, *(column.name for column in self.on)]).take(
            pa.array(found)
        )
        label = actual[self.label].take(pa.array(at[found]))
        rows = rows.append_column(self.label, label)
        for name in self.predictions:
            rows = rows.append_column(name, predicted[name].take(pa.array(found)))
        if errors is not None and ERROR not in rows.column_names:
            rows = rows.append_column(ERROR, pa.array(errors[found]))
        return storable(rows)


def _numbers(predictions: pa.Table) -> np.ndarray:
    """Return predictions as doubles, NaN where they are null: shape (n,), or (n, classes)."""
    values = matrix_of(predictions).astype(np.float64, copy=False)
    return values[:, 0] if values.shape[1] == 1 else values
