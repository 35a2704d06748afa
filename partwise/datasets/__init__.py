"""Datasets: rows by name and version in the artifact store, which do not change any more."""
