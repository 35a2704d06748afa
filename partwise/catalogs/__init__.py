"""Catalogs: which model is used for each key, as versions that do not change any more."""
