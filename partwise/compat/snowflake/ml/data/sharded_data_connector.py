"""Rows that are divided among the workers of a call."""

from typing import Any

import partwise.connector.data_connector as ours
from partwise.compat.snowflake.ml.data.data_connector import DataConnector
from partwise.compat.snowflake.stages import own_rows
from partwise.errors import InputError


class ShardedDataConnector(DataConnector):
    """Rows of which each worker asks for its share.

    Args:
        rows: All of them, or in a worker its share.
        equal: Whether all shares have the same number of rows; what is left over is left out.
        is_share: Whether they are those of a worker.
    """

    def __init__(
        self, rows: ours.DataConnector, equal: bool = True, *, is_share: bool = False
    ) -> None:
        super().__init__(rows)
        self.equal = equal
        self._is_share = is_share

    @classmethod
    def from_dataframe(cls, df: Any, equal: bool = True) -> "ShardedDataConnector":
        """Return the rows of a frame: of pandas, polars or Snowpark, or an Arrow table."""
        return cls(ours.DataConnector.from_dataframe(own_rows(df)), equal)

    @classmethod
    def from_dataset(cls, ds: Any, equal: bool = True) -> "ShardedDataConnector":
        """Return the rows of a dataset of partwise, or of one by its name."""
        return cls(DataConnector.from_dataset(ds).rows, equal)

    @classmethod
    def from_sources(cls, session: Any, sources: Any, equal: bool = True) -> "ShardedDataConnector":
        """Return the rows of paths or other sources of partwise."""
        return cls(DataConnector.from_sources(session, sources).rows, equal)

    def get_shard(self) -> DataConnector:
        """Return the rows of this worker.

        Raises:
            InputError: This is no worker.
        """
        if not self._is_share:
            raise InputError(
                "get_shard() works in a training function only, of what get_dataset_map() returns."
            )
        return DataConnector(self.rows)
