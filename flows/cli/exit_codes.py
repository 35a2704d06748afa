"""The exit codes of `partwise`, which scripts rely on."""

SUCCESS = 0
FAILURE = 1
USAGE = 2
"""A call that cannot be carried out as it stands."""
PARTIAL_FAILURE = 3
"""Some of the partitions failed."""
INTERRUPTED = 130
BROKEN_PIPE = 141
TERMINATED = 143
