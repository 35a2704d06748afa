"""Arrow columns as numpy vectors."""

from typing import Any

import numpy as np
import pyarrow as pa

from partwise.errors import ColumnError
from partwise.tables.decimals import cast_values
from partwise.tables.dictionaries import decoded_column


def vector_of(column: pa.ChunkedArray) -> np.ndarray:
    """One column as a vector of its own type, without a copy for numbers that have no nulls.

    Dictionaries are decoded, decimals are doubles; a null number is NaN, a null time NaT, and any
    other null None.
    """
    if pa.types.is_dictionary(column.type):
        column = decoded_column(column)
    kind = column.type
    if pa.types.is_decimal(kind) or pa.types.is_null(kind):
        column = cast_values(column, pa.float64())
    elif pa.types.is_boolean(kind) and column.null_count:
        column = column.cast(pa.uint8()).cast(pa.float64())
    chunks = column.chunks
    array = chunks[0] if len(chunks) == 1 else column.combine_chunks()
    try:
        if isinstance(array, pa.ChunkedArray):
            values: np.ndarray = array.to_numpy()
        else:
            values = array.to_numpy(zero_copy_only=False)
    except (NotImplementedError, ValueError, OverflowError) as error:
        raise ColumnError(
            f"A column of type {kind} has no form in NumPy ({error}): leave it out, or cast it."
        ) from error
    return values


def number_dtype(name: str, kind: pa.DataType) -> np.dtype[Any]:
    """The dtype that holds a column of numbers in a matrix."""
    numbers = pa.types.is_integer(kind) or pa.types.is_floating(kind)
    if pa.types.is_null(kind) or pa.types.is_decimal(kind):
        return np.dtype(np.float64)
    if not (numbers or pa.types.is_boolean(kind)):
        raise ColumnError(
            f"Column {name!r} of type {kind} does not fit into a matrix of numbers: leave it "
            f"out, or take it alone with to_numpy({name!r})."
        )
    dtype: np.dtype[Any] = np.dtype(kind.to_pandas_dtype())
    return dtype


def matrix_of(table: pa.Table) -> np.ndarray:
    """All columns as a matrix of the smallest float type that holds them.

    float32 only where all columns are float32 or small integers, else float64.
    """
    dtypes = [number_dtype(field.name, field.type) for field in table.schema]
    # At least a float, so that whole numbers and bools have a NaN for what is null.
    common = np.result_type(np.float16, *dtypes) if dtypes else np.dtype(np.float64)
    if common == np.float16 and np.dtype(np.float16) not in dtypes:
        common = np.dtype(np.float32)
    matrix = np.empty((table.num_rows, table.num_columns), common)
    for index, column in enumerate(table.columns):
        matrix[:, index] = vector_of(column)
    return matrix
