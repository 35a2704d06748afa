"""Partitions: what users' functions meet, and how they are run on workers."""

from partwise.tasks.partitions.context import PartitionContext
from partwise.tasks.partitions.options import ExecutionOptions
from partwise.tasks.partitions.outcomes import PartitionStatus, Result, RunStatus, Skip

__all__ = [
    "ExecutionOptions",
    "PartitionContext",
    "PartitionStatus",
    "Result",
    "RunStatus",
    "Skip",
]
