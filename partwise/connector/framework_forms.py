"""The rows of a partition as the data sets of other frameworks."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from partwise.connector.categories import categories_of, with_categories_once
from partwise.connector.spooling import PortableTable
from partwise.errors import ColumnError
from partwise.tables.column_names import names_in_words

if TYPE_CHECKING:
    import dask.dataframe as dd
    import datasets
    import lightgbm
    import tensorflow as tf
    import xgboost

    from partwise.connector.batch_reader import BatchReader
    from partwise.connector.pandas_frames import PandasTypes


class FrameworkForms:
    """The forms of a `DataConnector` for PyTorch, TensorFlow, Dask and other frameworks."""

    _rows: PortableTable

    def categories(self, column: str) -> pa.Array:
        """The categories of a dictionary column: code i of it in a tensor is number i of these.

        The partitions of one run share their categories, so that a code means the same in all.

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

    def to_torch_dataset(
        self,
        *,
        batch_size: int | None = None,
        shuffle: bool = False,
        drop_last: bool = False,
        columns: Sequence[str] | None = None,
        seed: int = 0,
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

        Returns:
            A dataset of dict[str, Tensor | list]: numbers, booleans, times and categories are
            tensors of shape (batch_size, ...), text is a list. See `docs/types.md`.

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

        return torch_dataset(self._reader(columns, batch_size, shuffle, drop_last, seed))

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

    @property
    def _table(self) -> pa.Table:
        return self._rows.table

    def _select(self, columns: Sequence[str] | None) -> PortableTable:
        # A table makes its list of names anew each time, of thousands where it is wide.
        names = set(self._table.column_names)
        for name in columns or ():
            if name not in names:
                raise ColumnError(
                    f"There is no column {name!r} in the partition: its columns are "
                    f"{names_in_words(self._table.column_names)}."
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
