"""How partitions are run: the driver, its workers, and their child processes."""
