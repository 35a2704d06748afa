"""The validation step: prove published exports again, from the store."""

from collections.abc import Sequence

import pyarrow as pa
from prefect import task
from prefect.cache_policies import NO_CACHE
from prefect.logging import get_run_logger

from partwise.engine.assignment import ShardReceipt
from partwise.engine.driver import Driver, ShardGroup
from partwise.engine.trained_models import models_by_shard
from partwise.errors import ModelNotFound
from partwise.exports.works import Proof, ValidateWork
from partwise.models.serdes import ModelSerde
from partwise.runs.run import Run
from partwise.tables.keys.partition_keys import KeyColumn, check_key_classes
from partwise.tasks.export_models import check_serdes


@task(
    name="validate-exports",
    task_run_name="validate {group}",
    cache_policy=NO_CACHE,
    persist_result=False,
)
def validate_exports(group: ShardGroup, driver: Driver) -> list[ShardReceipt]:
    """Validate the exports of some shards on the cluster, and wait for them."""
    return driver.run_shards(group.numbers, get_run_logger())


def plan_validation(
    exports: Run,
    training: Run,
    key_columns: Sequence[KeyColumn],
    proof: Proof,
    serde: ModelSerde | None,
) -> tuple[ValidateWork, dict[int, pa.Table]]:
    """Return the work of a validation run, and where the exports of each shard are.

    Raises:
        KeyClassError: A key column of the rows has another class than in the export run.
        ModelNotFound: The export run has published nothing.
        SerdeError: The trained models need a serde that was not given.
    """
    check_key_classes(exports.key_columns, key_columns, f"the export run {exports.run_id!r}")
    models = models_by_shard(exports.ledger)
    if not models:
        raise ModelNotFound(
            f"The export run {exports.run_id!r} ({exports.status.value}) has published nothing; "
            f"partwise runs show {exports.run_id} --failures says why."
        )
    check_serdes(models_by_shard(training.ledger), serde)
    return ValidateWork(proof=proof, serde=serde, export_run_id=exports.run_id), models
