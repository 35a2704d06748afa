"""The flow from rows to proved exports and their predictions: four runs under one name."""

from typing import Any

from prefect.runtime import flow_run

from partwise.engine.options import ExecutionOptions
from partwise.flows.export_models import export_models
from partwise.flows.orchestration.run_flow import run_flow
from partwise.flows.run_inference import run_inference
from partwise.flows.running.connections import open_data
from partwise.flows.running.earlier_call import earlier_keys
from partwise.flows.running.parameters import (
    DEFAULT_EXECUTION,
    DEFAULT_EXPORT,
    DEFAULT_VALIDATION,
    ClusterParameter,
    ColumnsParameter,
    DataParameter,
    ExporterParameter,
    FilterParameter,
    InputFilesParameter,
    InputsParameter,
    ParamsParameter,
    PartitionBy,
    PredictParameter,
    SerdeParameter,
    StoreParameter,
    TrainerParameter,
    VersionParameter,
)
from partwise.flows.running.refusals import check_inference, check_stages
from partwise.flows.train_models import train_models
from partwise.flows.validate_exports import validate_exports
from partwise.models.export_options import ExportOptions, ModelFormat, ValidationOptions
from partwise.runs.claim import OnExisting
from partwise.runs.pipeline import Pipeline, stage_run_id
from partwise.shuffle.write import NullKeys
from partwise.tasks.publish_pipeline import publish_pipeline
from partwise.tasks.steps import try_step


@run_flow(name="model-pipeline", kind="pipeline", opaque=("data", "inference_data", "params"))
def model_pipeline(
    data: DataParameter,
    partition_by: PartitionBy,
    trainer: TrainerParameter,
    *,
    run_id: str = "",
    store: StoreParameter = "artifacts",
    format: ModelFormat = "onnx",  # noqa: A002 (the word of every exporter)
    inputs: InputsParameter = "",
    exporter: ExporterParameter = "",
    options: ExportOptions = DEFAULT_EXPORT,
    validation: ValidationOptions = DEFAULT_VALIDATION,
    inference_data: DataParameter = "",
    predict: PredictParameter = "",
    keep_columns: ColumnsParameter = (),
    serde: SerdeParameter = "",
    params: ParamsParameter = "",
    filter: FilterParameter = (),  # noqa: A002 (the word of every reader of tables)
    columns: ColumnsParameter = (),
    null_keys: NullKeys = "error",
    input_files: InputFilesParameter = (),
    seed: int = 0,
    version: VersionParameter = "",
    on_existing_artifacts: OnExisting = "error",
    execution: ExecutionOptions = DEFAULT_EXECUTION,
    cluster: ClusterParameter = "",
) -> Pipeline:
    """Train a model per partition, export each, prove the files, and infer with them.

    Four runs, one after another: <run_id>-train, -export, -validate and -infer. A stage that does
    nothing, or exceeds the failure budget of `execution`, ends the pipeline. Called again with
    "resume", each stage runs only what is not done or has changed.

    Example:
        >>> trainer = LightGBMTrainer(label="sales")  # doctest: +SKIP
        >>> done = model_pipeline("sales.parquet", "store", trainer, run_id="mon")  # doctest: +SKIP
        >>> done.inference.predictions()  # doctest: +SKIP

    Args:
        data: Where the rows come from: a file, glob, folder or URL of Parquet, CSV, Excel, JSON
            lines, ORC or Arrow; a dataset, dataset://sales@3; Files; the name of a FileSource or
            SqlSource block, such as sql-source/shop; or a list of these. From Python also a Query,
            a block, and a table, frame or stream of pyarrow, pandas, polars, DuckDB or Dask.
        partition_by: The key column, or a list of them. Rows of equal keys are a partition.
        trainer: What trains: a trainer with its settings, or "package.module:function": a function
            of (data: DataConnector, context: PartitionContext). From Python also the function
            itself.
        run_id: A name for the pipeline, of which the names of its four runs are made: letters,
            digits, "-" and "_". {scheduled:%Y-%m-%d} in it stands for the time at which the flow
            run was due, {scheduled[Europe/Amsterdam]:%Y-%m-%d} for that of a time zone. Empty: a
            name is made up.
        store: The artifact store: a folder, a URL such as s3://bucket/folder, an ArtifactStore
            block, or the name of one that is saved, such as artifact-store/prod.
        format: What models are exported to: "onnx", "torchscript", "pt2", "native" or "neuron".
        inputs: For PyTorch modules: what makes their inputs of rows; see export_models.
        exporter: What writes models of your own kind; see export_models.
        options: Opset, inputs, precision, optimization of the exports.
        validation: Tolerances, how many rows.
        inference_data: The rows to infer with the exports. Empty: those trained on.
        predict: "package.module:function": a function of (data: DataConnector, model, context:
            PartitionContext); the model is the export. Empty: the model's own prediction. From
            Python also the function itself.
        keep_columns: Columns of the rows to keep beside the predictions, such as a date.
        serde: How models are written: the name of a built-in serde. Empty: the native one of the
            model's type. From Python also a serde.
        params: Parameters for single partitions, found in context.params: the path of a table with
            the key columns, or a mapping of key to mapping. From Python also the table.
        filter: Rows to train on: (column, op, value) tuples that must all hold, or lists of them.
        columns: Columns to read. None given: all.
        null_keys: What becomes of rows with a null key: "error", "drop", or "keep" as a partition.
        input_files: Files that `trainer` or `predict` reads besides its rows: paths, folders, globs
            or URLs. A resume trains and infers again when the checksum of one has changed.
        seed: Every partition's own seed is derived from this one and its key.
        version: Your own word for the version of your code, which a resume compares in place of
            looking at the code.
        on_existing_artifacts: When runs of these names exist: "error", "overwrite" or "resume".
        execution: Retries, limits, failure budget, shards; of each stage.
        cluster: The Dask cluster: a LocalCluster (the default), CudaCluster, RemoteCluster or
            CustomCluster block, the name of one that is saved, such as cuda-cluster/big, or a
            scheduler's address.

    Returns:
        The four runs. The status is PARTIAL_FAILURE where a partition failed in any, SKIPPED where
        a stage skipped all, else SUCCESS.

    Raises:
        InputError: An argument cannot be used.
        ExportRefused: The models of this trainer cannot be exported so.
        RunExistsError: A run of the pipeline exists, and on_existing_artifacts is "error".
        RunFailed: A stage did none of its partitions, or exceeded the failure budget; carries its
            run.
        RunCancelled: The pipeline was cancelled; what was committed is kept.
    """
    exporting: dict[str, Any] = {"format": format, "options": options}
    compared: dict[str, Any] = {"inputs": inputs, "exporter": exporter}
    check_stages(exporting | compared | {"trainer": trainer, "predict": predict})
    # All stages read the version of a dataset that is the newest now.
    data, inference_data = open_data(data, store), open_data(inference_data, store)
    no_data = isinstance(inference_data, str) and not inference_data
    given: dict[str, Any] = {"partition_by": partition_by, "keep_columns": keep_columns}
    given |= {"columns": columns, "filter": filter}
    earlier = earlier_keys(stage_run_id(run_id, "train"), store)
    check_inference(data, None if no_data else inference_data, earlier, given)
    # A flow run that is begun again goes on with its own runs.
    on_existing: OnExisting = "resume" if flow_run.run_count > 1 else on_existing_artifacts
    stages: dict[str, Any] = {
        "store": store,
        "serde": serde,
        "version": version,
        "on_existing_artifacts": on_existing,
        "execution": execution,
        "cluster": cluster,
    }
    trained = train_models(
        data,
        partition_by,
        trainer,
        run_id=stage_run_id(run_id, "train"),
        params=params,
        filter=filter,
        columns=columns,
        null_keys=null_keys,
        inputs=input_files,
        seed=seed,
        **stages,
    )
    compared |= {"data": data, "filter": filter, "validation": validation}
    exported = export_models(
        trained.run_id, run_id=stage_run_id(run_id, "export"), **exporting, **compared, **stages
    )
    compared["model_format"] = format
    proved = validate_exports(
        exported.run_id, run_id=stage_run_id(run_id, "validate"), **compared, **stages
    )
    inferred = run_inference(
        data if no_data else inference_data,
        partition_by,
        exported.run_id,
        predict,
        run_id=stage_run_id(run_id, "infer"),
        model_format=format,
        keep_columns=keep_columns,
        null_keys=null_keys,
        inputs=input_files,
        on_missing_model="skip",
        filter=filter if no_data else (),
        **stages,
    )
    done = Pipeline(
        run_id, training=trained, export=exported, validation=proved, inference=inferred
    )
    try_step(publish_pipeline, done)
    return done
