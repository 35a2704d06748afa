"""The step that runs a group of shards on the cluster: one task, named for what its flow does."""

from partwise.engine.assignment import ShardReceipt
from partwise.engine.driver.shards import Driver, ShardGroup
from partwise.runs.kinds import KINDS, RunKind
from partwise.tasks.steps import StepFunction, run_logger, step


def step_of(kind: RunKind) -> StepFunction[[ShardGroup, Driver], list[ShardReceipt]]:
    """Return the step that runs the shards of a run of a kind, named for what it does there."""
    of_kind = KINDS[kind]
    return step(of_kind.step, f"{of_kind.verb} {{group}}")(run_shards)


def run_shards(group: ShardGroup, driver: Driver) -> list[ShardReceipt]:
    """Run the partitions of some shards on the cluster, and wait for them."""
    return driver.run_shards(group.numbers, run_logger())
