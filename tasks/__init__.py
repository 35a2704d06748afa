"""Prefect tasks, and nothing else: load rows, run shards, publish rows and the report."""
