"""Columns of any type as Arrow (26.0) can sort them, or tell their values apart."""

import pyarrow as pa
import pyarrow.compute as pc

from partwise.errors import ColumnError
from partwise.tables.dictionaries import comparable


def sortable(column: pa.ChunkedArray, what: str) -> pa.ChunkedArray:
    """Return a column of a type that Arrow sorts, in which NaN is null.

    Ordered categories are their codes, others their values. `what` is what messages call it.

    Raises:
        ColumnError: Values of its type have no order.
    """
    kind = column.type
    if pa.types.is_dictionary(kind) and kind.ordered:
        codes = [chunk.indices for chunk in column.unify_dictionaries().chunks]
        return pa.chunked_array(codes, kind.index_type)
    column = comparable(column)
    try:
        pc.sort_indices(column.slice(0, 1))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        raise ColumnError(
            f"{what} is {kind}, whose values have no order: name a column of numbers, times or "
            "text."
        ) from error
    if pa.types.is_floating(column.type):
        return pc.if_else(pc.is_nan(column), pa.scalar(None, column.type), column)
    return column


def groupable(column: pa.ChunkedArray) -> pa.Array:
    """Return a column of plain values such that those are equal to Arrow which are one value.

    UUIDs are their bytes, and -0.0 is 0.0.
    """
    values = comparable(column).combine_chunks()
    if isinstance(values, pa.ExtensionArray):
        values = values.storage
    return pc.add(values.cast(pa.float64()), 0.0) if pa.types.is_floating(values.type) else values
