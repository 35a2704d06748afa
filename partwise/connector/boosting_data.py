"""A partition as the data sets of LightGBM and XGBoost, column by column from Arrow.

Both libraries bin or copy what they are given, so that a matrix or a pandas frame in between would
be one more copy of all rows.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from partwise.connector.categories import categories_of, with_categories
from partwise.errors import ColumnError, InputError
from partwise.tables.calendar import with_calendar
from partwise.tables.column_names import columns_there
from partwise.tables.decimals import cast_values
from partwise.tables.features import (
    LARGEST_SINGLE,
    REFUSED_BY_LIGHTGBM,
    REFUSED_BY_XGBOOST,
    choose_features,
    column_within_single,
    feature_matrix,
    feature_names,
    numbers,
)

if TYPE_CHECKING:
    import lightgbm
    import xgboost


@dataclass(frozen=True, slots=True, kw_only=True)
class _Chosen:
    """The columns of a data set."""

    table: pa.Table
    """The features; those of a dictionary type are categorical."""

    label: np.ndarray | None
    weight: np.ndarray | None


def _choose(
    table: pa.Table, label: str | None, columns: Sequence[str] | None, weight: str | None
) -> _Chosen:
    named = [name for name in (label, weight) if name is not None]
    for name in named:
        if name not in table.column_names:
            raise ColumnError(
                f"There is no column {name!r}: {columns_there(table.column_names, name)}"
            )
    chosen = choose_features(
        table.schema,
        label=label or "",
        features=() if columns is None else list(columns),
        categorical=(),
        left_out=named,
    )
    return _Chosen(
        table=with_calendar(table, chosen.names).select(list(chosen.names)),
        label=None if label is None else _whole(table, label, "label"),
        weight=None if weight is None else _whole(table, weight, "weight"),
    )


def _whole(table: pa.Table, name: str, what: str) -> np.ndarray:
    """A column of numbers, none of them missing, all of which single precision holds."""
    values = numbers(name, table.column(name))
    if missing := int(np.isnan(values).sum()):
        raise ColumnError(
            f"The {what} {name!r} is null or NaN in {missing} of {len(values)} rows: leave them "
            "out first, for example with to_arrow().filter(...)."
        )
    # LightGBM would train on infinity without a word.
    beyond = np.abs(values) > LARGEST_SINGLE
    if beyond.any():
        raise ColumnError(
            f"The {what} {name!r} is {values[beyond][0]:g} in one of {len(values)} rows, and the "
            f"library keeps it in single precision, up to {LARGEST_SINGLE:.2g}: leave such rows "
            "out first, for example with to_arrow().filter(...)."
        )
    return values


def plain_numbers(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """A column of a type that both libraries read; most are left as they are."""
    kind = column.type
    if pa.types.is_decimal(kind) or pa.types.is_null(kind):
        return cast_values(column, pa.float64())
    return column.cast(pa.float32()) if pa.types.is_float16(kind) else column


def lightgbm_dataset(
    table: pa.Table,
    *,
    label: str | None,
    columns: Sequence[str] | None,
    weight: str | None,
    params: dict[str, Any] | None,
    reference: "lightgbm.Dataset | None",
) -> "lightgbm.Dataset":
    """Make LightGBM's data set; see `DataConnector.to_lightgbm`.

    LightGBM ends the process on an Arrow type that it does not know (4.7), and knows no
    dictionaries: it gets their codes.
    """
    import lightgbm

    chosen = _choose(table, label, columns, weight)
    places = [
        place
        for place, field in enumerate(chosen.table.schema)
        if pa.types.is_dictionary(field.type)
    ]
    known = None if reference is None else reference.pandas_categorical
    if known is not None and len(known) != len(places):
        raise InputError(
            f"The reference has {len(known)} categorical features, but here are {len(places)}: "
            "make both with to_lightgbm() from the same columns."
        )
    lists: list[list[Any]] = []
    arrays: list[Any] = []
    for name, column in zip(chosen.table.column_names, chosen.table.columns, strict=True):
        if not pa.types.is_dictionary(column.type):
            arrays.append(plain_numbers(column))
            continue
        own: list[Any] = categories_of(column).to_pylist()
        lists.append(own if known is None else list(known[len(lists)]))
        # Codes mean the same here and in the reference only where both list the same values.
        if lists[-1] == own:
            codes = [chunk.indices.cast(pa.int32()) for chunk in column.chunks]
            arrays.append(pa.chunked_array(codes, pa.int32()))
        else:
            arrays.append(pa.array(feature_matrix(chosen.table, [name], {name: lists[-1]})[:, 0]))
    dataset = lightgbm.Dataset(
        pa.table(arrays, feature_names(chosen.table.column_names, REFUSED_BY_LIGHTGBM)),
        chosen.label,
        weight=chosen.weight,
        reference=reference,
        categorical_feature=places,
        params=params,
    )
    # What LightGBM keeps of a pandas frame, and writes into the model: the categories' values.
    dataset.pandas_categorical = lists
    return dataset


def xgboost_matrix(
    table: pa.Table,
    *,
    label: str | None,
    columns: Sequence[str] | None,
    weight: str | None,
    threads: int | None,
) -> "xgboost.DMatrix":
    """Make XGBoost's data set; see `DataConnector.to_dmatrix`."""
    import xgboost

    chosen = _choose(table, label, columns, weight)
    arrays = [
        with_categories(
            pa.chunked_array([chunk.indices for chunk in column.chunks], column.type.index_type),
            categories_of(column).to_pylist(),
        )
        if pa.types.is_dictionary(column.type)
        else column_within_single(plain_numbers(column))
        for column in chosen.table.columns
    ]
    if chosen.weight is not None and (chosen.weight < 0).any():
        raise ColumnError(
            f"The weight {weight!r} is {chosen.weight.min():g} in one of {table.num_rows} rows, "
            "and XGBoost takes none below 0: correct it first."
        )
    return xgboost.DMatrix(
        pa.table(arrays, feature_names(chosen.table.column_names, REFUSED_BY_XGBOOST)),
        chosen.label,
        weight=chosen.weight,
        enable_categorical=True,
        nthread=threads,
    )
