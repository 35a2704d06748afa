"""A plain train function as a candidate: it is trained on some rows, and predicts others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from partwise.connector.data_connector import DataConnector
from partwise.connector.returned_rows import in_row_order
from partwise.errors import FunctionError
from partwise.outcomes import Result, Skip
from partwise.tables.features import label_numbers
from partwise.trainers.candidate import Fit
from partwise.trainers.choosing.choice import Chooser, candidate_name
from partwise.trainers.predict import default_predict
from partwise.trainers.resolving import resolve_trainer

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np

    from partwise.connector.context import PartitionContext
    from partwise.tables.classes import ClassValue
    from partwise.trainers.candidate import Look

TrainFunction = Callable[..., Any]
"""(data, context) -> model, `Result` or `Skip`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionCandidate:
    """A function that trains, with one that predicts with its models.

    It is given the rows trained on, and settings in `context.params`. Of files that it uploads,
    those are kept that it uploads while the model that is kept is trained on all rows.
    """

    function: TrainFunction
    label: str
    classes: tuple[ClassValue, ...] = ()
    """Those of the label, of which models predict the probabilities in this order; none: the label
    is numbers."""
    predict: Callable[..., Any] = default_predict
    """(data, model, context) -> a prediction for each row."""

    @property
    def candidate_name(self) -> str:
        """How it is called among candidates."""
        return candidate_name(self.function)

    def prepare(self, data: DataConnector, context: PartitionContext) -> PreparedFunction:
        """Return the labelled rows of a partition; see `Candidate.prepare`."""
        return PreparedFunction(self, data.to_arrow(), context)


class PreparedFunction:
    """The labelled rows of a partition; see `PreparedRows`."""

    def __init__(
        self, candidate: FunctionCandidate, table: pa.Table, context: PartitionContext
    ) -> None:
        self.table = table
        self.labels = label_numbers(
            candidate.label, table.column(candidate.label), candidate.classes
        )
        self._candidate, self._context = candidate, context

    def fit(
        self,
        train: np.ndarray,
        test: np.ndarray | None = None,
        settings: Mapping[str, Any] | None = None,
        look: Look | None = None,  # noqa: ARG002 (a function does not report)
    ) -> Fit | Skip:
        """Train a model, and predict other rows with it; see `PreparedRows.fit`."""
        params = {**self._context.params, **(settings or {})}
        context = self._context.with_params(params, uploads=test is None)
        rows = DataConnector(self.table.filter(pa.array(train)))
        outcome = self._candidate.function(rows, context)
        if isinstance(outcome, Skip):
            return outcome
        model = outcome.model if isinstance(outcome, Result) else outcome
        if model is None:
            return Skip("the function returned None instead of a model")
        if test is None:
            return Fit(model=model, predictions=None)
        # Without the label, which a model is not to see.
        asked = self.table.filter(pa.array(test)).drop_columns([self._candidate.label])
        predicted = self._candidate.predict(DataConnector(asked), model, context)
        predicted = in_row_order(predicted, asked, is_joined=True)
        return Fit(model=model, predictions=predicted)


def as_candidate(
    function: Any, label: str, classes: tuple[ClassValue, ...], predict: str | Callable[..., Any]
) -> Any:
    """Return what can be scored of a trainer or function, or of the name of one.

    A function is given another that predicts with its models; "": as inference does.
    """
    found: Any = resolve_trainer(function)
    if hasattr(found, "prepare") or isinstance(found, Chooser):
        return found
    return FunctionCandidate(
        function=found,
        label=label,
        classes=classes,
        predict=resolve_trainer(predict) if predict else default_predict,
    )


def importable_name(function: Callable[..., Any]) -> str:
    """Return "package.module:function", by which another process finds a function."""
    import sys

    module, qualname = getattr(function, "__module__", ""), getattr(function, "__qualname__", "")
    found = getattr(sys.modules.get(module), qualname, None) if qualname else None
    # Another process has a __main__ of its own.
    if module == "__main__" or found is not function:
        shown = qualname or type(function).__name__
        raise FunctionError(
            f"{shown!r} of {module or 'nowhere'} cannot be imported by another process."
        )
    return f"{module}:{qualname}"
