"""What a child process does with one partition to compare candidates: all on the same rows."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import isfinite

import numpy as np

from partwise.catalogs.contest import (
    COUNTED,
    FAILED,
    LOST,
    MARGIN,
    SEEN,
    UNLABELLED,
    of_candidate,
    of_pair,
)
from partwise.connector.context import PartitionContext
from partwise.connector.data_connector import DataConnector
from partwise.connector.returned_rows import in_row_order
from partwise.connector.trained_rows import with_trained_categories
from partwise.engine.failures import storable_start
from partwise.engine.infer_work import Predict
from partwise.engine.outcome import Produced
from partwise.engine.works import StoredModel
from partwise.evaluation.paired import confidence
from partwise.evaluation.predictions import prediction_array
from partwise.evaluation.scores import Metric, Predicted
from partwise.formatting import shortened
from partwise.models.serdes import ModelSerde, serde_by_name
from partwise.outcomes import PartitionStatus
from partwise.tables.classes import classes_among
from partwise.tables.features import label_numbers


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Tried:
    """A candidate that predicted."""

    name: str
    predicted: Predicted
    finite: np.ndarray
    """Rows for which it gave finite numbers, shape (n,)."""
    saw_rows: bool
    value: float = float("nan")


@dataclass(frozen=True, slots=True, kw_only=True)
class CompareWork:
    """Have each candidate of a partition predict its rows, and measure all on the same ones.

    A row counts if its label is there and every candidate that has a value gave a finite number:
    else one that declines the hard rows would win.
    """

    candidates: tuple[str, ...]
    """Their names, by level."""
    predict: Predict
    serde: ModelSerde | None
    """Reads models that no native serde wrote."""
    metric: Metric
    label: str

    def __call__(
        self,
        data: DataConnector,
        context: PartitionContext,
        models: Sequence[StoredModel],
        directory: str,  # noqa: ARG002 (the protocol)
    ) -> Produced:
        """Compare the candidates of one partition.

        A candidate that raises has no value; where all do, the first error is raised.
        """
        if not models:
            reason = "None of the candidates has a model for this partition."
            return Produced(status=PartitionStatus.SKIPPED, reason=reason)
        tried: list[_Tried] = []
        errors: dict[str, Exception] = {}
        for model in models:
            name = self.candidates[model.level]
            try:
                tried.append(self._try(name, data, context, model))
            except Exception as error:  # what a model, or a function of the user's, raises
                context.logger.warning("%s raised:", name, exc_info=error)
                errors[name] = error
        if not tried:
            raise next(iter(errors.values()))
        present = np.isfinite(tried[0].predicted.labels)
        metrics = {UNLABELLED: float((~present).sum())}
        if not present.any():
            reason = f"No row has a value of the label {self.label!r}."
            return Produced(status=PartitionStatus.SKIPPED, reason=reason, metrics=metrics)
        heard = [each for each in tried if each.finite[present].any()]
        counted = np.logical_and.reduce([present, *(each.finite for each in heard)])
        metrics |= _losses_of(tried, present)
        if heard and counted.any():
            metrics[COUNTED] = float(counted.sum())
            measured = [self._measured(each, counted, errors) for each in heard]
            found = [each for each in measured if isfinite(each.value)]
        else:
            metrics[COUNTED], found = 0.0, []
        metrics |= {of_candidate(self.metric.name, each.name): each.value for each in found}
        metrics |= {of_candidate(SEEN, each.name): 1.0 for each in tried if each.saw_rows}
        metrics |= {of_candidate(FAILED, name): 1.0 for name in errors}
        metrics |= self._confidences(found)
        winner, margin = self._winner(tried, found, metrics)
        return Produced(
            status=PartitionStatus.DONE,
            metrics=metrics | margin,
            candidate=winner,
            reason=_in_words(errors),
        )

    def _try(
        self, name: str, data: DataConnector, context: PartitionContext, model: StoredModel
    ) -> _Tried:
        categories = model.trained_categories()
        # For each candidate: the codes of its own training.
        rows = with_trained_categories(data, categories)
        trained = model.read(serde_by_name(model.artifact.serde, self.serde))
        outcome = self.predict(rows, trained, context)
        outcome = in_row_order(outcome, rows.to_arrow(), is_joined=True)
        table = data.to_arrow()
        predictions = prediction_array(outcome, table.num_rows)
        named = None if categories is None else classes_among(categories)
        classes = named[1].to_pylist() if named is not None and named[0] == self.label else ()
        finite = np.isfinite(predictions)
        return _Tried(
            name=name,
            predicted=Predicted(
                labels=label_numbers(self.label, table.column(self.label), classes),
                predictions=predictions,
            ),
            finite=finite if finite.ndim == 1 else finite.all(axis=1),
            saw_rows=model.saw_rows,
        )

    def _measured(self, tried: _Tried, counted: np.ndarray, errors: dict[str, Exception]) -> _Tried:
        """Return a candidate with its value on the rows that count."""
        of = tried.predicted
        rows = Predicted(labels=of.labels[counted], predictions=of.predictions[counted])
        try:
            value = self.metric(rows)
        except Exception as error:  # a metric of the user's, or one that does not fit
            errors[tried.name] = error
            value = float("nan")
        return replace(tried, predicted=rows, value=value)

    def _confidences(self, found: Sequence[_Tried]) -> dict[str, float]:
        """Return how sure it is for each pair that the later candidate is better."""
        sure = {
            of_pair(later.name, earlier.name): confidence(
                self.metric, later.predicted, earlier.predicted
            )
            for place, later in enumerate(found)
            for earlier in found[:place]
        }
        return {name: value for name, value in sure.items() if value == value}

    def _winner(
        self, tried: Sequence[_Tried], found: Sequence[_Tried], metrics: Mapping[str, float]
    ) -> tuple[str, dict[str, float]]:
        """Return the best candidate, "" where none is, and by how much it is."""
        fit = [
            each
            for each in found
            if not each.saw_rows and not metrics.get(of_candidate(LOST, each.name))
        ]
        fit.sort(key=lambda each: self.metric.loss(each.value))
        # Beside one that saw the rows, nobody can win alone.
        if not fit or (len(fit) == 1 and any(each.saw_rows for each in tried)):
            return "", {}
        if len(fit) == 1:
            return fit[0].name, {}
        best, second = fit[0], fit[1]
        if best.value == second.value:
            return "", {}
        gain = self.metric.loss(second.value) - self.metric.loss(best.value)
        return best.name, {MARGIN: gain / abs(second.value)} if second.value else {}


def _losses_of(tried: Sequence[_Tried], present: np.ndarray) -> dict[str, float]:
    """Return for how many rows with a label each candidate gave no finite number."""
    lost = {each.name: float((present & ~each.finite).sum()) for each in tried}
    return {of_candidate(LOST, name): count for name, count in lost.items() if count}


def _in_words(errors: Mapping[str, Exception]) -> str:
    texts = [f"{name} raised {type(each).__name__}: {each}" for name, each in errors.items()]
    return "; ".join(shortened(storable_start(text), 300) for text in texts)
