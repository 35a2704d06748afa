"""Rows in databases, read over ADBC."""
