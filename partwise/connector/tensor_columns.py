"""What becomes of Arrow columns in frameworks of tensors: arrays, or lists of Python values.

A column's form is chosen once for all its rows, so that every batch has it in the same type.
`docs/types.md` has the table.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from partwise.tables.decimals import cast_values

NO_TIME = np.iinfo(np.int64).min
"""A null time, date or duration, as numpy's NaT is stored."""

NO_CATEGORY = -1
"""The code of a null category."""

Values = np.ndarray | list[Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnForm:
    """How the rows of one column are given."""

    kind: Literal["array", "lists", "values"]
    """An array; a list of arrays of any length; or a list of what Arrow makes of it in Python."""

    dtype: np.dtype[Any]
    """Of the arrays; object for values."""

    shape: tuple[int, ...] = ()
    """Of one row in an array."""

    has_nulls: bool = False
    """Whether a value is null; always False for what shows it as NaN, NaT or -1."""

    def expanded(self) -> "ColumnForm":
        """Return the form in which a value of one number is an array of one."""
        return replace(self, shape=(1,)) if self.kind == "array" and not self.shape else self


def column_form(column: pa.ChunkedArray) -> ColumnForm:
    """Choose the form of a column; only its null marks are read."""
    kind, has_nulls = column.type, column.null_count > 0
    types = pa.types
    if types.is_fixed_size_list(kind):
        inner = column_form(_flat(column))
        if inner.kind != "array":
            return ColumnForm(kind="values", dtype=np.dtype(object), has_nulls=has_nulls)
        # A null row is NaN all over.
        wide = has_nulls and inner.dtype.kind in "biu" and not _has_own_null(_item_type(kind))
        dtype = np.dtype(np.float64) if wide else inner.dtype
        return ColumnForm(kind="array", dtype=dtype, shape=(kind.list_size, *inner.shape))
    if types.is_list(kind) or types.is_large_list(kind):
        inner = column_form(_flat(column))
        if inner.kind == "array" and not inner.shape:
            return ColumnForm(kind="lists", dtype=inner.dtype, has_nulls=has_nulls)
        return ColumnForm(kind="values", dtype=np.dtype(object), has_nulls=has_nulls)
    if _has_own_null(kind):
        return ColumnForm(kind="array", dtype=np.dtype(np.int64))
    if types.is_floating(kind):
        return ColumnForm(kind="array", dtype=np.dtype(kind.to_pandas_dtype()))
    if types.is_integer(kind) or types.is_boolean(kind):
        dtype = np.dtype(np.float64 if has_nulls else kind.to_pandas_dtype())
        return ColumnForm(kind="array", dtype=dtype)
    if types.is_decimal(kind) or types.is_null(kind):
        return ColumnForm(kind="array", dtype=np.dtype(np.float64))
    return ColumnForm(kind="values", dtype=np.dtype(object), has_nulls=has_nulls)


def _has_own_null(kind: pa.DataType) -> bool:
    """Whether a type becomes whole numbers of which one stands for null."""
    return bool(pa.types.is_dictionary(kind) or pa.types.is_temporal(kind)) and not (
        pa.types.is_interval(kind)
    )


def _item_type(kind: pa.DataType) -> pa.DataType:
    return _item_type(kind.value_type) if pa.types.is_fixed_size_list(kind) else kind


def _flat(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """The items of lists."""
    return pa.chunked_array([chunk.flatten() for chunk in column.chunks], column.type.value_type)


def batch_values(batch: pa.RecordBatch, forms: Mapping[str, ColumnForm]) -> dict[str, Values]:
    """Give a batch in the forms of its columns.

    By name: an array of shape (n, ...), which may be read-only, or a list of n values.
    """
    return {
        name: _values(column, forms[name])
        for name, column in zip(batch.schema.names, batch.columns, strict=True)
    }


def _values(array: pa.Array, form: ColumnForm) -> Values:
    if form.kind == "values":
        values: list[Any] = array.to_pylist()
        return values
    if form.kind == "lists":
        items = _array(array.flatten(), form.dtype)
        lengths = pc.list_value_length(array).fill_null(0).to_numpy(zero_copy_only=False)
        # Of no rows split() would make one part, an empty one.
        parts = np.split(items, np.cumsum(lengths)[:-1]) if len(array) else []
        if not array.null_count:
            return list(parts)
        there = array.is_valid().to_numpy(zero_copy_only=False)
        return [part if valid else None for part, valid in zip(parts, there, strict=True)]
    return _array(array, form.dtype).reshape(len(array), *form.shape)


def _array(array: pa.Array, dtype: np.dtype[Any]) -> np.ndarray:
    kind = array.type
    if pa.types.is_fixed_size_list(kind):
        items = _array(array.flatten(), dtype)
        # flatten() leaves out what Arrow holds in the place of null rows.
        there = len(array) - array.null_count
        rows = items.reshape(there, kind.list_size, *items.shape[1:])
        if not array.null_count:
            return rows
        filled = np.full((len(array), *rows.shape[1:]), _null_of(kind), dtype)
        filled[array.is_valid().to_numpy(zero_copy_only=False)] = rows
        return filled
    if pa.types.is_dictionary(kind):
        array = array.indices.cast(pa.int64())
    elif _has_own_null(kind):
        # Arrow casts days and seconds of 32 bits to int32 only.
        if kind.bit_width == 32:
            array = array.cast(pa.int32())
        array = array.cast(pa.int64())
    elif pa.types.is_decimal(kind) or pa.types.is_null(kind):
        array = cast_values(array, pa.float64())
    elif pa.types.is_boolean(kind) and dtype != np.bool_:
        array = array.cast(pa.uint8())
    if _has_own_null(kind) and array.null_count:
        array = array.fill_null(_null_of(kind))
    values: np.ndarray = array.to_numpy(zero_copy_only=False).astype(dtype, copy=False)
    return values


def _null_of(kind: pa.DataType) -> float | int:
    kind = _item_type(kind)
    if pa.types.is_dictionary(kind):
        return NO_CATEGORY
    return NO_TIME if _has_own_null(kind) else np.nan
