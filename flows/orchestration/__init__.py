"""Between a run and Prefect: states, events, run IDs, progress, the embedded server."""
