"""How partitions are run: by a driver, its workers, and their children; here is what they share."""
