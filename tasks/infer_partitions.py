"""Step 2 of inference: meet each partition of some shards with its trained model."""

from collections.abc import Callable, Sequence
from typing import Any, Literal

import pyarrow as pa
from prefect import task
from prefect.cache_policies import NO_CACHE
from prefect.logging import get_run_logger

from partwise.engine.assignment import ShardReceipt
from partwise.engine.driver import Driver, ShardGroup
from partwise.engine.trained_models import models_by_shard
from partwise.engine.works import InferWork
from partwise.errors import ColumnError, InputError, ModelNotFound
from partwise.models.serdes import ModelSerde, serde_by_name
from partwise.runs.outputs import check_writable
from partwise.runs.run import Run
from partwise.tables.keys.partition_keys import KeyColumn, check_key_classes
from partwise.trainers import resolve_trainer
from partwise.trainers.predict import default_predict


@task(
    name="infer-partitions",
    task_run_name="infer {group}",
    cache_policy=NO_CACHE,
    persist_result=False,
)
def infer_partitions(group: ShardGroup, driver: Driver) -> list[ShardReceipt]:
    """Infer the partitions of some shards on the cluster, and wait for them."""
    return driver.run_shards(group.numbers, get_run_logger())


def plan_inference(
    training: Run,
    key_columns: Sequence[KeyColumn],
    schema: pa.Schema,
    *,
    predict: str | Callable[..., Any] | None,
    serde: ModelSerde | None,
    keep_columns: Sequence[str],
    on_missing_model: Literal["fail", "skip"],
) -> tuple[InferWork, dict[int, pa.Table]]:
    """Return the work of an inference run, and where the models of each shard are.

    Raises:
        InputError: The run is no training run, or is partitioned by other columns.
        KeyClassError: A key column has another class than in training.
        SerdeError: The models need a serde that was not given.
        ModelNotFound: The training run has no model at all.
        ColumnError: A column to keep is missing.
    """
    if training.kind not in ("train", "export"):
        raise InputError(
            f"The run {training.run_id!r} is of the kind {training.kind!r}; training_run_id names "
            "a run of train_models, or of export_models."
        )
    names = [column.name for column in key_columns]
    if names != training.document.partition_by:
        raise InputError(
            f"partition_by is {names}, and the training run {training.run_id!r} was partitioned "
            f"by {training.document.partition_by}; pass the same columns in the same order."
        )
    check_key_classes(training.key_columns, key_columns, f"the training run {training.run_id!r}")
    known = set(schema.names)
    missing = [name for name in keep_columns if name not in known]
    if missing:
        raise ColumnError(f"keep_columns names {missing}, which the source does not have.")
    check_writable(pa.schema([schema.field(name) for name in keep_columns]), "keep_columns names")
    models = models_by_shard(training.ledger)
    if not models:
        raise ModelNotFound(
            f"The training run {training.run_id!r} ({training.status.value}) has no model yet; "
            "train it first, or pass the ID of another run."
        )
    for name in sorted({name for table in models.values() for name in table["serde"].to_pylist()}):
        serde_by_name(name, serde)
    work = InferWork(
        predict=default_predict if predict is None else resolve_trainer(predict),
        serde=serde,
        training_run_id=training.run_id,
        on_missing_model=on_missing_model,
        key_columns=tuple(names),
        keep_columns=tuple(keep_columns),
    )
    return work, models
