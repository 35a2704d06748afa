"""The flow that trains one model on all rows, by ranks that work together."""

from partwise.engine.options import ExecutionOptions
from partwise.engine.scaling import ScalingConfig
from partwise.environments.environment import DEFAULT_ENVIRONMENT, Environment
from partwise.flows.orchestration.run_flow import run_flow
from partwise.flows.running.connections import open_data
from partwise.flows.running.environments import resolve_packages
from partwise.flows.running.execute_gang import execute_gang
from partwise.flows.running.parameters import (
    DEFAULT_GANG,
    DEFAULT_SCALING,
    NONE_GIVEN,
    ClusterParameter,
    ColumnsParameter,
    DataParameter,
    DistributedTrainerParameter,
    EvalDataParameter,
    FilterParameter,
    HyperparametersParameter,
    SerdeParameter,
    StoreParameter,
    VersionParameter,
)
from partwise.flows.running.prepare import Request
from partwise.flows.running.prepare_gang import prepare_gang
from partwise.gangs.options import GangOptions
from partwise.runs.claim import OnExisting
from partwise.runs.run import Run
from partwise.sources.opening import open_source


@run_flow(name="train-distributed", kind="train-distributed", opaque=("data", "eval_data"))
def train_distributed(
    data: DataParameter,
    trainer: DistributedTrainerParameter,
    *,
    eval_data: EvalDataParameter = NONE_GIVEN,
    run_id: str = "",
    store: StoreParameter = "artifacts",
    serde: SerdeParameter = "",
    scaling: ScalingConfig = DEFAULT_SCALING,
    hyperparameters: HyperparametersParameter = NONE_GIVEN,
    filter: FilterParameter = (),  # noqa: A002 (the word of every reader of tables)
    columns: ColumnsParameter = (),
    seed: int = 0,
    resume_from: str = "",
    version: VersionParameter = "",
    on_existing_artifacts: OnExisting = "error",
    gang: GangOptions = DEFAULT_GANG,
    environment: Environment = DEFAULT_ENVIRONMENT,
    cluster: ClusterParameter = "",
) -> Run:
    """Train one model on all rows, by as many ranks as the cluster has room for.

    The ranks start together or not at all, each in a process of its own. When one fails, all end,
    and nothing of them counts. The run has a partition for each rank, with its log and metrics.

    Example:
        >>> trainer = DistributedXGBoost(label="sales", rounds=50)
        >>> run = train_distributed("sales.parquet", trainer, run_id="one")  # doctest: +SKIP
        >>> run.model().num_boosted_rounds()  # doctest: +SKIP
        50

    Args:
        data: Where the rows come from: a file, glob, folder or URL of Parquet, CSV, Excel, JSON
            lines, ORC or Arrow; a dataset, dataset://sales@3; Files; the name of a FileSource or
            SqlSource block, such as sql-source/shop; or a list of these. From Python also a Query,
            a block, and a table, frame or stream of pyarrow, pandas, polars, DuckDB or Dask.
        trainer: DistributedXGBoost or DistributedLightGBM with its settings, or
            "package.module:function": a function of (context: RankContext), which each rank calls;
            what it returns on rank 0 is the model, a Result or a Skip. From Python also the
            function itself, and a TorchDistributor.
        eval_data: Rows to measure the model on, by a name of yours: a mapping of name to data. A
            function finds them as `context.rows(name)`.
        run_id: A name for the run: letters, digits, "-" and "_". {scheduled:%Y-%m-%d} in it stands
            for the time at which the flow run was due, {scheduled[Europe/Amsterdam]:%Y-%m-%d} for
            that of a time zone. Empty: a name is made up.
        store: The artifact store: a folder, a URL such as s3://bucket/folder, an ArtifactStore
            block, or the name of one that is saved, such as artifact-store/prod.
        serde: How the model becomes a file: the name of a built-in serde such as "pickle". Empty:
            the native format of the model's library. From Python also a serde.
        scaling: How many ranks work on the model, and what each may use.
        hyperparameters: Values by name, which a function finds as `context.hyperparameters`.
        filter: Rows to keep of the data, not of eval_data: (column, op, value) tuples that must all
            hold, or lists of them.
        columns: Columns to read of the data. None given: all.
        seed: All ranks have it as `context.seed`.
        resume_from: Another run of the store, or a folder or URL, with a checkpoint that the ranks
            begin with, where the run has none of its own.
        version: Your own word for the version of your code, which a resume compares in place of
            looking at the code.
        on_existing_artifacts: When the run exists: "error", "overwrite" it, or "resume": do nothing
            where it has a model of the same rows, code and settings, and else begin again, from the
            last checkpoint where there is one.
        gang: Time limit, grace, restarts.
        environment: Packages of the ranks' own, before those of the workers: resolved with uv on
            this machine, built once on each worker's. Empty: the workers' own.
        cluster: The Dask cluster: a LocalCluster (the default), CudaCluster, RemoteCluster or
            CustomCluster block, the name of one that is saved, such as cuda-cluster/big, or a
            scheduler's address.

    Returns:
        The run. Its status is SUCCESS, or SKIPPED where rank 0 declined to make a model.

    Raises:
        PackageError: The environment cannot be resolved; has the resolver's own words.
        EnvironmentBuildError: A worker's machine cannot build the environment.
        InputError: An argument cannot be used, or the cluster has no room for the ranks; nothing
            was written.
        RunExistsError: The run exists, and on_existing_artifacts is "error".
        RunFailed: A rank failed, or its time ran out; carries the run.
        RunCancelled: The run was cancelled.
        ClusterError: Workers stayed busy for too long, or the cluster is gone.
    """
    plan = prepare_gang(
        open_source(open_data(data, store), columns=columns or None, filter=filter or None),
        {name: open_source(open_data(each, store)) for name, each in dict(eval_data).items()},
        trainer,
        Request(
            run_id=run_id,
            execution=ExecutionOptions(),
            on_existing=on_existing_artifacts,
            version=version,
            seed=seed,
            environment=environment,
            packages=resolve_packages(environment, run_id, store, on_existing_artifacts),
        ),
        serde=serde,
        scaling=scaling,
        options=gang,
        hyperparameters=hyperparameters,
        resume_from=resume_from,
    )
    return execute_gang(plan, store, cluster)
