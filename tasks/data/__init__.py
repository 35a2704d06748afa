"""Rows: sources as streams of Arrow batches, keys, shards and what the user's function gets."""

from partwise.tasks.data.connector import DataConnector
from partwise.tasks.data.files.file_set import Files
from partwise.tasks.data.sql.query import Query

__all__ = ["DataConnector", "Files", "Query"]
