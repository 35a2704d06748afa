"""What stands at `snowflake.ml.modeling`."""
