"""How a run is executed: retries, limits, budgets, granularity."""

from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import ConfigDict, Field, WithJsonSchema
from pydantic.json_schema import SkipJsonSchema

from partwise.engine.limits import SILENCE_S, Limits
from partwise.engine.scaling import Slot
from partwise.form_schema import FormSettings
from partwise.shuffle.shard_count import MAX_SHARDS

Isolation = Literal["shared", "partition"]


PartitionGPUs = Annotated[
    Annotated[int, Field(ge=0)] | Annotated[float, Field(gt=0, lt=1)],
    # One field of a form, and not a choice between two.
    WithJsonSchema({"type": "number", "minimum": 0}),
]
"""Whole ones, or a part of one that others share."""


class ExecutionOptions(FormSettings):
    """How partitions are executed. The defaults suit most runs."""

    model_config = ConfigDict(title="Execution options")

    max_retries: int = Field(
        title="Retries",
        default=1,
        ge=0,
        description="How often a failed partition is tried again, after the others of its shard. "
        "One that ran out of its time or memory is not.",
    )
    retry_backoff_s: float = Field(
        title="Pause before a retry (s)",
        default=0.5,
        ge=0,
        description="Seconds between a failure and its first retry; doubled for each further one.",
    )
    timeout_s: Annotated[float, Field(gt=0)] | SkipJsonSchema[None] = Field(
        title="Time limit of a partition (s)",
        default=None,
        description="Seconds after which a partition is stopped from outside. Default: no limit.",
    )
    memory_bytes: Annotated[int, Field(gt=0)] | SkipJsonSchema[None] = Field(
        title="Memory limit of a partition (bytes)",
        default=None,
        description="Anonymous memory at which a partition is stopped from outside. "
        "Default: its share of four fifths of the machine.",
    )
    cpus: int = Field(
        title="CPUs of a partition",
        default=1,
        ge=1,
        description="Threads that the libraries of a partition use. As many partitions run at once "
        "as the cluster has threads for.",
    )
    gpus: PartitionGPUs | SkipJsonSchema[None] = Field(
        title="GPUs of a partition",
        default=None,
        description="GPUs that a partition has to itself; 0.25: a quarter of one, which it shares "
        "with three others; 0 hides them. Default: those that its worker sees.",
    )
    isolation: Isolation = Field(
        title="Isolation of partitions",
        default="shared",
        description="shared: a process works on many partitions, its settings are put back after "
        "each, and it is replaced where that cannot be. partition: a process of its own for each.",
    )
    fail_fast: bool = Field(
        title="Stop at the first failure",
        default=False,
        description="Stop the run at the first partition that failed for good.",
    )
    max_failed: Annotated[int, Field(ge=0)] | SkipJsonSchema[None] = Field(
        title="Failed partitions allowed",
        default=None,
        description="Stop the run when more partitions than this have failed.",
    )
    max_failed_fraction: Annotated[float, Field(ge=0, le=1)] | SkipJsonSchema[None] = Field(
        title="Fraction of failed partitions allowed",
        default=None,
        description="Stop the run when more than this fraction of all partitions has failed.",
    )
    n_shards: Annotated[int, Field(ge=1, le=MAX_SHARDS)] | SkipJsonSchema[None] = Field(
        title="Shards",
        default=None,
        description="Shards to divide the partitions into. "
        "Default: chosen from rows, bytes and workers.",
    )
    sample: Annotated[int, Field(ge=1, le=1000)] | SkipJsonSchema[None] = Field(
        title="Dry run on a sample of",
        default=None,
        description="Run only so many partitions, the smallest, the largest and others between, as "
        "the run RUN_ID-sample; see that models can be read back, and tell what all would take.",
    )
    first_segment_s: float = Field(
        title="First commit after (s)",
        default=30.0,
        gt=0,
        description="Seconds of work on a shard after which the first segment is committed; "
        "the interval doubles up to ten minutes.",
    )
    max_shard_starts: int = Field(
        title="Starts of a shard",
        default=3,
        ge=1,
        description="How often a shard is started when workers die under it, before its "
        "partitions are INTERNAL_ERROR.",
    )

    silence_s: float = Field(
        title="Silence of a worker (s)",
        default=SILENCE_S,
        gt=0,
        description="Seconds after which the shards of a worker that is not heard of, because it "
        "is stopped, hangs or is cut off, are given to others. It counts as having died.",
    )
    partial_failure: Literal["completed", "failed"] = Field(
        title="State of a partial failure",
        default="completed",
        description="What Prefect takes a run for of which some partitions failed: completed or "
        "failed. It shows either as PARTIAL_FAILURE, and the call returns the run in any case.",
    )
    report_interval_s: float = Field(
        title="Word of what takes long (s)",
        default=60.0,
        gt=0,
        description="Seconds between two lines of the log that say what has run for longest.",
    )

    def limits_on(self, slots: Sequence[Slot]) -> Limits:
        """Return what one partition may use on a cluster that has room for so many at once."""
        by_host: dict[str, tuple[tuple[str, ...], ...]] = {}
        for slot in slots:
            by_host[slot.host] = (*by_host.get(slot.host, ()), slot.gpus)
        most = max(map(len, by_host.values()), default=1)
        # With one CPU each, the threads of the workers are the limit already.
        counted = self.cpus > 1 or self.gpus is not None
        return Limits(
            timeout_s=self.timeout_s,
            memory_bytes=self.memory_bytes,
            slots_per_host=most,
            slots=by_host if counted else {},
        )

    def failure_budget(self, partitions: int) -> int | None:
        """Return how many of `partitions` may fail before the run is stopped; None: any number.

        Example:
            >>> ExecutionOptions(max_failed_fraction=0.1).failure_budget(50)
            5
        """
        budgets = []
        if self.fail_fast:
            budgets.append(0)
        if self.max_failed is not None:
            budgets.append(self.max_failed)
        if self.max_failed_fraction is not None:
            # As it is written: 0.29 of 100 are 29, and the product of the two is a little less.
            budgets.append(int(round(self.max_failed_fraction * partitions, 6)))
        return min(budgets, default=None)
