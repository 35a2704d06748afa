"""The flow that proves the published files of an export run again."""

from functools import partial

from partwise.engine.options import ExecutionOptions
from partwise.engine.trained_models import models_fingerprint
from partwise.errors import InputError
from partwise.exports.choice import resolve_exporter
from partwise.exports.works import ComparedRows, Proof
from partwise.flows.orchestration.run_flow import run_flow
from partwise.flows.running.calls import describe_intent
from partwise.flows.running.connections import open_store
from partwise.flows.running.earlier_call import EarlierCall
from partwise.flows.running.execution import Plan, execute
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
from partwise.models.export_options import ValidationOptions
from partwise.models.serdes import resolve_serde
from partwise.runs.claim import Identity, OnExisting
from partwise.runs.run import Run
from partwise.tables.keys.partition_keys import key_columns
from partwise.tasks.export_models import check_coverage
from partwise.tasks.validate_exports import plan_validation
from partwise.tasks.validate_exports import validate_exports as validate_some_exports
from partwise.trainers import resolve_trainer


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
        serde: Reads models that no native serde wrote: a serde, or the name of a built-in one.
            Nothing is unpickled unless this is a PickleSerde, or "pickle".
        filter: Rows to keep: (column, op, value) tuples that must all hold, or lists of them. None
            given, nor data: as in the export run.
        columns: Columns to read. None given: all.
        version: Your own word for the version of your code, which a resume compares in place of
            looking at the code.
        on_existing_artifacts: When the run exists: "error", "overwrite" all of it, or "resume":
            keep the partitions whose file, rows, code and settings are those of a finished one.
        execution: Retries, limits, failure budget.
        cluster: The Dask cluster: a LocalCluster (the default), CudaCluster or RemoteCluster block,
            the name of one that is saved, such as cuda-cluster/big, or a scheduler's address.

    Returns:
        The run. Its status is SUCCESS or PARTIAL_FAILURE.

    Raises:
        InputError: An argument cannot be used; nothing was written.
        RunNotFoundError: There is no such export run, or its training run is gone.
        SerdeError: The trained models need a serde that was not given.
        RunExistsError: The run exists, and on_existing_artifacts is "error".
        RunFailed: No partition was done, or the failure budget was exceeded; carries the run.
        RunCancelled: The run was cancelled; what was committed is kept.
    """
    exports = Run.open(export_run_id, open_store(store))
    if exports.kind == "export-transformers":
        raise InputError(
            f"The run {export_run_id!r} is one of export_transformers, whose files were proved as "
            "they were made: `partwise transformers check` proves one again."
        )
    if exports.kind != "export" or exports.document.training_run_id is None:
        raise InputError(
            f"The run {export_run_id!r} is of the kind {exports.kind!r}; export_run_id names a run "
            "of export_models."
        )
    earlier = EarlierCall.of(exports)
    training = Run.open(exports.document.training_run_id, exports.store)
    source = earlier.open_rows(data, columns, filter)
    keys = key_columns(source.schema, exports.document.partition_by)
    chosen_serde = resolve_serde(serde)
    chosen_inputs = inputs or earlier.named("inputs")
    chosen_exporter = exporter or earlier.named("exporter")
    function = resolve_trainer(chosen_inputs) if chosen_inputs else None
    proof = Proof(
        validation=validation,
        rows=ComparedRows(trainer=None, most=validation.most_rows),
        inputs=function,
        exporter=resolve_exporter(chosen_exporter),
    )
    work, models = plan_validation(exports, training, keys, proof, chosen_serde)
    intent = describe_intent(
        "validate_exports",
        source.description(),
        {
            "export_run_id": export_run_id,
            "inputs": chosen_inputs or None,
            "exporter": chosen_exporter or None,
            "validation": validation,
            "serde": chosen_serde,
            "execution": execution,
        },
        version or None,
        models_fingerprint(models),
    )
    plan = Plan(
        identity=Identity(
            run_id=run_id, kind="validate", key_columns=keys, training_run_id=export_run_id
        ),
        store=store,
        source=source,
        work=work,
        function=function or work,
        intent=intent,
        seed=0,
        params=None,
        null_keys=EarlierCall.of(training).null_keys,
        on_existing=on_existing_artifacts,
        options=execution,
        cluster=cluster,
        n_shards=exports.document.n_shards,
        models=models,
        check_sharded=partial(check_coverage, models, run_id=export_run_id),
    )
    return execute(plan, validate_some_exports)
