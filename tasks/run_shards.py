"""The step that runs a group of shards on the cluster: one task, named for what its flow does."""

from collections import Counter

from partwise.engine.assignment import ShardReceipt
from partwise.engine.driver.shards import Driver, ShardGroup
from partwise.formatting import counted
from partwise.outcomes import PartitionStatus, RunStatus
from partwise.runs.kinds import KINDS, RunKind
from partwise.tasks.steps import StepFunction, run_logger, shown_as_failed, step


def step_of(kind: RunKind) -> StepFunction[[ShardGroup, Driver], list[ShardReceipt]]:
    """Return the step that runs the shards of a run of a kind, named for what it does there."""
    of_kind = KINDS[kind]
    # Partitions and shards are tried again by the driver, as the call says.
    return step(of_kind.step, f"{of_kind.verb} {{group}}", retries=0)(run_shards)


def run_shards(group: ShardGroup, driver: Driver) -> list[ShardReceipt]:
    """Run the partitions of some shards on the cluster, and wait for them.

    In Prefect's timeline a group in which partitions failed is no green bar.
    """
    receipts = driver.run_shards(group.numbers, run_logger())
    counts = sum((Counter(receipt.counts) for receipt in receipts), Counter[str]())
    failed = counts[PartitionStatus.FAILED.value] + counts[PartitionStatus.INTERNAL_ERROR.value]
    lost = [driver.lost[number] for number in group.numbers if number in driver.lost]
    if not failed and not lost:
        return receipts
    done = counts[PartitionStatus.DONE.value]
    said = f"{failed:,} of {counted(counts.total(), 'partition')} failed"
    if lost:
        said += f", and {counted(len(lost), 'shard')} did not come to an end: {lost[0]}"
    status = RunStatus.PARTIAL_FAILURE if done else RunStatus.FAILURE
    return shown_as_failed(receipts, status, f"{said}.")
