"""Columns by which rows are ordered in time."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from partwise.errors import ColumnError
from partwise.tables.column_names import columns_there


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """A time column as numbers, which keep its order."""

    numbers: np.ndarray
    """Integers or doubles, shape (n,); anything where no time is present."""
    present: np.ndarray
    """Bools, shape (n,)."""
    unit: str
    """Of instants, "us" or "ns"; empty where the column has numbers."""


def check_time_column(
    column: str, what: str, schema: pa.Schema, empty_columns: frozenset[str]
) -> pa.DataType:
    """Return the type of a column that can order rows in time.

    `what` is what messages call it; in `empty_columns` every value is null.
    """
    if column not in schema.names:
        raise ColumnError(f"{what} is missing; {columns_there(schema.names, column)}")
    if column in empty_columns:
        raise ColumnError(f"{what} is null in every row.")
    kind = schema.field(column).type
    if not (pa.types.is_timestamp(kind) or pa.types.is_date(kind) or is_number(kind)):
        raise ColumnError(f"{what} is {kind}: cast it to a timestamp, a date or a number.")
    return kind


def is_number(kind: pa.DataType) -> bool:
    """Whether times are numbers, and no instants."""
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))


def times_of(column: pa.ChunkedArray) -> Times:
    """Return the times of rows; what is null, NaN or infinite is not present.

    Raises:
        ColumnError: A time is beyond the years that microseconds hold, or a number beyond int64.
    """
    try:
        return _times_of(column)
    except pa.ArrowInvalid as error:
        raise ColumnError(
            f"A time of type {column.type} is out of range: {error}. Leave such rows out; whole "
            "numbers go up to 2^63, and years to 294246."
        ) from error


def _times_of(column: pa.ChunkedArray) -> Times:
    kind, unit = column.type, ""
    if pa.types.is_floating(kind):
        column = column.cast(pa.float64())
    elif pa.types.is_integer(kind):
        column = column.cast(pa.int64())
    else:
        # Microseconds hold the years 1 to 9999; nanoseconds, which end in 2262, only where the
        # column has them already.
        unit = "ns" if pa.types.is_timestamp(kind) and kind.unit == "ns" else "us"
        zone = kind.tz if pa.types.is_timestamp(kind) else None
        column = column.cast(pa.timestamp(unit, zone)).cast(pa.int64())
    present = np.asarray(column.is_valid())
    # Filled, integers stay integers: as doubles, neighbouring nanoseconds would be one.
    numbers = column.fill_null(0).to_numpy()
    if numbers.dtype.kind == "f":
        present = present & np.isfinite(numbers)
    return Times(numbers=numbers, present=present, unit=unit)


def in_order(column: pa.ChunkedArray, chosen: np.ndarray) -> np.ndarray:
    """Return the places of chosen rows that have a time, in the order of their times."""
    times = times_of(column)
    places = np.flatnonzero(chosen & times.present)
    # Rows of one instant stay in the order of the table.
    return places[np.argsort(times.numbers[places], kind="stable")]
