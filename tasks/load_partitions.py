"""Step 1: have workers read the source, and divide its rows into shards."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from partwise.shuffle.load import load_shards
from partwise.shuffle.plan import ShardedRows
from partwise.shuffle.shard_cache import ShardCache
from partwise.shuffle.shared_folder import SharedFolder
from partwise.shuffle.write import Division
from partwise.sources.descriptions import Source
from partwise.tasks.steps import run_logger, step

if TYPE_CHECKING:
    from distributed import Client


@step("load-partitions", "load partitions")
def load_partitions(
    source: Source,
    division: Division,
    client: "Client",
    cache: ShardCache,
    shared_folder: SharedFolder,
    check: Callable[[], None],
) -> ShardedRows:
    """Divide a source into shards.

    Workers read the fragments that they can reach, and this process the others. Fragments of one
    key, which the source tells beforehand, are not read here: those who use them do. `check` raises
    where the cluster is gone.
    """
    log = run_logger().info
    return load_shards(source, division, client, cache, shared_folder, log, check)
