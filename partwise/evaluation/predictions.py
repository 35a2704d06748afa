"""What a model returned, as numbers that can be scored: the one border where these enter."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from partwise.connector.returned_rows import returned_table
from partwise.connector.vectors import matrix_of
from partwise.errors import ColumnError, InputError
from partwise.formatting import counted


def prediction_array(outcome: Any, n_rows: int) -> np.ndarray:
    """Return predictions as doubles, in which what is missing is NaN.

    They may be an array, list, Series, frame or table of shape (n,), (n, 1) or (n, classes); null,
    None, NA and what is masked are missing. Of a mapping, frame or table with a column
    "prediction", the others are no predictions: its bounds, for example. A single value in a
    mapping is that of all rows. Returned is the shape (n,), or (n, classes) for two columns or
    more.
    """
    try:
        values = _doubles(outcome)
    except (TypeError, ValueError, ColumnError, pa.ArrowInvalid) as error:
        raise InputError(
            f"The predictions, a {type(outcome).__name__}, are not numbers: {error}"
        ) from error
    if isinstance(outcome, Mapping) and values.ndim == 0:
        values = np.full(n_rows, values)
    if values.ndim not in (1, 2) or len(values) != n_rows or 0 in values.shape[1:]:
        raise InputError(
            f"The model predicts an array of shape {values.shape} for "
            f"{counted(n_rows, 'row')}: one prediction is needed for each row, or one for each row "
            "and class."
        )
    # A column of one is how Keras, and scikit-learn after labels of one column, write (n,).
    return values[:, 0] if values.ndim == 2 and values.shape[1] == 1 else values


def _doubles(outcome: Any) -> np.ndarray:
    if isinstance(outcome, np.ma.MaskedArray):
        return np.where(np.ma.getmaskarray(outcome), np.nan, _as_doubles(outcome.data))
    if isinstance(outcome, Mapping) and "prediction" in outcome:
        return _doubles(outcome["prediction"])
    of_columns = hasattr(outcome, "__arrow_c_stream__") and hasattr(outcome, "columns")
    is_pandas = type(outcome).__module__.partition(".")[0] == "pandas"
    if of_columns or is_pandas or isinstance(outcome, Mapping | pa.Array | pa.ChunkedArray):
        table = returned_table(outcome, "prediction")
        if "prediction" in table.column_names:
            return _as_doubles(matrix_of(table.select(["prediction"]))[:, 0])
        return _as_doubles(matrix_of(table))
    return _as_doubles(np.asarray(outcome))


def _as_doubles(values: np.ndarray) -> np.ndarray:
    if values.dtype == object:
        # NA of pandas is not a float.
        flat = [np.nan if _is_missing(value) else _number(value) for value in values.flat]
        return np.array(flat, np.float64).reshape(values.shape)
    if values.dtype.kind not in "biuf":
        raise TypeError(f"their type is {values.dtype}")
    return values.astype(np.float64, copy=False)


def _is_missing(value: Any) -> bool:
    return value is None or type(value).__name__ == "NAType"


def _number(value: Any) -> float:
    if isinstance(value, str | bytes):
        raise TypeError(f"{value!r} is among them")
    return float(value)


def without_number(predictions: np.ndarray) -> str:
    """Say how many rows have a prediction that is NaN or infinite; empty: none has.

    A metric over the other rows alone would praise a model for what it declines to predict.
    """
    finite = np.isfinite(predictions)
    if finite.all():
        return ""
    rows = finite if finite.ndim == 1 else finite.all(axis=1)
    wrong = predictions[~finite]
    return (
        f"{len(rows) - int(rows.sum())} of {len(rows)} predictions are not finite numbers, "
        f"such as {wrong[0]:g}"
    )
