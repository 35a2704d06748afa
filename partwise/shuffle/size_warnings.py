"""Warnings about the sizes of partitions, before any work is done on them."""

from collections.abc import Iterator

import numpy as np

from partwise.shuffle.plan import ShardedRows
from partwise.tables.column_names import names_in_words
from partwise.tables.keys.partition_keys import key_values

GIANT_SHARE = 0.5
"""Of one slot's fair part of all rows: a partition above that may be what the others wait for."""
GIANT_TIMES_MEDIAN = 10
MANY_PARTITIONS = 100_000
FEW_ROWS = 2.0


def warnings_of(sharded: ShardedRows, slots: int, memory_bytes: int) -> Iterator[str]:
    """Yield what a person should know of the sizes of partitions before they are worked on."""
    rows = sharded.key_rows
    largest = int(np.argmax(rows))
    share = float(rows[largest] / sharded.rows)
    size_bytes = sum(shard.size_bytes for shard in sharded.shards) * share
    giant = share * slots > GIANT_SHARE and rows[largest] > GIANT_TIMES_MEDIAN * np.median(rows)
    if giant or size_bytes > memory_bytes:
        name = repr(key_values(sharded.keys.slice(largest, 1))[0])
        about = f"The partition {name} has {int(rows[largest]):,} of the {sharded.rows:,} rows"
        if giant:
            yield (
                f"{about} ({share:.0%}): all others may be done long before it; divide it by one "
                "more key column, or have its function read a sample."
            )
        if size_bytes > memory_bytes:
            yield (
                f"{about}, about {size_bytes / 2**30:.1f} GiB, and may take "
                f"{memory_bytes / 2**30:.1f} GiB of memory: read it with data.batches(size)."
            )
    if sharded.partitions > MANY_PARTITIONS and sharded.rows / sharded.partitions < FEW_ROWS:
        names = names_in_words([column.name for column in sharded.key_columns])
        yield (
            f"partition_by={names} makes {sharded.partitions:,} partitions of "
            f"{sharded.rows:,} rows, "
            f"{sharded.rows / sharded.partitions:.1f} rows each: is it the column you meant?"
        )
