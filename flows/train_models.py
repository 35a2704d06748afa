"""The flow that trains one model per partition."""

from partwise.engine.options import ExecutionOptions
from partwise.environments.environment import DEFAULT_ENVIRONMENT, Environment
from partwise.flows.orchestration.run_flow import run_flow
from partwise.flows.running.connections import open_data
from partwise.flows.running.earlier_call import earlier_keys
from partwise.flows.running.environments import resolve_packages
from partwise.flows.running.execute_shards import execute
from partwise.flows.running.parameters import (
    DEFAULT_EXECUTION,
    ClusterParameter,
    ColumnsParameter,
    DataParameter,
    FilterParameter,
    InputFilesParameter,
    ParamsParameter,
    PartitionBy,
    SerdeParameter,
    StoreParameter,
    TrainerParameter,
    VersionParameter,
)
from partwise.flows.running.prepare import Request, prepare_training
from partwise.flows.running.prepare_portfolio import with_portfolio
from partwise.runs.claim import OnExisting
from partwise.runs.run import Run
from partwise.shuffle.write import NullKeys
from partwise.sources.opening import open_source


@run_flow(name="train-models", kind="train", opaque=("data", "params"))
def train_models(
    data: DataParameter,
    partition_by: PartitionBy,
    trainer: TrainerParameter,
    *,
    run_id: str = "",
    store: StoreParameter = "artifacts",
    serde: SerdeParameter = "",
    params: ParamsParameter = "",
    filter: FilterParameter = (),  # noqa: A002 (the word of every reader of tables)
    columns: ColumnsParameter = (),
    null_keys: NullKeys = "error",
    inputs: InputFilesParameter = (),
    environment: Environment = DEFAULT_ENVIRONMENT,
    seed: int = 0,
    version: VersionParameter = "",
    on_existing_artifacts: OnExisting = "error",
    execution: ExecutionOptions = DEFAULT_EXECUTION,
    cluster: ClusterParameter = "",
) -> Run:
    """Train one model per partition, and keep them as a run.

    Example:
        >>> run = train_models("sales.parquet", "store", LightGBMTrainer(label="sales"))
        >>> run.partitions.to_pandas()  # doctest: +SKIP

    Args:
        data: Where the rows come from: a file, glob, folder or URL of Parquet, CSV, Excel, JSON
            lines, ORC or Arrow; a dataset, dataset://sales@3; Files; the name of a FileSource or
            SqlSource block, such as sql-source/shop; or a list of these. From Python also a Query,
            a block, and a table, frame or stream of pyarrow, pandas, polars, DuckDB or Dask.
        partition_by: The key column, or a list of them. Rows of equal keys are a partition.
        trainer: A trainer with its settings, or "package.module:function": a function of (data:
            DataConnector, context: PartitionContext) returning a model, Result or Skip. From Python
            also the function itself.
        run_id: A name for the run: letters, digits, "-" and "_". {scheduled:%Y-%m-%d} in it stands
            for the time at which the flow run was due, {scheduled[Europe/Amsterdam]:%Y-%m-%d} for
            that of a time zone. Empty: a name is made up.
        store: The artifact store: a folder, a URL such as s3://bucket/folder, an ArtifactStore
            block, or the name of one that is saved, such as artifact-store/prod.
        serde: How models become files: the name of a built-in serde such as "pickle". Empty: the
            native format of each model's library. From Python also a serde.
        params: Parameters for single partitions, found in context.params: the path of a table with
            the key columns, or a mapping of key to mapping. From Python also the table.
        filter: Rows to keep: (column, op, value) tuples that must all hold, or lists of them.
        columns: Columns to read. None given: all.
        null_keys: What becomes of rows with a null key: "error", "drop", or "keep" as a partition.
        inputs: Files that the function reads besides its rows: paths, folders, globs or URLs. A
            resume runs all again when the checksum of one has changed; of files that are not named
            here it knows nothing.
        environment: Packages of the function's own, before those of the workers: resolved with uv
            on this machine, built once on each worker's. A resume goes on with the versions that
            the run has, and runs all again when a package has changed. Empty: there are none.
        seed: Every partition's own seed is derived from this one and its key.
        version: Your own word for the version of your code, which a resume compares in place of
            looking at the code.
        on_existing_artifacts: When the run exists: "error", "overwrite" all of it, or "resume":
            keep the partitions whose rows, code, settings and params are those of a finished one.
        execution: Retries, limits, failure budget, shards.
        cluster: The Dask cluster: a LocalCluster (the default), CudaCluster, RemoteCluster or
            CustomCluster block, the name of one that is saved, such as cuda-cluster/big, or a
            scheduler's address.

    Returns:
        The run. Its status is SUCCESS, PARTIAL_FAILURE or SKIPPED.

    Raises:
        InputError: An argument cannot be used; nothing was written.
        PackageError: The environment cannot be resolved; has the resolver's own words.
        EnvironmentBuildError: It cannot be built on a worker.
        RunExistsError: The run exists, and on_existing_artifacts is "error".
        RunFailed: No partition was done, or the failure budget was exceeded; carries the run.
        RunCancelled: The run was cancelled; what was committed is kept.
    """
    plan = prepare_training(
        open_source(open_data(data, store), columns=columns or None, filter=filter or None),
        partition_by,
        with_portfolio(trainer, store),
        Request(
            run_id=run_id,
            execution=execution,
            on_existing=on_existing_artifacts,
            version=version,
            seed=seed,
            params=params,
            null_keys=null_keys,
            earlier_keys=earlier_keys(run_id, store),
            inputs=inputs or (),
            environment=environment,
            packages=resolve_packages(environment, run_id, store, on_existing_artifacts),
        ),
        serde=serde,
    )
    return execute(plan, store, cluster)
