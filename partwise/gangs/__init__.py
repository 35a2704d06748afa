"""Gangs: N ranks started together or not at all, each in a child process, on a Dask cluster."""
