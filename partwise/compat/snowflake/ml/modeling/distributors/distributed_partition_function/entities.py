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

    def to_own(self) -> ours.ExecutionOptions:
        """Return the options of partwise, and warn of what does nothing here."""
        if not self.use_head_node or self.loading_wh is not None:
            warnings.warn(
                "use_head_node and loading_wh do nothing here: the scheduler runs no function of "
                "yours, and no warehouse loads the rows.",
                stacklevel=4,
            )
        return ours.ExecutionOptions(
            cpus=self.num_cpus_per_worker or 1,
            gpus=self.num_gpus_per_worker,
            max_retries=self.max_retries,
            fail_fast=self.fail_fast,
        )
