"""What the user's function gets: the rows of one partition, in the form it likes."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from partwise.connector.categories import categories_of, with_categories_once
from partwise.connector.spooling import PortableTable, map_spooled, spool
from partwise.connector.vectors import matrix_of, vector_of
from partwise.errors import ColumnError, InputError
from partwise.tables.categories import as_in_partition
from partwise.tables.column_names import columns_there, names_in_words
from partwise.tables.rows_by_number import join_batches

if TYPE_CHECKING:
    from pathlib import Path

    import dask.dataframe as dd
    import datasets
    import lightgbm
    import pandas as pd
    import polars as pl
    import tensorflow as tf
    import xgboost

    from partwise.connector.batch_reader import BatchReader
    from partwise.connector.pandas_frames import PandasTypes
    from partwise.store.store import Store
    from partwise.tables.filters import Filter


class DataConnector:
    """The rows of a partition, in the order of the source.

    They lie in a memory-mapped file. `to_arrow`, `batches`, `shard` and, where Arrow allows it,
    `to_numpy`, `to_polars` and `to_hf_dataset` point into that file without a copy; such arrays are
    read-only. `docs/types.md` says what becomes of each Arrow type in each of the forms.

    A connector can be pickled: it takes its own rows along, and not those of its neighbours.

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
        """Wrap a frame or table in memory, with categories and text as a partition of a run has.

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

        return cls(as_in_partition(table_of(data)))

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
        from partwise.connector.polars_frame import polars_frame

        return polars_frame(self._table)

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

    def to_torch_dataset(
        self,
        *,
        batch_size: int | None = None,
        shuffle: bool = False,
        drop_last: bool = False,
        columns: Sequence[str] | None = None,
        seed: int = 0,
        expand_dims: bool = False,
    ) -> Any:
        """The rows as a PyTorch `IterableDataset` of dictionaries of tensors.

        A DataLoader may read it with any number of workers, forked or spawned, which share the
        rows: each row is given once, and the batches and their order are the same for any number.
        Only a few batches are held in memory.

        With `shuffle`, the order depends on the seed and on `dataset.set_epoch(n)`, which is to
        be called before each pass, also with workers that stay alive: without it all passes have
        the order of epoch 0. Every order of the rows is equally likely, up to 4 million rows or
        256 MB. Of more, neighbouring rows go into blocks of 1/256 of that; the blocks are
        shuffled, and then the rows of each 256 blocks, so that a file larger than memory is not
        read at random.

        Args:
            batch_size: Rows per batch, to be loaded with `DataLoader(dataset, batch_size=None)`.
                Every batch but the last is of this size, and `len(dataset)` is their number. None
                for single rows, which a `DataLoader(dataset, batch_size=32)` makes batches of.
            shuffle: Whether to shuffle.
            drop_last: Whether to leave out a last batch of fewer rows.
            columns: The columns to give, None for all.
            seed: Of the shuffle, 0 or more.
            expand_dims: Whether columns of one value a row are of shape (batch_size, 1), as the
                outputs of a layer are. A loss of these and labels (batch_size,) is of all pairs.

        Returns:
            A dataset of dict[str, Tensor | list], text being a list; see `docs/types.md`.

        Raises:
            ColumnError: There is no such column.
            InputError: PyTorch is not installed, or an argument is out of range.

        Example:
            >>> dataset = data.to_torch_dataset(batch_size=256, shuffle=True)
            >>> for epoch in range(10):
            ...     dataset.set_epoch(epoch)
            ...     for batch in DataLoader(dataset, batch_size=None, num_workers=2):
            ...         loss = model(batch["price"].float())
        """
        from partwise.connector.torch_dataset import torch_dataset

        reader = self._reader(columns, batch_size, shuffle, drop_last, seed)
        return torch_dataset(reader.expanded() if expand_dims else reader)

    def to_tf_dataset(
        self,
        *,
        batch_size: int | None = None,
        shuffle: bool = False,
        drop_last: bool = False,
        columns: Sequence[str] | None = None,
        seed: int = 0,
    ) -> "tf.data.Dataset":
        """The rows as a TensorFlow dataset, of the same values as `to_torch_dataset` gives.

        Its signature is static, with None for the number of rows. Pass number i over it (from 0)
        has the order of epoch i.

        Args:
            batch_size: Rows per batch, None for single rows.
            shuffle: Whether to shuffle.
            drop_last: Whether to leave out a last batch of fewer rows.
            columns: The columns to give, None for all.
            seed: Of the shuffle, 0 or more.

        Returns:
            A dataset of dictionaries of tensors, of known cardinality. Text is tf.string, with ""
            for null; lists are ragged. See `docs/types.md`.

        Raises:
            ColumnError: There is no such column, or its type has no form in TensorFlow.
            InputError: TensorFlow is not installed, or an argument is out of range.
        """
        from partwise.connector.tf_dataset import tf_dataset

        return tf_dataset(self._reader(columns, batch_size, shuffle, drop_last, seed))

    def to_hf_dataset(self) -> "datasets.Dataset":
        """The rows as a Hugging Face dataset, without a copy of columns but dictionaries.

        Raises:
            ColumnError: It has no such type as a column's.
            InputError: The package datasets is not installed.
        """
        from partwise.connector.hf_dataset import hf_dataset

        return hf_dataset(self._table)

    def to_dask(
        self, npartitions: int | None = None, *, types: "PandasTypes" = "numpy"
    ) -> "dd.DataFrame":
        """The rows as a Dask DataFrame of consecutive slices.

        A slice becomes a pandas frame in the task that needs it, with the columns that are used,
        so that only the slices at work are held twice. On a distributed cluster the rows travel
        with the graph: of rows larger than memory, give Dask the files.

        Args:
            npartitions: How many slices; None for slices of 64 MB.
            types: As in `to_pandas`; all slices have the types that all rows together have.

        Raises:
            InputError: `npartitions` is less than 1, or there are no such types.
        """
        from partwise.connector.dask_frame import dask_frame

        return dask_frame(self._with_categories(None), npartitions, types)

    def to_dmatrix(
        self,
        label: str | None = None,
        *,
        columns: Sequence[str] | None = None,
        weight: str | None = None,
        threads: int | None = None,
    ) -> "xgboost.DMatrix":
        """The rows as XGBoost's data set, straight from Arrow.

        Columns must be numbers, booleans, decimals (as doubles) or dictionaries, which are
        categorical features. Null and NaN are missing.

        Args:
            label: The column to predict; None for rows to predict.
            columns: The features, None for all columns but label and weight.
            weight: The column of the rows' weights.
            threads: Threads that read; None for all.

        Raises:
            ColumnError: A column is missing or of an unfit type, or label or weight has nulls.

        Example:
            >>> xgboost.train({}, data.to_dmatrix("sales", columns=["price", "promo"]))
        """
        from partwise.connector.boosting_data import xgboost_matrix

        return xgboost_matrix(
            self._with_categories(None).table,
            label=label,
            columns=columns,
            weight=weight,
            threads=threads,
        )

    def to_lightgbm(
        self,
        label: str | None = None,
        *,
        columns: Sequence[str] | None = None,
        weight: str | None = None,
        params: dict[str, Any] | None = None,
        reference: "lightgbm.Dataset | None" = None,
    ) -> "lightgbm.Dataset":
        """The rows as LightGBM's data set, straight from Arrow.

        Columns are as for `to_dmatrix`. The model keeps the categories, as of a pandas frame.

        Args:
            label: The column to predict.
            columns: The features, None for all columns but label and weight.
            weight: The column of the rows' weights.
            params: LightGBM's own, such as `{"max_bin": 63}`.
            reference: The data set trained on, for one to evaluate on: categories get its codes.

        Raises:
            ColumnError: A column is missing or of an unfit type, or label or weight has nulls.
            InputError: The reference has other categorical features.

        Example:
            >>> lightgbm.train({}, data.to_lightgbm("sales", columns=["price", "promo"]))
        """
        from partwise.connector.boosting_data import lightgbm_dataset

        return lightgbm_dataset(
            self._with_categories(None).table,
            label=label,
            columns=columns,
            weight=weight,
            params=params,
            reference=reference,
        )

    def categories(self, column: str) -> pa.Array:
        """The categories of a dictionary column: code i of it in a tensor is number i of these.

        They are the values of the partition's own rows, in ascending order, or in that of an
        ordered dictionary. Where a trained model is at work, those of its training come first, so
        that a code means what it meant then, and values that were unknown then come behind them.

        Args:
            column: The name of a column of a dictionary type.

        Raises:
            ColumnError: There is no such column, or it has no dictionary.
        """
        table = self._with_categories([column]).table
        if not pa.types.is_dictionary(table.column(0).type):
            raise ColumnError(
                f"Column {column!r} is of type {table.column(0).type}: only dictionaries have "
                "categories."
            )
        return categories_of(table.column(0))

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
        starts = range(0, self.num_rows, size)
        return (join_batches(self._table.slice(start, size).to_batches()) for start in starts)

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

    @property
    def _table(self) -> pa.Table:
        return self._rows.table

    def _select(self, columns: Sequence[str] | None) -> PortableTable:
        # A table makes its list of names again each time, of thousands where it is wide.
        names = set(self._table.column_names)
        for name in () if columns is None else columns:
            if name not in names:
                raise ColumnError(
                    f"There is no column {name!r} in the partition: "
                    f"{columns_there(self._table.column_names, name, begin='its columns are')}"
                )
        return self._rows if columns is None else self._rows.select(columns)

    def _with_categories(self, columns: Sequence[str] | None) -> PortableTable:
        """Some columns, whose dictionaries have each value once."""
        rows = self._select(columns)
        return rows.with_table(with_categories_once(rows.table))

    def _reader(
        self,
        columns: Sequence[str] | None,
        batch_size: int | None,
        shuffle: bool,
        drop_last: bool,
        seed: int,
    ) -> "BatchReader":
        from partwise.connector.batch_reader import open_reader

        return open_reader(
            self._with_categories(columns),
            batch_size=batch_size,
            shuffle=shuffle,
            drop_last=drop_last,
            seed=seed,
        )
