"""What stands at `snowflake.ml.modeling.distributors`."""
