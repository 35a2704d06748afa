"""The step that runs a group of shards on the cluster: one task, named for what its flow does."""

from typing import Any

from prefect import Task, task
from prefect.cache_policies import NO_CACHE

from partwise.engine.assignment import ShardReceipt
from partwise.engine.driver.shards import Driver, ShardGroup
from partwise.runs.kinds import KINDS, RunKind
from partwise.tasks.steps import run_logger

RunShards = Task[..., list[ShardReceipt]]


@task(cache_policy=NO_CACHE, persist_result=False)
def run_shards(group: ShardGroup, driver: Driver) -> list[ShardReceipt]:
    """Run the partitions of some shards on the cluster, and wait for them."""
    return driver.run_shards(group.numbers, run_logger())


def step_of(kind: RunKind) -> RunShards:
    """Return the task that runs the shards of a run of a kind, named for what it does there."""
    of_kind = KINDS[kind]
    named: Any = run_shards.with_options(
        name=of_kind.step, task_run_name=f"{of_kind.verb} {{group}}"
    )
    step: RunShards = named
    return step
