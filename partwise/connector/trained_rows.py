"""Rows as a trained model takes them, and what it says of them: the same wherever it predicts."""

from typing import Any

import numpy as np
import pyarrow as pa

from partwise.connector.data_connector import DataConnector
from partwise.connector.returned_rows import returned_table
from partwise.tables.calendar import in_zones, zones_among
from partwise.tables.categories import with_categories_of
from partwise.tables.classes import CLASS_COLUMN, classes_among, predicted_classes


def with_trained_categories(data: DataConnector, trained: pa.Table | None) -> DataConnector:
    """Return rows with the codes and time zones that a model was trained with; None: it had none.

    Raises:
        ColumnError: A time has a zone and had none in training, or the other way round.
    """
    if trained is None:
        return data
    table = in_zones(data.to_arrow(), zones_among(trained))
    return DataConnector(with_categories_of(table, trained))


def with_class(outcome: Any, trained: pa.Table | None) -> Any:
    """Return probabilities, and beside them the most probable class; all else as it is.

    `trained` has the classes of the model's label, if it has any.
    """
    named = None if trained is None else classes_among(trained)
    if named is None or not isinstance(outcome, np.ndarray) or outcome.dtype.kind != "f":
        return outcome
    _, classes = named
    if outcome.ndim not in (1, 2) or (outcome.ndim == 2 and outcome.shape[1] != len(classes)):
        return outcome
    rows = returned_table(outcome, "prediction")
    return rows.append_column(CLASS_COLUMN, predicted_classes(outcome, classes))
