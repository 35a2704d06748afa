"""The flow that infers every partition with its trained model."""

from typing import Literal

from partwise.engine.options import ExecutionOptions
from partwise.environments.environment import DEFAULT_ENVIRONMENT, Environment
from partwise.errors import InputError
from partwise.flows.orchestration.run_flow import run_flow
from partwise.flows.running.connections import open_data, open_output, open_store
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
    OutputParameter,
    ParamsParameter,
    PartitionBy,
    PredictParameter,
    SerdeParameter,
    StoreParameter,
    VersionParameter,
)
from partwise.flows.running.prepare import Request, prepare_inference
from partwise.models.export_options import ModelFormat
from partwise.runs.claim import OnExisting
from partwise.runs.exports import find_exports
from partwise.runs.run import Run
from partwise.shuffle.write import NullKeys
from partwise.sources.opening import open_source
from partwise.tasks.publish_rows import with_output


@run_flow(name="run-inference", kind="infer", opaque=("data", "params", "output"))
def run_inference(
    data: DataParameter,
    partition_by: PartitionBy = (),
    training_run_id: str = "",
    predict: PredictParameter = "",
    *,
    model_format: ModelFormat = "native",
    run_id: str = "",
    store: StoreParameter = "artifacts",
    serde: SerdeParameter = "",
    keep_columns: ColumnsParameter = (),
    on_missing_model: Literal["fail", "skip"] = "fail",
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
    output: OutputParameter = "",
) -> Run:
    """Infer every partition with its own model of a training run, and keep the predictions.

    A partition without a model is FAILED with ModelNotFound, alone. Predictions are Parquet files
    in the run's folder `predictions`, the key columns first.

    Example:
        >>> run = run_inference("new.parquet", "store", training_run_id="sales-1")  # doctest: +SKIP
        >>> run.predictions().to_pandas()  # doctest: +SKIP

    Args:
        data: Where the rows come from: a file, glob, folder or URL of Parquet, CSV, Excel, JSON
            lines, ORC or Arrow; a dataset, dataset://sales@3; Files; the name of a FileSource or
            SqlSource block, such as sql-source/shop; or a list of these. From Python also a Query,
            a block, and a table, frame or stream of pyarrow, pandas, polars, DuckDB or Dask.
        partition_by: The key column, or a list of them. Rows of equal keys are a partition. Of a
            run of train_distributed all have the one model, and none need be named: then blocks
            of rows are partitions, and the column "block" tells them apart.
        training_run_id: The run of train_models or train_distributed, in the same store, whose
            models are used; with a model_format, the run of export_models, or the training run
            where it was exported once in that format. The scheduled time can stand in it as in
            run_id.
        predict: "package.module:function": a function of (data: DataConnector, model, context:
            PartitionContext) that returns rows: an array, a frame, a mapping of columns, a Result
            of one of these, or a Skip. Empty: the model's own prediction, as "prediction". From
            Python also the function itself.
        model_format: "native": the models of the run that is named, as they are. "onnx": exports of
            them, by onnxruntime in place of the training library; "torchscript" and "pt2"
            likewise, by PyTorch.
        run_id: A name for the run: letters, digits, "-" and "_". {scheduled:%Y-%m-%d} in it stands
            for the time at which the flow run was due, {scheduled[Europe/Amsterdam]:%Y-%m-%d} for
            that of a time zone. Empty: a name is made up.
        store: The artifact store: a folder, a URL such as s3://bucket/folder, an ArtifactStore
            block, or the name of one that is saved, such as artifact-store/prod.
        serde: Reads models that no native serde wrote: the name of a built-in one. "pickle", "pt2",
            "torchscript" and "neuron" run code, so they are read only if they are named here or as
            `model_format`. From Python also a serde.
        keep_columns: Columns of the rows to keep beside the predictions, such as a date.
        on_missing_model: What becomes of a partition without a model: "fail", or "skip".
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
        output: Where the rows go as well when the run is complete, each partition exactly once.
            A table to which they are appended with their run_id and partition_id, made where there
            is none: a SqlTable block, or the name of one that is saved, such as sql-table/prod. Or
            a dataset of the store, of which they become a version: dataset://forecasts.

    Returns:
        The run. Its status is SUCCESS, PARTIAL_FAILURE or SKIPPED.

    Raises:
        InputError: An argument cannot be used; nothing was written.
        PackageError: The environment cannot be resolved; has the resolver's own words.
        EnvironmentBuildError: It cannot be built on a worker.
        RunNotFoundError: There is no such training run, or no export of it.
        RunExistsError: The run exists, and on_existing_artifacts is "error".
        RunFailed: No partition was done, or the failure budget was exceeded; carries the run.
        RunCancelled: The run was cancelled; what was committed is kept.
        OutputError: The run is complete, but its rows are not all in the table.
    """
    if not training_run_id:
        raise InputError("training_run_id is missing: name the run whose models are used.")
    destination = open_output(output)
    named = Run.open(training_run_id, open_store(store))
    plan = prepare_inference(
        open_source(open_data(data, store), columns=columns or None, filter=filter or None),
        partition_by,
        named if model_format == "native" else find_exports(named, model_format),
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
        predict=predict,
        model_format=model_format,
        serde=serde,
        keep_columns=keep_columns or (),
        on_missing_model=on_missing_model,
        output=destination,
    )
    return with_output(execute(plan, store, cluster), destination, execution)
