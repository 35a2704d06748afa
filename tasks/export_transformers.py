"""The step that exports models of transformers: each in a child process, and proved there."""

from prefect import task
from prefect.cache_policies import NO_CACHE
from prefect.logging import get_run_logger

from partwise.engine.assignment import ShardReceipt
from partwise.engine.driver import Driver, ShardGroup


@task(
    name="export-transformers",
    task_run_name="export {group}",
    cache_policy=NO_CACHE,
    persist_result=False,
)
def export_transformers(group: ShardGroup, driver: Driver) -> list[ShardReceipt]:
    """Export the models of some shards on the cluster, each proved, and wait for them."""
    return driver.run_shards(group.numbers, get_run_logger())
