"""What the user's function gets: the rows of one partition, in the form it likes."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from partwise.connector.framework_forms import FrameworkForms
from partwise.connector.spooling import PortableTable, map_spooled, spool
from partwise.connector.vectors import matrix_of, vector_of
from partwise.errors import ColumnError, InputError
from partwise.tables.column_names import names_in_words
from partwise.tables.rows_by_number import join_batches

if TYPE_CHECKING:
    from pathlib import Path

    import pandas as pd
    import polars as pl

    from partwise.connector.pandas_frames import PandasTypes
    from partwise.store.store import Store
    from partwise.tables.filters import Filter

_NOT_IN_POLARS = (
    *(pa.types.is_decimal256, pa.types.is_interval, pa.types.is_run_end_encoded),
    *(pa.types.is_list_view, pa.types.is_large_list_view, pa.types.is_union),
)


class DataConnector(FrameworkForms):
    """The rows of a partition, in the order of the source.

    They lie in a memory-mapped file. `to_arrow`, `batches`, `shard` and, where Arrow allows it,
    `to_numpy`, `to_polars` and `to_hf_dataset` point into that file without a copy; such arrays are
    read-only. `docs/types.md` says what becomes of each Arrow type in each of the forms.

    A connector can be pickled: it takes its own rows along, and not those of its neighbours.

    Args:
        table: The rows.

    Example:
        >>> def fit(data, context):
        ...     x, y = data.to_numpy(["price", "promo"]), data.to_numpy("sales")
        ...     return LinearRegression().fit(x, y)
    """

    def __init__(self, table: pa.Table) -> None:
        self._rows = PortableTable(table)

    @classmethod
    def _of(cls, rows: PortableTable) -> "DataConnector":
        connector = cls(rows.table)
        connector._rows = rows
        return connector

    @classmethod
    def from_dataframe(cls, data: Any) -> "DataConnector":
        """Wrap a frame or table in memory.

        Args:
            data: A pyarrow table or record batch, a pandas or polars frame, or anything with
                `__arrow_c_stream__`. A named index of a pandas frame becomes columns.

        Raises:
            SourceError: It cannot be read through Arrow.
            ColumnError: A column has no name, or values of mixed types.

        Example:
            >>> DataConnector.from_dataframe(pd.DataFrame({"x": [1, 2]})).num_rows
            2
        """
        from partwise.sources.frames.tables import table_of

        return cls(table_of(data))

    @classmethod
    def from_sources(
        cls,
        data: Any,
        *,
        columns: Sequence[str] | None = None,
        filter: "Filter | None" = None,  # noqa: A002
    ) -> "DataConnector":
        """Read a source into a temporary file that is mapped into memory.

        So the rows may be larger than memory. The file has no name, in the folder that `TMPDIR`
        names, and its space is free again when nothing points into it any more, or the process
        has ended in any way.

        Args:
            data: Whatever a flow takes as its data, such as a path, glob or list of files.
            columns: The columns to read, None for all.
            filter: Conditions as in pyarrow.parquet, such as `[("price", ">", 0)]`.

        Raises:
            SourceError: There is nothing to read, or it cannot be read or written.
            ColumnError: A column is missing, or of a type that cannot be stored.
            InputError: The filter is malformed.

        Example:
            >>> data = DataConnector.from_sources(["2015/*.parquet", "2016/*.parquet"])
        """
        from partwise.sources.opening import open_source

        source = open_source(data, columns=columns, filter=filter)
        spooled = spool(source.batches(), source.schema)
        return cls._of(PortableTable(map_spooled(spooled.file.path), spooled))

    @classmethod
    def from_dataset(
        cls, name: str, version: int | None = None, store: "Store | str | Path" = "artifacts"
    ) -> "DataConnector":
        """Read a version of a dataset as `from_sources` reads a source.

        Args:
            name: The dataset's name.
            version: Its number; None: the newest.
            store: The artifact store in which it is registered.

        Raises:
            DatasetNotFoundError: There is no such dataset, or not this version.
            IntegrityError: Its rows are not as they were registered.
        """
        from partwise.datasets.dataset import Dataset

        return cls.from_sources(Dataset.open(name, version, store))

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

    def __reduce__(self) -> tuple[Any, ...]:
        return DataConnector._of, (self._rows,)

    def to_arrow(self) -> pa.Table:
        """The rows as an Arrow table, without a copy."""
        return self._table

    def to_pandas(self, types: "PandasTypes" = "numpy") -> "pd.DataFrame":
        """The rows as a pandas frame.

        Args:
            types: "numpy" for the types that `pandas.read_parquet` gives, of which whole numbers
                become floats, and booleans objects, where there is a null. "arrow" for Arrow's own
                types (`pandas.ArrowDtype`), which keep every value as it is, mostly without a copy.

        Returns:
            A frame with a fresh index from 0, or, with "numpy", the named index that a pandas
            source had.

        Raises:
            InputError: There are no such types.
        """
        from partwise.connector.pandas_frames import pandas_frame

        return pandas_frame(self._table, types)

    def to_polars(self) -> "pl.DataFrame":
        """The rows as a polars frame, without a copy where polars shares Arrow's layout.

        Raises:
            ColumnError: Polars has no such type as a column's.
        """
        import polars as pl

        for field in self.schema:
            # It ends with a panic over some of these (2.1), which is no Exception.
            if any(is_type(field.type) for is_type in _NOT_IN_POLARS):
                raise ColumnError(
                    f"Column {field.name!r} of type {field.type} has no form in polars: leave it "
                    "out, or cast it."
                )
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
            return vector_of(self._select([columns]).table.column(0))
        return matrix_of(self._select(columns).table)

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

    def shard(self, rank: int, world_size: int, *, equal: bool = False) -> "DataConnector":
        """One of `world_size` parts of the rows, for one of as many processes; without a copy.

        Parts are consecutive rows, and together all rows. Their sizes differ by one row at most.

        Args:
            rank: The number of the part, from 0.
            world_size: How many parts there are.
            equal: Whether all parts must have the same number of rows, as where processes wait for
                each other after each batch. The last rows, fewer than `world_size`, are then in
                no part.

        Raises:
            InputError: There is no such part.

        Example:
            >>> rank, world_size = dist.get_rank(), dist.get_world_size()
            >>> part = data.shard(rank, world_size, equal=True).to_torch_dataset(batch_size=64)
        """
        if not 0 <= rank < world_size:
            raise InputError(f"shard(rank={rank}, world_size={world_size}): ranks count from 0.")
        rows = self.num_rows - self.num_rows % world_size if equal else self.num_rows
        start, stop = rank * rows // world_size, (rank + 1) * rows // world_size
        return DataConnector._of(self._rows.slice(start, stop - start))

    def _cut(self, size: int) -> Iterator[pa.RecordBatch]:
        for start in range(0, self.num_rows, size):
            pieces = self._table.slice(start, size).to_batches()
            yield join_batches(pieces)
