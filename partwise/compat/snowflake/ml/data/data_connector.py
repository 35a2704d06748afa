"""The rows that a function is given, with the methods that theirs have."""

from typing import Any

import partwise.connector.data_connector as ours
from partwise.compat.snowflake.snowpark.context import get_active_session
from partwise.compat.snowflake.snowpark.session import Session
from partwise.compat.snowflake.stages import rows_of
from partwise.errors import InputError


class DataConnector:
    """Rows, as pandas, PyTorch and others take them.

    Args:
        rows: The connector of partwise, of which all of it is made.
    """

    def __init__(self, rows: ours.DataConnector) -> None:
        self.rows = rows

    @classmethod
    def from_dataframe(cls, df: Any, ingestor_class: Any = None) -> "DataConnector":
        """Return the rows of a frame: of pandas, polars or Snowpark, or an Arrow table.

        Raises:
            InputError: An ingestor is given; rows are read by Arrow.
        """
        if ingestor_class is not None:
            raise InputError("ingestor_class is not taken: leave it out, rows are read by Arrow.")
        return cls(ours.DataConnector.from_dataframe(rows_of(df)))

    @classmethod
    def from_sql(
        cls, query: str, session: Session | None = None, ingestor_class: Any = None
    ) -> "DataConnector":
        """Return the result of one of the statements that a session knows.

        Raises:
            InputError: It knows no such statement, or an ingestor is given.
        """
        return cls.from_dataframe((session or get_active_session()).sql(query), ingestor_class)

    @classmethod
    def from_dataset(cls, ds: Any) -> "DataConnector":
        """Return the rows of a dataset of partwise, or of the newest version of one by its name.

        Raises:
            DatasetNotFoundError: There is none of this name.
        """
        if isinstance(ds, str):
            return cls(ours.DataConnector.from_dataset(ds))
        return cls(ours.DataConnector.from_sources(ds))

    @classmethod
    def from_sources(cls, session: Any, sources: Any) -> "DataConnector":
        """Return the rows of paths or other sources of partwise; of the session nothing is asked.

        Raises:
            SourceError: There is nothing to read, or it cannot be read.
        """
        del session
        return cls(ours.DataConnector.from_sources(sources))

    @classmethod
    def from_ray_dataset(cls, ray_ds: Any) -> "DataConnector":  # noqa: ARG003
        """Refuse a Ray dataset.

        Raises:
            InputError: Always.
        """
        raise InputError(
            "Ray datasets are not taken: write them as Parquet files, and pass their folder to the "
            "call, or their Arrow table to DataConnector.from_dataframe."
        )

    def to_pandas(self, limit: int | None = None) -> Any:
        """Return a frame of the rows; of the first `limit`."""
        frame = self.rows.to_pandas()
        return frame if limit is None else frame.head(limit)

    def to_torch_dataset(
        self, *, batch_size: int | None = None, shuffle: bool = False, drop_last_batch: bool = True
    ) -> Any:
        """Return an iterable dataset whose columns are of shape (n, 1), without the last batch.

        Without `batch_size` it is of single rows, and of all of them.
        """
        return self.rows.to_torch_dataset(
            batch_size=batch_size,
            shuffle=shuffle,
            drop_last=drop_last_batch and batch_size is not None,
            expand_dims=True,
        )

    def to_torch_datapipe(
        self, *, batch_size: int, shuffle: bool = False, drop_last_batch: bool = True
    ) -> Any:
        """Return what `to_torch_dataset` does: PyTorch has no datapipes any more."""
        return self.to_torch_dataset(
            batch_size=batch_size, shuffle=shuffle, drop_last_batch=drop_last_batch
        )

    def to_huggingface_dataset(
        self,
        *,
        streaming: bool = False,
        limit: int | None = None,
        batch_size: int = 1024,
        shuffle: bool = False,
        drop_last_batch: bool = False,
    ) -> Any:
        """Return a dataset of Hugging Face, or with `streaming` an iterable one."""
        rows = self.rows.to_hf_dataset()
        rows = rows.shuffle() if shuffle else rows
        rows = rows if limit is None else rows.take(min(limit, len(rows)))
        if drop_last_batch:
            rows = rows.take(len(rows) // batch_size * batch_size)
        return rows.to_iterable_dataset() if streaming else rows

    def to_tf_dataset(
        self, *, batch_size: int, shuffle: bool = False, drop_last_batch: bool = True
    ) -> Any:
        """Return a dataset of TensorFlow; its columns are of shape (n,), unlike theirs."""
        return self.rows.to_tf_dataset(
            batch_size=batch_size, shuffle=shuffle, drop_last=drop_last_batch
        )
