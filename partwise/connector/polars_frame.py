"""The rows of a partition as a polars frame."""

import re
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from partwise.errors import ColumnError
from partwise.tables.dictionaries import holds

if TYPE_CHECKING:
    import polars as pl

_OFFSET = re.compile(r"tz=[+-]").search
"""In the name of a type whose zone is an offset: polars has named zones only."""


def _is_beyond_polars(kind: pa.DataType) -> bool:
    """Tell decimals of a negative scale, empty lists and bytes, and categories of what it lacks."""
    if pa.types.is_dictionary(kind):
        return holds(kind.value_type, *_NOT_IN_POLARS)
    if pa.types.is_fixed_size_binary(kind):
        return bool(kind.byte_width == 0)
    if pa.types.is_fixed_size_list(kind):
        return bool(kind.list_size == 0)
    return bool(pa.types.is_decimal(kind) and kind.scale < 0)


_NOT_IN_POLARS = (
    *(pa.types.is_decimal256, pa.types.is_interval, pa.types.is_run_end_encoded),
    *(pa.types.is_list_view, pa.types.is_large_list_view, pa.types.is_union, _is_beyond_polars),
)


def polars_frame(table: pa.Table) -> "pl.DataFrame":
    """Return a table as a polars frame."""
    import polars as pl

    for field in table.schema:
        # It ends with a panic over some of these (2.1), which is not an Exception.
        if holds(field.type, *_NOT_IN_POLARS) or _OFFSET(str(field.type)):
            raise ColumnError(
                f"Column {field.name!r} of type {field.type} has no form in polars: leave it "
                "out, or cast it."
            )
    for index, column in enumerate(table.columns):
        if pa.types.is_date64(column.type):
            # It would be a time stamp.
            table = table.set_column(index, table.column_names[index], column.cast(pa.date32()))
        if "fixed_size_list" in str(column.type) and any(chunk.offset for chunk in column.chunks):
            # Of rows that begin within an array it takes the wrong marks of null (2.1).
            chunks = [chunk.take(pa.array(np.arange(len(chunk)))) for chunk in column.chunks]
            whole = pa.chunked_array(chunks, column.type)
            table = table.set_column(index, table.schema.field(index), whole)
    frame = pl.from_arrow(table)
    if not isinstance(frame, pl.DataFrame):
        raise TypeError(f"polars made {type(frame).__name__} of a table.")
    return frame
