"""Prefect tasks: load rows, run shards, publish rows and the report; and how flows call them."""
