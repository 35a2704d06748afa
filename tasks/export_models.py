"""The export step: turn each partition's model of some shards into a file, and prove the file."""

from collections.abc import Callable, Mapping, Sequence

import pyarrow as pa
from prefect import task
from prefect.cache_policies import NO_CACHE
from prefect.logging import get_run_logger

from partwise.engine.assignment import ShardReceipt
from partwise.engine.driver import Driver, ShardGroup
from partwise.engine.trained_models import models_by_shard
from partwise.errors import InputError, ModelNotFound
from partwise.exports.choice import check_formats
from partwise.exports.works import ExportWork, Proof
from partwise.models.export_options import ExportOptions, ModelFormat
from partwise.models.serdes import ModelSerde, serde_by_name
from partwise.runs.run import Run
from partwise.shuffle.plan import ShardedRows, UnsortedShard
from partwise.tables.keys.partition_keys import KeyColumn, check_key_classes, partition_ids

_SHOWN = 3


@task(
    name="export-models",
    task_run_name="export {group}",
    cache_policy=NO_CACHE,
    persist_result=False,
)
def export_models(group: ShardGroup, driver: Driver) -> list[ShardReceipt]:
    """Export the models of some shards on the cluster, each proved, and wait for them."""
    return driver.run_shards(group.numbers, get_run_logger())


def plan_export(
    training: Run,
    key_columns: Sequence[KeyColumn],
    form: ModelFormat,
    options: ExportOptions,
    proof: Proof,
    serde: ModelSerde | None,
) -> tuple[ExportWork, dict[int, pa.Table]]:
    """Return the work of an export run, and where the models of each shard are.

    Raises:
        InputError: The run is no training run.
        KeyClassError: A key column of the rows has another class than in training.
        SerdeError: The models need a serde that was not given.
        ModelNotFound: The training run has no model at all.
        ExportRefused: None of its models could be exported so.
    """
    if training.kind != "train":
        raise InputError(
            f"The run {training.run_id!r} is of the kind {training.kind!r}; training_run_id names "
            "a run of train_models."
        )
    check_key_classes(training.key_columns, key_columns, f"the training run {training.run_id!r}")
    models = models_by_shard(training.ledger)
    if not models:
        raise ModelNotFound(
            f"The training run {training.run_id!r} ({training.status.value}) has no model yet; "
            "train it first, or pass the ID of another run."
        )
    check_serdes(models, serde)
    if proof.exporter is None:
        # A native serde is named for the library of its models.
        check_formats(form, serdes_of(models), options)
    work = ExportWork(
        format=form,
        options=options,
        proof=proof,
        serde=serde,
        training_run_id=training.run_id,
    )
    return work, models


def check_serdes(models: Mapping[int, pa.Table], serde: ModelSerde | None) -> None:
    """See to it that models can be read.

    Raises:
        SerdeError: They need a serde that was not given.
    """
    for name in serdes_of(models):
        serde_by_name(name, serde)


def serdes_of(models: Mapping[int, pa.Table]) -> list[str]:
    """Return the names of the serdes that wrote models."""
    return sorted({name for table in models.values() for name in table["serde"].to_pylist()})


def check_coverage(
    models: Mapping[int, pa.Table],
    sharded: ShardedRows,
    read_keys: Callable[[UnsortedShard], pa.Table],
    run_id: str,
) -> None:
    """See to it that no model is passed over for want of rows.

    Args:
        models: Where the models of each shard are.
        sharded: The rows.
        read_keys: Gives the distinct keys of a shard.
        run_id: The run that the models are of.

    Raises:
        InputError: Some models have no row to be compared on.
    """
    shards = {shard.number: shard for shard in sharded.shards}
    missing: list[str] = []
    for number, table in models.items():
        wanted = table["partition_id"].to_pylist()
        here: set[str] = set()
        if number in shards:
            here = set(partition_ids(read_keys(shards[number]), sharded.key_columns))
        missing += [name for name in wanted if name not in here]
    if missing:
        total = sum(table.num_rows for table in models.values())
        raise InputError(
            f"The data has no rows for {len(missing):,} of the {total:,} models of the run "
            f"{run_id!r}, such as {', '.join(sorted(missing)[:_SHOWN])}; a model is compared with "
            "its export on rows: pass data= that has some of each."
        )
