"""The flow that proves the published files of an export run again."""

from typing import Literal

from partwise.engine.options import ExecutionOptions
from partwise.flows.orchestration.run_flow import run_flow
from partwise.flows.running.connections import open_store
from partwise.flows.running.earlier_call import EarlierCall
from partwise.flows.running.execute_shards import execute
from partwise.flows.running.parameters import (
    DEFAULT_EXECUTION,
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
from partwise.flows.running.prepare_exports import check_exports, prepare_validation
from partwise.models.export_options import ModelFormat, ValidationOptions
from partwise.runs.claim import OnExisting
from partwise.runs.run import Run


@run_flow(name="validate-exports", kind="validate", opaque=("data",))
def validate_exports(
    export_run_id: str,
    *,
    run_id: str = "",
    store: StoreParameter = "artifacts",
    data: DataParameter = "",
    inputs: InputsParameter = "",
    exporter: ExporterParameter = "",
    validation: ValidationOptions = DEFAULT_VALIDATION,
    serde: SerdeParameter = "",
    filter: FilterParameter = (),  # noqa: A002 (the word of every reader of tables)
    columns: ColumnsParameter = (),
    version: VersionParameter = "",
    on_existing_artifacts: OnExisting = "error",
    execution: ExecutionOptions = DEFAULT_EXECUTION,
    cluster: ClusterParameter = "",
    model_format: ModelFormat | Literal[""] = "",
    trust: bool = False,
) -> Run:
    """Prove the exports of all partitions as they lie in the store: on new rows, or a new runtime.

    An export run proves each file before it is published. This does so again, from the store, with
    the onnxruntime that is installed now, on the rows given now.

    Example:
        >>> run = validate_exports("sales-1-onnx", data="december.parquet")  # doctest: +SKIP
        >>> run.partitions["export_max_abs_diff"]  # doctest: +SKIP

    Args:
        export_run_id: The run of export_models, in the same store. The scheduled time can stand in
            it as in run_id.
        run_id: A name for the run: letters, digits, "-" and "_". {scheduled:%Y-%m-%d} in it stands
            for the time at which the flow run was due, {scheduled[Europe/Amsterdam]:%Y-%m-%d} for
            that of a time zone. Empty: a name is made up.
        store: The artifact store: a folder, a URL such as s3://bucket/folder, an ArtifactStore
            block, or the name of one that is saved, such as artifact-store/prod.
        data: Rows that models and files are compared on, some of each partition, as train_models
            takes them. Empty: those of the export run.
        inputs: As export_models was given it. Empty: the function that it was given by name.
        exporter: As export_models was given it. Empty: that which it was given by name.
        validation: Tolerances, how many rows.
        serde: Reads models that no native serde wrote: the name of a built-in one. "pickle", "pt2",
            "torchscript" and "neuron" run code, so they are read only if named. From Python also a
            serde.
        filter: Rows to keep: (column, op, value) tuples that must all hold, or lists of them. None
            given, nor data: as in the export run.
        columns: Columns to read. None given: all.
        version: Your own word for the version of your code, which a resume compares in place of
            looking at the code.
        on_existing_artifacts: When the run exists: "error", "overwrite" all of it, or "resume":
            keep the partitions whose file, rows, code and settings are those of a finished one.
        execution: Retries, limits, failure budget.
        cluster: The Dask cluster: a LocalCluster (the default), CudaCluster, RemoteCluster or
            CustomCluster block, the name of one that is saved, such as cuda-cluster/big, or a
            scheduler's address.
        model_format: The format of the exports; needed for "torchscript", "pt2" and "neuron", whose
            files run code when they are read.
        trust: Whether the export run may have been made by somebody else. Of such a run nothing is
            called and no rows are read that its own call names, unless you say so; what you give
            here instead is not asked about.

    Returns:
        The run. Its status is SUCCESS, PARTIAL_FAILURE or SKIPPED.

    Raises:
        InputError: An argument cannot be used; nothing was written.
        TrustError: The export run was made elsewhere, and `trust` is not said.
        RunNotFoundError: There is no such export run, or its training run is gone.
        SerdeError: The trained models need a serde that was not given.
        RunExistsError: The run exists, and on_existing_artifacts is "error".
        RunFailed: No partition was done, or the failure budget was exceeded; carries the run.
        RunCancelled: The run was cancelled; what was committed is kept.
    """
    exports = Run.open(export_run_id, open_store(store))
    trained_as = check_exports(exports)
    earlier = EarlierCall.of(exports, trust=trust)
    training = Run.open(trained_as, exports.store)
    plan = prepare_validation(
        earlier.open_rows(data, columns, filter),
        exports,
        training,
        Request(
            run_id=run_id,
            execution=execution,
            on_existing=on_existing_artifacts,
            version=version,
            null_keys=EarlierCall.of(training).null_keys,
        ),
        validation=validation,
        inputs=inputs or earlier.named("inputs"),
        exporter=exporter or earlier.named("exporter"),
        serde=serde,
        model_format=model_format,
    )
    return execute(plan, store, cluster)
