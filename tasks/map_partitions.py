"""Step 2 of mapping: call the user's function for each partition of some shards."""

from collections.abc import Callable, Sequence
from typing import Any

from prefect import task
from prefect.cache_policies import NO_CACHE
from prefect.logging import get_run_logger

from partwise.engine.assignment import ShardReceipt
from partwise.engine.driver import Driver, ShardGroup
from partwise.engine.works import MapWork
from partwise.tables.keys.partition_keys import KeyColumn
from partwise.trainers import resolve_trainer


@task(
    name="map-partitions",
    task_run_name="map {group}",
    cache_policy=NO_CACHE,
    persist_result=False,
)
def map_partitions(group: ShardGroup, driver: Driver) -> list[ShardReceipt]:
    """Call the function for the partitions of some shards on the cluster, and wait for them."""
    return driver.run_shards(group.numbers, get_run_logger())


def plan_mapping(function: str | Callable[..., Any], key_columns: Sequence[KeyColumn]) -> MapWork:
    """Return the work of a map run.

    Raises:
        FunctionError: The name of a function leads nowhere.
    """
    names = tuple(column.name for column in key_columns)
    return MapWork(function=resolve_trainer(function), key_columns=names)
