"""Step 1: read the source once and divide its rows into shards."""

from collections.abc import Sequence
from typing import Literal

from prefect import task
from prefect.cache_policies import NO_CACHE

from partwise.tasks.data.keys import KeyColumn
from partwise.tasks.data.shards import Spill, spill_shards
from partwise.tasks.data.sources import Source


@task(
    name="load-partitions",
    task_run_name="load partitions",
    cache_policy=NO_CACHE,
    persist_result=False,
)
def load_partitions(
    source: Source,
    key_columns: Sequence[KeyColumn],
    n_shards: int,
    directory: str,
    null_keys: Literal["error", "drop", "keep"],
) -> Spill:
    """Stream a source into shards on the driver's disk.

    Args:
        source: Where the rows come from.
        key_columns: The columns that divide them.
        n_shards: How many shards there are to be.
        directory: Where the shards are spilled.
        null_keys: What to do about rows with a null key.

    Raises:
        SourceError: There are no rows.
        NullKeyError: A key is null under the policy "error".
    """
    return spill_shards(source, key_columns, n_shards, directory, null_keys=null_keys)
