"""Rows as columns: as a question has them, and as Arrow has them for a model.

Values of JSON get the types that they had in training, as far as these are known.
"""

import datetime as dt
from collections.abc import Collection, Iterable, Mapping
from typing import Any

import pyarrow as pa

from partwise.errors import ColumnError, InputError
from partwise.formatting import shortened
from partwise.serving.questions import Values
from partwise.tables.calendar import SEPARATOR
from partwise.tables.column_names import check_unique_names
from partwise.tables.column_types import is_text
from partwise.tables.dictionaries import without_views
from partwise.tables.frames import arrow_table

_DATE_LENGTH = len("2026-03-01")


def source_of(name: str) -> str:
    """Return the column that a feature such as day@month is made of; of others their own name."""
    column, separator, _ = name.rpartition(SEPARATOR)
    return column if separator else name


def columns_of_rows(rows: Any) -> tuple[Mapping[str, Any], int]:
    """Return rows as columns, and their number.

    Args:
        rows: A table of Arrow, a frame, a list of objects or a mapping of columns.

    Raises:
        ColumnError: Columns are of several lengths or of one name, or of types that Arrow has not.
        InputError: It is none of these.
    """
    if isinstance(rows, Mapping):
        check_unique_names(list(map(str, rows)), "The rows have")
        columns = {str(name): _values(str(name), values) for name, values in rows.items()}
        lengths = {len(values) for values in columns.values()}
        if len(lengths) > 1:
            raise ColumnError(f"The columns are of several lengths: {sorted(lengths)}.")
        return columns, lengths.pop() if lengths else 0
    if isinstance(rows, list | tuple):
        if not all(isinstance(row, Mapping) for row in rows):
            raise InputError("Rows are objects, one for each row, of values by column.")
        names = dict.fromkeys(name for row in rows for name in row)
        check_unique_names(list(map(str, names)), "The rows have")
        return {str(name): [row.get(name) for row in rows] for name in names}, len(rows)
    table = arrow_table(rows)
    if table is None:
        raise InputError(
            f"Rows are a table of Arrow, a frame, a list of objects or a mapping of columns, and "
            f"not a {type(rows).__name__}."
        )
    table = without_views(table)
    check_unique_names(table.column_names, "The rows have")
    return dict(zip(table.column_names, table.columns, strict=True)), table.num_rows


def _values(name: str, values: Any) -> Any:
    if isinstance(values, pa.Array | pa.ChunkedArray):
        return without_views(pa.table({name: values})).column(0)
    is_list = isinstance(values, Iterable) and not isinstance(values, str | bytes | Mapping)
    if not is_list or getattr(values, "ndim", 1) != 1:
        raise InputError(
            f"The column {name!r} is {shortened(repr(values), 80)} and no list of values: one row "
            f"is [{{{name!r}: ...}}]."
        )
    # In a list of pandas' or numpy's times, or pandas' text, those that are missing are of another
    # kind than the rest.
    if hasattr(values, "to_frame"):
        table: pa.Table = arrow_table(values.to_frame(name=name))
        return without_views(table).column(name)
    kind = getattr(getattr(values, "dtype", None), "kind", None)
    if hasattr(values, "__arrow_array__") or kind in {"m", "M"}:
        try:
            return pa.chunked_array([pa.array(values)])
        except pa.ArrowException as error:
            raise ColumnError(f"Arrow cannot have the column {name!r}: {error}") from error
    return list(values)


def columns_of_json(
    columns: Mapping[str, Values],
    n_rows: int,
    *,
    encoded: Collection[str],
    times: Mapping[str, str | None],
) -> pa.Table:
    """Return columns as a table.

    Args:
        columns: Lists of values of JSON, or columns of Arrow, which stay as they are.
        n_rows: Their length.
        encoded: Those that were dictionaries in training: text and numbers become such.
        times: Those of dates or times, which are ISO 8601 text in JSON, with the zone that they had
            in training; "": none; None: that is not known.

    Raises:
        ColumnError: Values of a column are of several kinds, or no dates or times.
    """
    arrays = {}
    for name, values in columns.items():
        is_time = name in times
        # Text of times is text in Arrow as well: a list with a decimal in it travels so.
        if isinstance(values, pa.ChunkedArray) and not (is_time and is_text(values.type)):
            arrays[name] = values
        else:
            given = values.to_pylist() if isinstance(values, pa.ChunkedArray) else values
            arrays[name] = _column(name, given, times.get(name, ""), is_time=is_time)
    if not arrays:
        return pa.table({"": pa.nulls(n_rows)}).select([])
    for name in encoded:
        column = arrays.get(name)
        if column is not None and not pa.types.is_dictionary(column.type):
            arrays[name] = column.dictionary_encode()
    return pa.table(arrays)


def _column(name: str, values: Any, zone: str | None, *, is_time: bool) -> pa.ChunkedArray:
    try:
        array = _array(values)
        if is_time and pa.types.is_string(array.type):
            array = _times(array, zone)
    except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
        wanted = "dates or times in ISO 8601" if is_time else "numbers, or text, or true and false"
        raise ColumnError(
            f"The values of the column {name!r} are not of one kind that a column can have: send "
            f"{wanted}, and null where a value is missing."
        ) from error
    if pa.types.is_nested(array.type):
        raise ColumnError(f"The values of the column {name!r} are lists or objects, and no values.")
    return pa.chunked_array([array])


def _array(values: Any) -> pa.Array:
    try:
        return pa.array(values, from_pandas=False)
    except (OverflowError, pa.ArrowInvalid):
        kinds = {type(value) for value in values if value is not None}
        # Whole numbers that are beyond int64, or beside others that no double has: JavaScript
        # writes 1e19 as one.
        if kinds == {int}:
            return pa.array(values, pa.uint64())
        if kinds == {int, float}:
            return pa.array([None if value is None else float(value) for value in values])
        raise


def _times(texts: pa.Array, zone: str | None) -> pa.Array:
    given = [text for text in texts.to_pylist() if text is not None]
    # 08:30:00.5 has as many characters.
    if all(len(text) == _DATE_LENGTH and text[2] != ":" for text in given):
        days = texts.cast(pa.date32())
        # Midnight, where the training had times; of which zone, nobody knows.
        return days if zone is None else days.cast(pa.timestamp("us"))
    if zone is None and all(text[2:3] == ":" for text in given):
        times = [None if text is None else _time(text) for text in texts.to_pylist()]
        return pa.array(times, pa.time64("us"))
    has_offset = any(text[-1:] == "Z" or "+" in text or text.count("-") > 2 for text in given)
    moments = texts.cast(pa.timestamp("us", "UTC" if has_offset else None))
    return moments.cast(pa.timestamp("us", zone)) if zone and has_offset else moments


def _time(text: str) -> dt.time:
    time = dt.time.fromisoformat(text)
    if time.tzinfo is not None:
        raise ValueError(f"{text!r} has a zone, and times of the day have none")
    return time
