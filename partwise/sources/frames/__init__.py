"""Rows of Python objects: tables, frames, streams and Dask DataFrames."""
