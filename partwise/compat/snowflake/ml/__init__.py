"""What stands at `snowflake.ml`."""
