"""Rows in files: finding them, their formats, one schema for all."""
