"""What a function returns for the rows of a partition: as a table, in the order of these rows.

What pandas returns has an index, which Arrow has not. So where one becomes the other, the index
says which row is which.
"""

import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from partwise.errors import ColumnError
from partwise.formatting import lone_surrogate
from partwise.outcomes import Result
from partwise.tables.column_names import check_unique_names
from partwise.tables.frames import arrow_of_frame
from partwise.tables.mixed_times import check_kinds

if TYPE_CHECKING:
    import pandas as pd


_UNITS = {"s", "ms", "us", "ns"}


def in_row_order(outcome: Any, rows: pa.Table, *, is_joined: bool) -> Any:
    """Put what a function returned into the order of the rows, where it has an index of pandas.

    An index that is named for columns of the rows, as after `set_index("date")`, stands for their
    values; any other for the places of the rows, as `to_pandas()` counts them. One that counts in
    steps of 1 from another start, or again from 0, is in order.

    Args:
        outcome: A pandas frame or Series; a mapping, of which each Series is put in order; a
            `Result` of these; all else is returned as it is.
        rows: Those that the function was given.
        is_joined: Whether columns of the rows are to stand beside it.

    Returns:
        The same, in the order of the rows. As it is, where it has another number of rows, or where
        nothing stands beside it and its index says nothing of the rows.

    Raises:
        ColumnError: It cannot be said which row is which, and something is to stand beside it:
            columns of the rows, or another Series that has another index.
    """
    if isinstance(outcome, Result):
        outcome = outcome.model
    if _is_pandas(outcome):
        owns = _indexes_of(rows, outcome.index)
        return _in_order(outcome, owns, is_joined, "the frame or Series that")
    if not isinstance(outcome, Mapping):
        return outcome
    series = {name: value for name, value in outcome.items() if _is_pandas(value)}
    if not series:
        return outcome
    first: pd.Index = next(iter(series.values())).index
    differ = any(not value.index.equals(first) for value in series.values())
    # Those of groups of rows, for example, have no order but that of the first.
    are_others = differ and all(_order(first, own) is None for own in _indexes_of(rows, first))
    ordered = {}
    for name, value in series.items():
        owns = [first] if are_others else _indexes_of(rows, value.index)
        ordered[name] = _in_order(value, owns, is_joined or differ, f"{name!r}, which")
    return {name: ordered.get(name, value) for name, value in outcome.items()}


def returned_table(outcome: Any, column: str) -> pa.Table:
    """Return what a function returned as a table.

    Args:
        outcome: A frame or table; a mapping of columns, in which a single value stands for all rows
            (of single values only, there is one row); a 1-D array (named `column`) or 2-D one
            (`column`_0, `column`_1...).
        column: Name for an array's column.

    Raises:
        TypeError: It is none of these.
        ColumnError: Two columns have one name, as text; a mapping has columns of several lengths,
            or what is not a column; or a frame has one of a type that Arrow lacks, or of several.
    """
    if isinstance(outcome, pa.RecordBatch):
        outcome = pa.Table.from_batches([outcome])
    if isinstance(outcome, pa.Table):
        _check_names(outcome.column_names)
        return outcome
    if isinstance(outcome, Mapping):
        _check_names(outcome)
        return _table_of_columns(outcome)
    if isinstance(outcome, pa.Array | pa.ChunkedArray):
        return pa.table({column: outcome})
    if _is_pandas(outcome):
        frame = outcome.to_frame(column) if outcome.ndim == 1 else outcome
        _check_names(frame.columns)
        return arrow_of_frame(frame, keep_index=False)
    if hasattr(outcome, "__arrow_c_stream__") and hasattr(outcome, "columns"):
        from partwise.sources.frames.streams import frame_table

        return frame_table(outcome)
    values = _numpy(outcome)
    if values.ndim == 1:
        return pa.table({column: _as_array(column, outcome)})
    if values.ndim == 2:
        of_columns: Iterable[Any] = values.T
        if _are_rows(outcome) and _are_changed([one for row in outcome for one in row], values):
            of_columns = map(list, zip(*outcome, strict=True))
        named = [(f"{column}_{place}", each) for place, each in enumerate(of_columns)]
        return pa.table({name: _as_array(name, each) for name, each in named})
    raise TypeError(
        f"The function returned a {type(outcome).__name__} of {values.ndim} dimensions; return a "
        "frame, an Arrow table, a mapping of columns, or an array of one or two dimensions."
    )


def _check_names(names: Iterable[Any]) -> None:
    """Refuse two columns whose names are one as text, as 1 and "1" are."""
    check_unique_names([str(name) for name in names], "The function returned")


def _table_of_columns(columns: Mapping[Any, Any]) -> pa.Table:
    arrays: dict[str, Any] = {}
    single = set()
    for key, values in columns.items():
        name = str(key)
        dimensions = _dimensions(values)
        if dimensions > 1:
            raise ColumnError(
                f"The function returned {name!r} of {dimensions} dimensions: return a mapping of "
                "columns, of one dimension each, or pyarrow.array(...) of lists."
            )
        arrays[name] = (_as_array if dimensions else _as_single)(name, values)
        if not dimensions:
            single.add(name)
    lengths = {name: len(array) for name, array in arrays.items() if name not in single}
    if len(set(lengths.values())) > 1:
        found = ", ".join(f"{name!r} has {length}" for name, length in lengths.items())
        raise ColumnError(
            f"The function returned columns of several lengths: {found} values; return as many of "
            "each, or one value for all rows."
        )
    for name in single if lengths else ():
        arrays[name] = pa.repeat(arrays[name][0], next(iter(lengths.values())))
    return pa.table(arrays)


def _dimensions(values: Any) -> int:
    try:
        return 1 if isinstance(values, pa.Array | pa.ChunkedArray) else np.ndim(values)
    except ValueError:  # lists of several lengths
        return 2


def _are_rows(values: Any) -> bool:
    """Tell whether values are lists of Python's, one for each row."""
    kinds = (list, tuple)
    return isinstance(values, kinds) and all(isinstance(row, kinds) for row in values)


def _numpy(values: Any) -> np.ndarray:
    """Return values as an array, with the mask that it has."""
    if isinstance(values, np.ma.MaskedArray):
        return values
    try:
        return np.asarray(values)
    except ValueError as error:  # lists of several lengths
        raise ColumnError(
            "The function returned rows of several lengths: return as many values of each, or a "
            "mapping of columns."
        ) from error


def _as_array(name: str, values: Any) -> Any:
    if isinstance(values, pa.Array | pa.ChunkedArray):
        return values
    values = _as_series(values)
    if _is_pandas(values) and not isinstance(values.dtype, np.dtype):
        # As a frame's: numpy has neither a null among whole numbers nor a zone.
        return returned_table(values, name)[name]
    if hasattr(values, "__arrow_c_stream__") and not _is_pandas(values):
        return pa.chunked_array(values)
    array = _numpy(values)
    if isinstance(values, np.ndarray) and array.dtype.kind in "US":
        # Of numpy's own texts, Arrow (26.0) leaves out what follows a zero.
        with _naming(name, values):
            kind = pa.string() if array.dtype.kind == "U" else pa.binary()
            return pa.array(array.astype(object), kind)
    if array.dtype == object or _are_changed(values, array):
        with _naming(name, values):
            made = _made(values)
        check_kinds(f"{name!r}, which the function returned,", values, made.type)
        return made
    if not array.dtype.isnative:
        # Arrow (26.0) takes no swapped bytes.
        array = array.astype(array.dtype.newbyteorder("="))
    unit = np.datetime_data(array.dtype)[0] if array.dtype.kind in "mM" else "s"
    if unit == "generic" and np.isnat(array).all():
        return pa.nulls(len(array))  # they are of no unit, and go with times of any
    # Of hours and others, which Arrow does not know; it knows dates.
    if unit not in _UNITS and not (array.dtype.kind == "M" and unit == "D"):
        array = array.astype(f"{array.dtype.kind}8[s]")
    with _naming(name, values):
        return pa.array(array.copy() if array.strides != (array.itemsize,) else array)


def _as_series(values: Any) -> Any:
    """Return an array or index of a type of pandas' own as a Series; all else as it is."""
    pandas = sys.modules.get("pandas")
    if pandas is None or isinstance(getattr(values, "dtype", None), np.dtype):
        return values
    is_own = isinstance(values, pandas.Index | pandas.api.extensions.ExtensionArray)
    return pandas.Series(values) if is_own else values


def _made(values: Any, from_pandas: bool | None = None) -> pa.Array:
    """Return Python's values as Arrow's, whole numbers beyond int64 as uint64."""
    try:
        return pa.array(values, from_pandas=from_pandas)
    except OverflowError:
        return pa.array(values, pa.uint64(), from_pandas=from_pandas)


def _are_changed(values: Any, array: np.ndarray) -> bool:
    """Tell whether numpy may make others of a list's values, such as a double of an ID."""
    if not isinstance(values, list | tuple):
        return False
    if array.dtype.kind in "US":
        return True  # it makes text of numbers, and cuts zeros off the end of text and bytes
    kinds = {type(value) for value in values}
    if bool in kinds and len(kinds) > 1:
        return True
    return array.dtype.kind == "f" and any(
        isinstance(value, int | np.integer) and abs(int(value)) > 2**53 for value in values
    )


def _as_single(name: str, value: Any) -> pa.Array:
    array = np.asarray(value).reshape(1) if hasattr(value, "__array__") else None
    if array is not None and array.dtype.kind in "mM":
        return _as_array(name, array)
    with _naming(name, value):
        return _made([value if array is None else array[0]], from_pandas=True)


@contextmanager
def _naming(name: str, values: Any) -> Iterator[None]:
    """Say which column Arrow cannot make of values."""
    try:
        yield
    except UnicodeEncodeError as error:
        raise ColumnError(
            f"The function returned {name!r} with {lone_surrogate(error.object)}: correct it, or "
            "return bytes."
        ) from error
    except (
        *(pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError),
        OverflowError,  # a whole number beyond 64 bits
    ) as error:
        kind = f" of {values.dtype}" if isinstance(values, np.ndarray) else ""
        raise ColumnError(
            f"The function returned {name!r}, a {type(values).__name__}{kind}, which is not a "
            "column: return a value of one kind for each row, or one for all of them."
        ) from error


def _is_pandas(value: Any) -> bool:
    """Tell a frame or a Series from all else."""
    # Whatever is of pandas came from a process that has loaded it: it need not be imported to ask.
    pandas = sys.modules.get("pandas")
    return pandas is not None and isinstance(value, pandas.DataFrame | pandas.Series)


def _in_order(value: Any, owns: "list[pd.Index]", is_joined: bool, what: str) -> Any:
    """Return a frame or Series in the order of the first index that has the values of its own."""
    if len(value) != len(owns[-1]):
        return value
    for own in owns:
        order = _order(value.index, own)
        if order is not None:
            return value if isinstance(order, slice) else value.iloc[order]
    if not is_joined or _counts(value.index):
        return value
    raise ColumnError(
        f"The function returned {what} has an index of {_some(value.index)}: it is not that of the "
        "rows, in any order, so that nobody can say which row is which. Return it with the index "
        "of the rows, or with that of one of their columns, as set_index() makes it; or, where it "
        "is in the order of the rows already, without an index, as to_numpy() gives it."
    )


def _indexes_of(rows: pa.Table, index: "pd.Index") -> "list[pd.Index]":
    """Return what an index can mean: the columns it is named for, if any, or the rows' places."""
    import pandas as pd

    owns: list[pd.Index] = []
    names = list(index.names)
    # A table makes its list of names again each time.
    if names != [None] and set(names) <= set(rows.column_names):
        frame = rows.select(names).to_pandas(ignore_metadata=True)
        owns.append(
            pd.MultiIndex.from_frame(frame) if len(names) > 1 else pd.Index(frame[names[0]])
        )
    return [*owns, pd.RangeIndex(rows.num_rows)]


def _order(index: "pd.Index", own: "pd.Index") -> slice | np.ndarray | None:
    """Return where in an index the values of another stand; None: it has other values."""
    if len(index) != len(own) or index.nlevels != own.nlevels:
        return None
    if index.dtype.kind == "M" and own.dtype == object:
        # Dates, of which pandas makes times.
        own = own.astype(index.dtype)
    if index.equals(own):
        return slice(None)
    if not own.is_unique:
        return None
    places = own.get_indexer(index)
    is_there = np.zeros(len(own), bool)
    is_there[places[places >= 0]] = True
    # `places` says where each returned row belongs; wanted is which of them belongs to each place.
    return np.argsort(places) if is_there.all() else None


def _counts(index: "pd.Index") -> bool:
    """Tell an index that only counts, from anywhere: of a forecast, or of a frame made again."""
    import pandas as pd

    return isinstance(index, pd.RangeIndex) and index.step == 1


def _some(index: "pd.Index") -> str:
    return ", ".join(map(str, index[:3].tolist())) + (", ..." if len(index) > 3 else "")
