"""Options and statuses of a run."""

import warnings
from dataclasses import dataclass

import partwise.engine.options as ours
from partwise.outcomes import PartitionStatus, RunStatus

__all__ = ["ExecutionOptions", "PartitionStatus", "RunStatus"]


@dataclass(frozen=True)
class ExecutionOptions:
    """How partitions are executed; 1 CPU each where nothing is said."""

    use_head_node: bool = True
    loading_wh: str | None = None
    num_cpus_per_worker: int | None = None
    num_gpus_per_worker: float | None = None
    max_retries: int = 1
    fail_fast: bool = False


def own_options(options: ExecutionOptions | ours.ExecutionOptions | None) -> ours.ExecutionOptions:
    """Return the options of partwise, and warn of what does nothing here."""
    if isinstance(options, ours.ExecutionOptions):
        return options
    theirs = options or ExecutionOptions()
    if not theirs.use_head_node or theirs.loading_wh is not None:
        warnings.warn(
            "use_head_node and loading_wh do nothing here: the scheduler runs no function of "
            "yours, and no warehouse loads the rows.",
            stacklevel=4,
        )
    return ours.ExecutionOptions(
        cpus=theirs.num_cpus_per_worker or 1,
        gpus=theirs.num_gpus_per_worker,
        max_retries=theirs.max_retries,
        fail_fast=theirs.fail_fast,
    )
