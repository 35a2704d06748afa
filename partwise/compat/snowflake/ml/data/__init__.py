"""What stands at `snowflake.ml.data`."""

from partwise.compat.snowflake.ml.data.data_connector import DataConnector
from partwise.compat.snowflake.ml.data.sharded_data_connector import ShardedDataConnector

__all__ = ["DataConnector", "ShardedDataConnector"]
