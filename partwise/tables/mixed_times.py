"""Times of several kinds in one column of Python objects, which Arrow makes one kind of.

Without a word it makes dates of a date and a time, without the hour, and times of one kind of those
with and without a zone, as if those without were UTC.
"""

import datetime as dt
from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from partwise.errors import ColumnError


def check_times(frame: Any, table: pa.Table) -> None:
    """Refuse columns of Python objects in which times are of several kinds."""
    for field in table.schema:
        kind = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
        if _is_time(kind):
            what = f"Column {field.name!r} of the frame"
            check_kinds(what, _objects(frame, field.name), kind)


def check_kinds(what: str, values: Iterable[Any], kind: pa.DataType) -> None:
    """Refuse Python objects among which times are of several kinds.

    `what` says in words what holds them, `kind` what Arrow made of them.
    """
    found = dict.fromkeys(filter(None, map(_kind, values))) if _is_time(kind) else ()
    if len(found) > 1:
        raise ColumnError(
            f"{what} holds {' and '.join(found)}: cast it to one type, such as by "
            "pandas.to_datetime(..., utc=True)."
        )


def _is_time(kind: pa.DataType) -> bool:
    return bool(pa.types.is_date(kind) or pa.types.is_timestamp(kind))


def _objects(frame: Any, name: str) -> Iterable[Any]:
    """Return the values of a column, where they are Python objects."""
    if name in frame.columns:
        values = frame[name]
    elif name in frame.index.names:
        values = frame.index.get_level_values(name)
    else:
        return ()
    if hasattr(values.dtype, "categories"):
        values = values.dtype.categories
    return values if values.dtype == object else ()


def _kind(value: Any) -> str:
    if isinstance(value, dt.datetime):
        # pandas' NaT does not say which.
        if value != value:
            return ""
        return "times without a zone" if value.tzinfo is None else "times with a zone"
    return "dates" if isinstance(value, dt.date) else ""
