"""The flow that exports every model of a training run, and proves each file."""

from partwise.engine.options import ExecutionOptions
from partwise.flows.orchestration.run_flow import run_flow
from partwise.flows.running.connections import open_store
from partwise.flows.running.earlier_call import EarlierCall
from partwise.flows.running.execute_shards import execute
from partwise.flows.running.parameters import (
    DEFAULT_EXECUTION,
    DEFAULT_EXPORT,
    DEFAULT_VALIDATION,
    ClusterParameter,
    ColumnsParameter,
    DataParameter,
    ExporterParameter,
    FilterParameter,
    InputsParameter,
    SerdeParameter,
    StoreParameter,
    VersionParameter,
)
from partwise.flows.running.prepare import Request
from partwise.flows.running.prepare_exports import prepare_export
from partwise.models.export_options import ExportOptions, ModelFormat, ValidationOptions
from partwise.runs.claim import OnExisting
from partwise.runs.exports import check_has_models
from partwise.runs.run import Run


@run_flow(name="export-models", kind="export", opaque=("data",))
def export_models(
    training_run_id: str,
    format: ModelFormat = "onnx",  # noqa: A002 (the word of every exporter)
    *,
    run_id: str = "",
    store: StoreParameter = "artifacts",
    data: DataParameter = "",
    inputs: InputsParameter = "",
    exporter: ExporterParameter = "",
    options: ExportOptions = DEFAULT_EXPORT,
    validation: ValidationOptions = DEFAULT_VALIDATION,
    serde: SerdeParameter = "",
    filter: FilterParameter = (),  # noqa: A002 (the word of every reader of tables)
    columns: ColumnsParameter = (),
    version: VersionParameter = "",
    on_existing_artifacts: OnExisting = "error",
    execution: ExecutionOptions = DEFAULT_EXECUTION,
    cluster: ClusterParameter = "",
    trust: bool = False,
) -> Run:
    """Export the model of every partition, and prove each file before it is published.

    A file is compared with its model on the partition's held-out rows and on rows made to go wrong:
    on every threshold and beside it, missing, infinite, unseen. A partition whose file gives
    anything else is FAILED with ExportMismatch, and one whose model would not come out right with
    ExportRefused; of neither is a file kept.

    Example:
        >>> run = export_models("sales-1", "onnx", run_id="sales-1-onnx")  # doctest: +SKIP
        >>> run.model("store-7").predict(rows)  # doctest: +SKIP

    Args:
        training_run_id: The run of train_models or train_distributed, in the same store, whose
            models are exported. The scheduled time can stand in it as in run_id.
        format: "onnx"; "torchscript" or "pt2" for PyTorch modules; "native", the library's own;
            "neuron" for AWS Neuron, where its SDK is installed.
        run_id: A name for the run: letters, digits, "-" and "_". {scheduled:%Y-%m-%d} in it stands
            for the time at which the flow run was due, {scheduled[Europe/Amsterdam]:%Y-%m-%d} for
            that of a time zone. Empty: a name is made up.
        store: The artifact store: a folder, a URL such as s3://bucket/folder, an ArtifactStore
            block, or the name of one that is saved, such as artifact-store/prod.
        data: Rows that models and files are compared on, some of each partition, as train_models
            takes them. Empty: those of the training run. One model on all rows is compared on some.
        inputs: For PyTorch modules: "package.module:function", a function of (data, model, context)
            that returns the module's inputs of rows, a mapping of names to arrays. Empty: the
            columns that the module's `feature_names_in_` lists, as one matrix. From Python also the
            function itself.
        exporter: What writes models of your own kind, such as scikit-learn's:
            "package.module:function", which returns an Exporter. Empty: the built-in one of the
            library. From Python also an Exporter.
        options: Opset, inputs, precision, optimization.
        validation: Tolerances, how many rows.
        serde: Reads models that no native serde wrote: the name of a built-in one. "pickle", "pt2",
            "torchscript" and "neuron" run code, so they are read only if named. From Python also a
            serde.
        filter: Rows to keep: (column, op, value) tuples that must all hold, or lists of them. None
            given, nor data: as in training.
        columns: Columns to read. None given: all.
        version: Your own word for the version of your code, which a resume compares in place of
            looking at the code.
        on_existing_artifacts: When the run exists: "error", "overwrite" all of it, or "resume":
            keep the partitions whose model, rows, code and settings are those of a finished one.
        execution: Retries, limits, failure budget.
        cluster: The Dask cluster: a LocalCluster (the default), CudaCluster, RemoteCluster or
            CustomCluster block, the name of one that is saved, such as cuda-cluster/big, or a
            scheduler's address.
        trust: Whether the training run may have been made by somebody else. Of such a run nothing
            is called and no rows are read that its own call names, unless you say so; what you
            give here instead is not asked about.

    Returns:
        The run. Its status is SUCCESS, PARTIAL_FAILURE or SKIPPED.

    Raises:
        InputError: An argument cannot be used; nothing was written.
        TrustError: The training run was made elsewhere, and `trust` is not said.
        ExportRefused: None of its models could be exported so; nothing was written.
        RunNotFoundError: There is no such training run.
        RunExistsError: The run exists, and on_existing_artifacts is "error".
        RunFailed: No partition was done, or the failure budget was exceeded; carries the run.
        RunCancelled: The run was cancelled; what was committed is kept.
    """
    training = Run.open(training_run_id, open_store(store))
    # Before the question whether it is trusted: a wrong name is the commoner mistake.
    check_has_models(training, takes_exports=False)
    earlier = EarlierCall.of(training, trust=trust)
    plan = prepare_export(
        earlier.open_rows(data, columns, filter),
        training,
        Request(
            run_id=run_id,
            execution=execution,
            on_existing=on_existing_artifacts,
            version=version,
            seed=earlier.seed,
            null_keys=earlier.null_keys,
        ),
        format=format,
        options=options,
        validation=validation,
        trainer=earlier.trainer,
        inputs=inputs,
        exporter=exporter,
        serde=serde,
    )
    return execute(plan, store, cluster)
