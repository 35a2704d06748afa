"""Names of Snowflake's container runtime, at the same paths below this package."""
