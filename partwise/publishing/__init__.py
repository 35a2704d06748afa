"""The rows of a run as rows of a database table, or as a version of a dataset."""
