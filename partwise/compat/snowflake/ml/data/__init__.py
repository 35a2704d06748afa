"""What stands at `snowflake.ml.data`."""

from partwise.compat.snowflake.ml.data.data_connector import DataConnector

__all__ = ["DataConnector"]
