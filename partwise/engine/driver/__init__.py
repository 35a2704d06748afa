"""The driver's process: plans a run, hands shards to workers, watches them, and ends the run."""
