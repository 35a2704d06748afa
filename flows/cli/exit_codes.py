"""The exit codes of `partwise`, which scripts rely on."""

from typing import TYPE_CHECKING

from partwise.outcomes import RunStatus

if TYPE_CHECKING:
    from partwise.runs.run import Run

SUCCESS = 0
FAILURE = 1
USAGE = 2
"""A call that cannot be carried out as it stands."""
PARTIAL_FAILURE = 3
"""Some of the partitions failed."""
DAMAGED_MODELS = 4
"""A model could not be read, and the next level of an inference answered."""
INTERRUPTED = 130
BROKEN_PIPE = 141
TERMINATED = 143


def code_of_run(run: "Run") -> int:
    """Return the exit code of a command whose work was this run."""
    # The help of a command, which names no run, does without pyarrow.
    from partwise.runs.ledger import damaged_models

    code = code_of(run.status)
    if code == SUCCESS and run.kind == "infer" and damaged_models(run.ledger):
        return DAMAGED_MODELS
    return code


def code_of(status: RunStatus) -> int:
    """Return the exit code of a command whose work ended so."""
    if status is RunStatus.PARTIAL_FAILURE:
        return PARTIAL_FAILURE
    return SUCCESS if status in (RunStatus.SUCCESS, RunStatus.SKIPPED) else FAILURE
