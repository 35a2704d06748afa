"""Functions that are called for each partition."""
