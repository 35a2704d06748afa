"""What stands at `snowflake.snowpark`: a session over Parquet files of this machine."""

from partwise.compat.snowflake.snowpark.column import Column
from partwise.compat.snowflake.snowpark.dataframe import DataFrame, RelationalGroupedDataFrame
from partwise.compat.snowflake.snowpark.row import Row
from partwise.compat.snowflake.snowpark.session import Session, SessionBuilder

__all__ = ["Column", "DataFrame", "RelationalGroupedDataFrame", "Row", "Session", "SessionBuilder"]
