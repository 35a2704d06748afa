"""The exit codes of `partwise`, which scripts rely on."""

from partwise.outcomes import RunStatus

SUCCESS = 0
FAILURE = 1
USAGE = 2
"""A call that cannot be carried out as it stands."""
PARTIAL_FAILURE = 3
"""Some of the partitions failed."""
INTERRUPTED = 130
BROKEN_PIPE = 141
TERMINATED = 143


def code_of(status: RunStatus) -> int:
    """Return the exit code of a command whose work ended so."""
    if status is RunStatus.PARTIAL_FAILURE:
        return PARTIAL_FAILURE
    return SUCCESS if status in (RunStatus.SUCCESS, RunStatus.SKIPPED) else FAILURE
