"""The flow that tunes one model on all rows, by trials side by side on the cluster."""

from partwise.engine.options import ExecutionOptions
from partwise.engine.scaling import ScalingConfig
from partwise.evaluation import Evaluation, FitOn
from partwise.evaluation.scores import Direction
from partwise.flows.orchestration.run_flow import run_flow
from partwise.flows.running.connections import open_data
from partwise.flows.running.execute_study import execute_study
from partwise.flows.running.parameters import (
    DEFAULT_EXECUTION,
    DEFAULT_SCALING,
    NONE_GIVEN,
    ClusterParameter,
    ColumnsParameter,
    DataParameter,
    EvalDataParameter,
    FilterParameter,
    InputFilesParameter,
    MetricParameter,
    Nothing,
    SerdeParameter,
    SpaceParameter,
    StoreParameter,
    StudyTrainerParameter,
    VersionParameter,
)
from partwise.flows.running.prepare import Request
from partwise.flows.running.prepare_study import DEFAULT_HOLDOUT, Scoring, prepare_study
from partwise.runs.claim import OnExisting
from partwise.runs.run import Run
from partwise.sources.opening import open_source
from partwise.studies.driver import Stopping
from partwise.tuning.pruner import PrunerName
from partwise.tuning.sampler import SamplerName


@run_flow(name="tune-model", kind="tune", opaque=("data", "eval_data"))
def tune_model(
    data: DataParameter,
    trainer: StudyTrainerParameter,
    space: SpaceParameter,
    *,
    metric: MetricParameter = "",
    direction: Direction = "",
    trials: int = 50,
    timeout_s: float | Nothing = None,
    patience: int | Nothing = None,
    max_concurrent: int | Nothing = None,
    sampler: SamplerName = "tpe",
    pruner: PrunerName = "none",
    holdout: Evaluation = DEFAULT_HOLDOUT,
    fit_on: FitOn = "auto",
    scaling: ScalingConfig = DEFAULT_SCALING,
    eval_data: EvalDataParameter = NONE_GIVEN,
    run_id: str = "",
    store: StoreParameter = "artifacts",
    serde: SerdeParameter = "",
    inputs: InputFilesParameter = (),
    filter: FilterParameter = (),  # noqa: A002 (the word of every reader of tables)
    columns: ColumnsParameter = (),
    seed: int = 0,
    version: VersionParameter = "",
    on_existing_artifacts: OnExisting = "error",
    execution: ExecutionOptions = DEFAULT_EXECUTION,
    cluster: ClusterParameter = "",
) -> Run:
    """Try settings of one model on all rows, side by side, and keep the model of each trial.

    A trial is what a partition is elsewhere: it runs in a process of its own, within the limits of
    `execution`, is tried again when it fails, and has a row in `run.partitions`. `run.trials` has
    what each tried; `run.best` is the best one, and `run.model()` its model, as is that of an
    inference with this run's ID.

    Example:
        >>> space = {"learning_rate": loguniform(0.01, 0.3), "num_leaves": randint(4, 64)}
        >>> run = tune_model("sales.parquet", trainer, space, trials=64)  # doctest: +SKIP
        >>> run.best.settings  # doctest: +SKIP
        {'learning_rate': 0.07, 'num_leaves': 23}

    Args:
        data: Where the rows come from: a file, glob, folder or URL of Parquet, CSV, Excel, JSON
            lines, ORC or Arrow; a dataset, dataset://sales@3; Files; the name of a FileSource or
            SqlSource block, such as sql-source/shop; or a list of these. From Python also a Query,
            a block, and a table, frame or stream of pyarrow, pandas, polars, DuckDB or Dask.
        trainer: LightGBMTrainer or XGBoostTrainer, whose parameters are tuned;
            "package.module:function": a function of (data: DataConnector, context:
            PartitionContext), which finds the settings in context.params, returns a Result with the
            metric, and may call context.report(step=, metric=). Or DistributedXGBoost or
            DistributedLightGBM, or with `scaling` a function of a rank's context, which finds the
            settings in context.hyperparameters: then a gang of ranks trains each trial. From Python
            also the function itself, and a TorchDistributor.
        space: Parameters by name: uniform, loguniform, randint, choice, grid, or a constant each;
            or a function of an Optuna trial that returns settings by name, or its name.
        metric: What tells better settings: a name, or that of a function of (labels, predictions).
            Empty: rmse, or logloss for classes. Of a train function: the name of one of the metrics
            that it returns. From Python also the function itself.
        direction: Which values are better; empty: as the name says, and else lower ones.
        trials: How many settings are tried.
        timeout_s: Seconds after which no other trial begins.
        patience: No other trial begins when so many in a row were no better than the best.
        max_concurrent: Trials that run at once, at most. Default: as many as the cluster has room
            for, with the CPUs and GPUs of a partition in `execution`.
        sampler: "tpe", "random", "grid" (all there are), or "gp" (needs torch and scipy).
        pruner: Which trials are given up, by what they report: "none", "median", "percentile",
            "halving" or "hyperband".
        holdout: The rows that a built-in trainer is scored on: the same for all trials.
        fit_on: The rows that the kept model of a built-in trainer is trained on.
        scaling: How many ranks train a trial together, and what each may use. Where num_workers is
            given, trials run side by side as far as the cluster has room.
        eval_data: More rows for such ranks, by name: the model of a distributed trainer is measured
            on each of them.
        run_id: A name for the run: letters, digits, "-" and "_". {scheduled:%Y-%m-%d} in it stands
            for the time at which the flow run was due, {scheduled[Europe/Amsterdam]:%Y-%m-%d} for
            that of a time zone. Empty: a name is made up.
        store: The artifact store: a folder, a URL such as s3://bucket/folder, an ArtifactStore
            block, or the name of one that is saved, such as artifact-store/prod.
        serde: How models become files: the name of a built-in serde such as "pickle". Empty: the
            native format of the model's library. From Python also a serde.
        inputs: Paths or URLs of files that the function reads besides the rows: a resume begins a
            new study when one of them has changed.
        filter: Rows to keep: (column, op, value) tuples that must all hold, or lists of them.
        columns: Columns to read. None given: all.
        seed: What is tried follows from it, where trials run one at a time; all trials have it.
        version: Your own word for the version of your code, which a resume compares in place of
            looking at the code.
        on_existing_artifacts: When the run exists: "error", "overwrite" it, or "resume": keep the
            trials of the same rows, code and space, tell the sampler of them, and run the rest.
        execution: Retries, limits, and what each trial may use.
        cluster: The Dask cluster: a LocalCluster (the default), CudaCluster, RemoteCluster or
            CustomCluster block, the name of one that is saved, such as cuda-cluster/big, or a
            scheduler's address.

    Returns:
        The run. Its status is SUCCESS, PARTIAL_FAILURE where trials failed, or SKIPPED.

    Raises:
        InputError: An argument cannot be used, or the cluster has no room for the ranks of a trial;
            nothing was written.
        RunExistsError: The run exists, and on_existing_artifacts is "error".
        RunFailed: All trials failed, or the failure budget was exceeded; carries the run.
        RunCancelled: The run was cancelled; what was committed is kept.
        ClusterError: The cluster is gone.
    """
    plan = prepare_study(
        open_source(open_data(data, store), columns=columns or None, filter=filter or None),
        trainer,
        space,
        Request(
            run_id=run_id,
            execution=execution,
            on_existing=on_existing_artifacts,
            version=version,
            seed=seed,
            inputs=inputs or (),
        ),
        Scoring(metric=metric, direction=direction, holdout=holdout, fit_on=fit_on),
        Stopping(trials=trials, timeout_s=timeout_s, patience=patience),
        sampler=sampler,
        pruner=pruner,
        max_concurrent=max_concurrent,
        serde=serde,
        scaling=scaling,
        eval_sources={
            name: open_source(open_data(each, store)) for name, each in dict(eval_data).items()
        },
    )
    return execute_study(plan, store, cluster)
