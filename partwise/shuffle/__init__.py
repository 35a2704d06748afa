"""Rows divided by the hash of their key, on disk."""
