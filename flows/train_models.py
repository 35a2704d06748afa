"""The flow that trains one model per partition."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from partwise.blocks import ArtifactStore
from partwise.flows.calls import describe_intent
from partwise.flows.execution import DEFAULT_EXECUTION, Cluster, NullKeys, Plan, execute
from partwise.flows.run_flow import run_flow
from partwise.tasks.data.filters import Filter
from partwise.tasks.data.keys import key_columns
from partwise.tasks.data.sources import open_source
from partwise.tasks.partitions import ExecutionOptions
from partwise.tasks.runs import Run
from partwise.tasks.runs.claim import Identity, OnExisting
from partwise.tasks.serdes import ModelSerde
from partwise.tasks.train_partitions import plan_training, train_partitions
from partwise.tasks.trainers import LightGBMTrainer, XGBoostTrainer


@run_flow(name="train-models", kind="train", opaque=("data", "params"))
def train_models(
    data: Any,
    partition_by: str | Sequence[str],
    trainer: LightGBMTrainer | XGBoostTrainer | str | Callable[..., Any],
    *,
    run_id: str = "",
    store: ArtifactStore | str | Path = "artifacts",
    serde: ModelSerde | None = None,
    params: Any = None,
    filter: Filter | None = None,  # noqa: A002 (the word of every reader of tables)
    columns: list[str] | None = None,
    null_keys: NullKeys = "error",
    seed: int = 0,
    version: str | None = None,
    on_existing_artifacts: OnExisting = "error",
    execution: ExecutionOptions = DEFAULT_EXECUTION,
    cluster: Cluster | None = None,
) -> Run:
    """Train one model per partition, and keep them as a run.

    Example:
        >>> run = train_models("sales.parquet", "store", LightGBMTrainer(label="sales"))
        >>> run.partitions.to_pandas()  # doctest: +SKIP

    Args:
        data: Where the rows come from: a Parquet, CSV or Arrow IPC file, glob, folder or URL; a
            pyarrow Table; a pandas or polars frame; or a list of these.
        partition_by: The key column, or a list of them. Rows of equal keys are a partition.
        trainer: A trainer with its settings, "package.module:function", or a function of
            (data: DataConnector, context: PartitionContext) returning a model, Result or Skip.
        run_id: A name for the run: letters, digits, "-" and "_". Empty: one is made up.
        store: The artifact store: a folder, a URL such as s3://bucket/folder, or a block.
        serde: How models become files. None: the native format of each model's library.
        params: Parameters for single partitions, found in context.params: a table with the key
            columns, or a mapping of key to mapping.
        filter: Rows to keep: (column, op, value) tuples that must all hold, or lists of them.
        columns: Columns to read. None: all.
        null_keys: What becomes of rows with a null key: "error", "drop", or "keep" as a partition.
        seed: Every partition's own seed is derived from this one and its key.
        version: Your own word for the version of your code, which a resume compares in place of
            looking at the code.
        on_existing_artifacts: When the run exists: "error", "overwrite" all of it, or "resume":
            keep the partitions whose rows, code, settings and params are those of a finished one.
        execution: Retries, limits, failure budget, shards.
        cluster: The Dask cluster: a LocalCluster (the default), CudaCluster or RemoteCluster.

    Returns:
        The run. Its status is SUCCESS or PARTIAL_FAILURE.

    Raises:
        InputError: An argument cannot be used; nothing was written.
        RunExistsError: The run exists, and on_existing_artifacts is "error".
        RunFailed: No partition was done, or the failure budget was exceeded; carries the run.
        RunCancelled: The run was cancelled; what was committed is kept.
    """
    source = open_source(data, columns=columns, filter=filter)
    names = [partition_by] if isinstance(partition_by, str) else list(partition_by)
    keys = key_columns(source.schema, names)
    work = plan_training(trainer, serde, source.schema, keys)
    intent = describe_intent(
        "train_models",
        source.description(),
        {
            "partition_by": names,
            "trainer": trainer,
            "serde": serde,
            "params": params,
            "null_keys": null_keys,
            "seed": seed,
            "execution": execution,
        },
        version,
    )
    plan = Plan(
        identity=Identity(run_id=run_id, kind="train", key_columns=keys),
        store=store,
        source=source,
        work=work,
        function=work.function,
        intent=intent,
        seed=seed,
        params=params,
        null_keys=null_keys,
        on_existing=on_existing_artifacts,
        options=execution,
        cluster=cluster,
    )
    return execute(plan, train_partitions)
