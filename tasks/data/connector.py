"""What the user's function gets: the rows of one partition, in the form it likes."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from partwise.tasks.data.key_classes import names_in_words
from partwise.tasks.errors import ColumnError, InputError

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl


class DataConnector:
    """The rows of a partition, in the order of the source.

    They lie in a memory-mapped file. `to_arrow`, `batches` and, where Arrow allows it, `to_numpy`
    and `to_polars` point into that file without a copy; such arrays are read-only.

    Args:
        table: The rows.

    Example:
        >>> def fit(data, context):
        ...     x, y = data.to_numpy(["price", "promo"]), data.to_numpy("sales")
        ...     return LinearRegression().fit(x, y)
    """

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    @property
    def num_rows(self) -> int:
        """How many rows the partition has."""
        return int(self._table.num_rows)

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of the rows."""
        return self._table.schema

    @property
    def column_names(self) -> list[str]:
        """The names of the columns, key columns included."""
        return list(self._table.column_names)

    def __len__(self) -> int:
        return self.num_rows

    def __repr__(self) -> str:
        return f"DataConnector({self.num_rows} rows, columns {names_in_words(self.column_names)})"

    def to_arrow(self) -> pa.Table:
        """The rows as an Arrow table, without a copy."""
        return self._table

    def to_pandas(self) -> "pd.DataFrame":
        """The rows as a pandas frame, with the types that `pandas.read_parquet` gives.

        Returns:
            A frame of its own with a fresh index from 0, or with the named index that a pandas
            source had.
        """
        frame: pd.DataFrame = self._table.to_pandas()
        return frame

    def to_polars(self) -> "pl.DataFrame":
        """The rows as a polars frame, without a copy where polars shares Arrow's layout."""
        import polars as pl

        frame = pl.from_arrow(self._table)
        if not isinstance(frame, pl.DataFrame):
            raise TypeError(f"polars made {type(frame).__name__} of a table.")
        return frame

    def to_numpy(self, columns: str | Sequence[str] | None = None) -> np.ndarray:
        """One column as a vector, or several as a matrix of floats.

        Args:
            columns: A name for a vector of n values, of the column's own type: without a copy
                where the values are numbers without nulls. Names, or None for all columns, for a
                matrix: columns must be numbers or booleans there.

        Returns:
            Shape (n,), or (n, k) in the smallest float type that holds all columns (float32 only
            where all are float32 or small integers, else float64). A null number is NaN, a null
            time NaT, a null text None.

        Raises:
            ColumnError: There is no such column, or a matrix was asked of one without numbers.

        Example:
            >>> data.to_numpy("sales").dtype, data.to_numpy(["price", "promo"]).shape
            (dtype('float64'), (730, 2))
        """
        if isinstance(columns, str):
            return self._vector(columns)
        names = self.column_names if columns is None else list(columns)
        dtypes = [self._number_dtype(name) for name in names]
        common = np.result_type(np.float16, *dtypes) if dtypes else np.dtype(np.float64)
        if common == np.float16 and np.dtype(np.float16) not in dtypes:
            common = np.dtype(np.float32)
        matrix = np.empty((self.num_rows, len(names)), common)
        for index, name in enumerate(names):
            matrix[:, index] = self._vector(name)
        return matrix

    def batches(self, size: int) -> Iterator[pa.RecordBatch]:
        """Iterate over the rows in batches.

        Args:
            size: Rows per batch, at least 1; the last batch may have fewer.

        Yields:
            Record batches in the order of the rows, without a copy within the first million rows.

        Raises:
            InputError: `size` is less than 1.
        """
        if size < 1:
            raise InputError(f"batches(size={size}) cannot be cut: pass a size of at least 1.")
        return self._cut(size)

    def _cut(self, size: int) -> Iterator[pa.RecordBatch]:
        for start in range(0, self.num_rows, size):
            piece = self._table.slice(start, size)
            pieces = piece.to_batches()
            yield pieces[0] if len(pieces) == 1 else pa.concat_batches(pieces)

    def _column(self, name: str) -> pa.ChunkedArray:
        if name not in self._table.column_names:
            raise ColumnError(
                f"There is no column {name!r} in the partition: its columns are "
                f"{names_in_words(self.column_names)}."
            )
        return self._table.column(name)

    def _number_dtype(self, name: str) -> np.dtype[Any]:
        """The dtype that holds a column of numbers in a matrix."""
        column = self._column(name)
        kind = column.type
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

    def _vector(self, name: str) -> np.ndarray:
        column = self._column(name)
        kind = column.type
        if pa.types.is_dictionary(kind):
            column = column.cast(kind.value_type)
        elif pa.types.is_decimal(kind) or pa.types.is_null(kind):
            column = column.cast(pa.float64())
        elif pa.types.is_boolean(kind) and column.null_count:
            column = column.cast(pa.uint8()).cast(pa.float64())
        chunks = column.chunks
        array = chunks[0] if len(chunks) == 1 else column.combine_chunks()
        if isinstance(array, pa.ChunkedArray):
            values: np.ndarray = array.to_numpy()
        else:
            values = array.to_numpy(zero_copy_only=False)
        return values
