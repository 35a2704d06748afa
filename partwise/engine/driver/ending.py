"""How an execution ended: what receipts tell, and which shards did not come to their end."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime

import pyarrow as pa

from partwise.engine.assignment import ShardReceipt
from partwise.engine.driver.shards import Driver
from partwise.outcomes import CANCELLED, PartitionStatus
from partwise.runs.completion import Ending, UnfinishedShard
from partwise.shuffle.plan import ShardedRows


def describe_ending(
    driver: Driver,
    receipts: Sequence[ShardReceipt],
    sharded: ShardedRows,
    *,
    started_at: datetime,
    stages: Mapping[str, float],
    remark: Callable[[pa.Table], str] | None = None,
) -> Ending:
    """Return how an execution ended.

    A shard without a complete receipt has partitions without a ledger row: each gets one.
    """
    by_shard = {receipt.shard: receipt for receipt in receipts}
    unfinished = []
    partitions = sum(receipt.partitions for receipt in receipts)
    for shard in sharded.shards:
        receipt = by_shard.get(shard.number)
        if receipt is not None and receipt.complete:
            continue
        keys = sharded.keys_of(shard.number)
        partitions += keys.num_rows if receipt is None else 0
        lost = driver.lost.get(shard.number)
        unfinished.append(
            UnfinishedShard(
                shard=shard.number,
                keys=keys,
                status=PartitionStatus.INTERNAL_ERROR if lost else PartitionStatus.CANCELLED,
                reason=lost or (driver.stopped or CANCELLED).reason,
            )
        )
    failed = sum(receipt.counts.get(PartitionStatus.FAILED.value, 0) for receipt in receipts)
    return Ending(
        partitions=partitions,
        unfinished=tuple(unfinished),
        # The failures of the last shards may exceed the budget when nothing is left to stop.
        stopped=driver.stopped or driver.exceeds_budget(failed),
        rows=sharded.rows,
        dropped_rows=sharded.dropped_rows,
        started_at=started_at,
        stages=stages,
        remark=remark,
    )
