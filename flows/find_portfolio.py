"""The flow that finds the few settings of a trainer that together do best on all partitions."""

from typing import Annotated, Any

from pydantic import Field, WithJsonSchema

from partwise.engine.options import ExecutionOptions
from partwise.evaluation import Evaluation, HoldoutFraction
from partwise.evaluation.scores import Direction
from partwise.flows.orchestration.run_flow import run_flow
from partwise.flows.running.connections import open_data
from partwise.flows.running.earlier_call import earlier_keys
from partwise.flows.running.execute_shards import execute
from partwise.flows.running.parameters import (
    DEFAULT_EXECUTION,
    ClusterParameter,
    ColumnsParameter,
    DataParameter,
    FilterParameter,
    FunctionParameter,
    MetricParameter,
    ParamsParameter,
    PartitionBy,
    SearchedTrainerParameter,
    StoreParameter,
    VersionParameter,
)
from partwise.flows.running.prepare import Request
from partwise.flows.running.prepare_portfolio import (
    pick_portfolio,
    prepare_portfolio,
    settings_to_score,
)
from partwise.runs.claim import OnExisting
from partwise.runs.run import Run
from partwise.shuffle.write import NullKeys
from partwise.sources.opening import open_source
from partwise.tasks.steps import run_logger
from partwise.tuning.sampler import SamplerName

_HOLDOUT = HoldoutFraction()
Count = Annotated[int, Field(ge=1)]
Several = Annotated[int, Field(ge=2)]


@run_flow(name="find-portfolio", kind="find-portfolio", opaque=("data", "params"))
def find_portfolio(
    data: DataParameter,
    partition_by: PartitionBy,
    trainer: SearchedTrainerParameter,
    space: Annotated[Any, WithJsonSchema({"type": "object"})],
    *,
    sample: Count = 200,
    trials: Several = 100,
    size: Count = 8,
    metric: MetricParameter = "",
    direction: Direction = "",
    holdout: Evaluation = _HOLDOUT,
    sampler: SamplerName = "random",
    label: str = "",
    predict: FunctionParameter = "",
    run_id: str = "",
    store: StoreParameter = "artifacts",
    params: ParamsParameter = "",
    filter: FilterParameter = (),  # noqa: A002 (the word of every reader of tables)
    columns: ColumnsParameter = (),
    null_keys: NullKeys = "error",
    seed: int = 0,
    version: VersionParameter = "",
    on_existing_artifacts: OnExisting = "error",
    execution: ExecutionOptions = DEFAULT_EXECUTION,
    cluster: ClusterParameter = "",
) -> Run:
    """Score the same settings on a sample of partitions, and pick the few that do best together.

    `Tuned(trainer, portfolio=run_id)` then tries just these on each of all partitions.

    Example:
        >>> run = find_portfolio("sales.parquet", "store", trainer, space)  # doctest: +SKIP
        >>> run.portfolio.settings  # doctest: +SKIP
        ({}, {'learning_rate': 0.03, 'num_leaves': 12})

    Args:
        data: Where the rows come from, as train_models takes them.
        partition_by: The key column, or a list of them. Rows of equal keys are a partition.
        trainer: Whose settings are tried, as Tuned takes it.
        space: What they are drawn from: parameters by name, each uniform, loguniform, randint,
            choice, grid or a constant; or a function of an Optuna trial, or its name.
        sample: On how many partitions, chosen by the hashes of their keys among those that have
            the trainer's fewest rows.
        trials: How many settings, the trainer's own included.
        size: How many are picked, the trainer's own included: fewer, if no others bring anything.
        metric: What tells better settings: a name. Empty: rmse, or logloss for classes. From Python
            also a function of (labels, predictions).
        direction: Which values are better, of a metric that is a function; empty: lower ones.
        holdout: The rows that settings are scored on.
        sampler: How settings are drawn: "random", or "grid" for all there are.
        label: Of a train function: the column that is predicted. Empty: the one that a dataset
            marks as its label.
        predict: Of a train function: the name of a function of (data, model, context) by which its
            models predict. Empty: as inference does. From Python also the function itself.
        run_id: A name for the run: letters, digits, "-" and "_". {scheduled:%Y-%m-%d} in it stands
            for the time at which the flow run was due, {scheduled[Europe/Amsterdam]:%Y-%m-%d} for
            that of a time zone. Empty: a name is made up.
        store: The artifact store: a folder, a URL such as s3://bucket/folder, an ArtifactStore
            block, or the name of one that is saved, such as artifact-store/prod.
        params: Parameters for single partitions, found in context.params: the path of a table with
            the key columns, or a mapping of key to mapping. From Python also the table.
        filter: Rows to keep: (column, op, value) tuples that must all hold, or lists of them.
        columns: Columns to read. None given: all.
        null_keys: What becomes of rows with a null key: "error", "drop", or "keep" as a partition.
        seed: The settings, and every partition's own seed, are derived from it.
        version: Your own word for the version of your code, which a resume compares in place of
            looking at the code.
        on_existing_artifacts: When the run exists: "error", "overwrite" all of it, or "resume":
            keep the partitions whose rows, code, settings and params are those of a finished one.
        execution: Retries, limits, failure budget, shards.
        cluster: The Dask cluster: a LocalCluster (the default), CudaCluster, RemoteCluster or
            CustomCluster block, the name of one that is saved, such as cuda-cluster/big, or a
            scheduler's address.

    Returns:
        The run. `run.portfolio` has the settings, and `run.predictions()` all scores: a row for
        each partition and setting.

    Raises:
        InputError: An argument cannot be used; nothing was written.
        RunExistsError: The run exists, and on_existing_artifacts is "error".
        RunFailed: No partition was done, or the failure budget was exceeded; carries the run.
        RunCancelled: The run was cancelled; what was committed is kept.
    """
    tuned = settings_to_score(
        trainer,
        space,
        trials=trials,
        sampler=sampler,
        seed=seed,
        metric=metric,
        direction=direction,
        holdout=holdout,
        label=label,
        predict=predict,
    )
    plan = prepare_portfolio(
        open_source(open_data(data, store), columns=columns or None, filter=filter or None),
        partition_by,
        tuned,
        Request(
            run_id=run_id,
            execution=execution,
            on_existing=on_existing_artifacts,
            version=version,
            seed=seed,
            params=params,
            null_keys=null_keys,
            earlier_keys=earlier_keys(run_id, store),
        ),
        {
            "trainer": trainer,
            "space": space,
            "sample": sample,
            "trials": trials,
            "size": size,
            "metric": metric,
            "direction": direction,
            "holdout": holdout,
            "sampler": sampler,
            # Left out where they say nothing, so that an older run is still known by its call.
            **({"label": label} if label else {}),
            **({"predict": predict} if predict else {}),
        },
        sample,
    )
    run = execute(plan, store, cluster)
    portfolio = pick_portfolio(run, tuned, size)
    if portfolio is not None:
        run_logger().info(
            "Run %s: %d of %d settings picked, which leave %.0f%% of the regret of the trainer's "
            "own, on %d partitions.",
            run.run_id,
            len(portfolio.settings),
            portfolio.tried,
            100 * portfolio.regrets[-1] / (portfolio.regrets[0] or 1),
            portfolio.partitions,
        )
    return run
