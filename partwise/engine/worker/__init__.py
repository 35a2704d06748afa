"""A Dask worker's process: runs shards, keeps children for their partitions, commits segments."""
