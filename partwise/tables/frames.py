"""Frames of pandas and polars as tables of Arrow, wherever rows are given as one."""

import sys
from typing import Any

import pyarrow as pa

from partwise.errors import ColumnError, SourceError
from partwise.tables.column_names import check_unique_names
from partwise.tables.mixed_times import check_times

_NOT_FROM_POLARS = {
    "Object": ".map_elements(str, return_dtype=pl.String)",
    "Int128": ".cast(pl.String)",
    "UInt128": ".cast(pl.String)",
}
"""Types of polars, and what makes text of a column of them."""


def arrow_table(data: Any) -> pa.Table | None:
    """Return a table, batch, frame or stream of batches as a table; None: it is none of these.

    Raises:
        ColumnError: A column of the frame is of no type that Arrow has, or of several.
        SourceError: It says that Arrow may read it, and then it cannot.
    """
    pandas = sys.modules.get("pandas")
    if pandas is not None and isinstance(data, pandas.DataFrame):
        return pandas_table(data)
    if isinstance(data, pa.Table):
        return data
    if isinstance(data, pa.RecordBatch):
        return pa.Table.from_batches([data])
    if isinstance(data, pa.RecordBatchReader):
        return data.read_all()
    if not hasattr(data, "__arrow_c_stream__"):
        return None
    polars = sys.modules.get("polars")
    if polars is not None and isinstance(data, polars.DataFrame):
        check_polars_types(data.schema)
    try:
        return pa.table(data)
    except (pa.ArrowException, TypeError, ValueError) as exc:
        raise SourceError(
            f"The {type(data).__name__} cannot be read through Arrow: {exc}."
        ) from exc


def check_polars_types(kinds: Any) -> None:
    """Refuse columns of which polars gives Arrow something else than their values.

    Of Python objects it gives the addresses, and of integers of 128 bits a type that Arrow lacks.
    """
    for name, kind in kinds.items():
        within = [kind]
        # The list grows while the loop goes through it.
        for each in within:
            if remedy := _NOT_FROM_POLARS.get(str(each)):
                raise ColumnError(
                    f"Column {name!r} of the polars frame is of type {kind}, and Arrow has no form "
                    f"for {each}: cast it, such as frame.with_columns(pl.col({name!r}){remedy})."
                )
            within += [field.dtype for field in getattr(each, "fields", ())]
            within += [each.inner] if hasattr(each, "inner") else []


def check_column_names(frame: Any) -> None:
    """Raise `ColumnError` where the name of a column is not text, or stands there twice."""
    for name in frame.columns:
        if not isinstance(name, str):
            raise ColumnError(
                f"A column of the frame is named {name!r} ({type(name).__name__}): "
                "rename it to a string."
            )
    check_unique_names(list(frame.columns))


def pandas_table(frame: Any) -> pa.Table:
    """A pandas frame as a table, with its index if that has a name of its own."""
    check_column_names(frame)
    # One that keeps the name of a column, as set_index(name, drop=False) has it, says nothing new.
    is_new = [name is not None and name not in frame.columns for name in frame.index.names]
    keep_index = any(is_new)
    if keep_index and not all(is_new):
        levels = [level for level, new in enumerate(is_new) if not new]
        frame = frame.reset_index(level=levels, drop=True)
    return arrow_of_frame(frame, keep_index=keep_index)


def arrow_of_frame(frame: Any, *, keep_index: bool) -> pa.Table:
    """Return a pandas frame as a table."""
    frame = _dense(frame)
    try:
        table = pa.Table.from_pandas(frame, preserve_index=keep_index)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as exc:
        raise _unfit_column(frame, exc) from exc
    check_times(frame, table)
    return table


def _dense(frame: Any) -> Any:
    """A frame with all values of sparse columns, and bytes in this machine's order."""
    kinds = {}
    for name, kind in frame.dtypes.items():
        # pyarrow 26 refuses columns of both kinds.
        if type(kind).__name__ == "SparseDtype":
            kinds[name] = kind.subtype
        elif getattr(kind, "byteorder", "=") == ">":
            kinds[name] = kind.newbyteorder("=")
    return frame.astype(kinds) if kinds else frame


def _unfit_column(frame: Any, cause: Exception) -> ColumnError:
    """Name the column that does not convert, and what it holds."""
    for name in frame.columns:
        try:
            pa.array(frame[name], from_pandas=True)
        except UnicodeEncodeError as exc:
            return ColumnError(
                f"Column {name!r} of the frame holds {exc.object[:20]!r}, which is not valid "
                "Unicode (a lone surrogate): repair it, or encode the column to bytes."
            )
        except (pa.ArrowException, TypeError, ValueError, OverflowError):
            kinds = sorted({type(value).__name__ for value in frame[name]})
            return ColumnError(
                f"Column {name!r} of the frame holds values of types {', '.join(kinds[:5])}, which "
                "have no common Arrow type: cast it to one type."
            )
    reason = " ".join(str(cause).split()).rstrip(".")
    return ColumnError(
        f"The frame does not convert to Arrow: {reason}. Cast columns and index to plain types, "
        "or give a table."
    )
