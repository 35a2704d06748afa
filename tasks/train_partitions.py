"""Step 2 of training: call the user's function or trainer for each partition of some shards."""

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
from prefect import task
from prefect.cache_policies import NO_CACHE
from prefect.logging import get_run_logger

from partwise.engine.assignment import ShardReceipt
from partwise.engine.driver import Driver, ShardGroup
from partwise.engine.works import TrainWork
from partwise.models.serdes import ModelSerde
from partwise.tables.keys.partition_keys import KeyColumn
from partwise.trainers import resolve_trainer


@task(
    name="train-partitions",
    task_run_name="train {group}",
    cache_policy=NO_CACHE,
    persist_result=False,
)
def train_partitions(group: ShardGroup, driver: Driver) -> list[ShardReceipt]:
    """Train the partitions of some shards on the cluster, and wait for them."""
    return driver.run_shards(group.numbers, get_run_logger())


def plan_training(
    trainer: str | Callable[..., Any],
    serde: ModelSerde | None,
    schema: pa.Schema,
    key_columns: Sequence[KeyColumn],
) -> TrainWork:
    """Return the work of a training run, checked as far as it can be before any row is read.

    Raises:
        FunctionError: The name of a function leads nowhere.
        ColumnError: The trainer needs a column that the source lacks.
    """
    function = resolve_trainer(trainer)
    if hasattr(function, "check"):
        function.check(schema, key_columns=tuple(column.name for column in key_columns))
    return TrainWork(function=function, serde=serde)
