"""The flow that proves the published files of an export run again."""

from dataclasses import replace

from partwise.calls.exports import ValidateCall
from partwise.flows.orchestration.run_flow import run_flow
from partwise.flows.orchestration.saved_blocks import open_store
from partwise.flows.running.earlier_call import EarlierCall
from partwise.flows.running.execute_shards import execute
from partwise.planning.exports import check_exports, prepare_validation
from partwise.runs.run import Run


@run_flow(ValidateCall, name="validate-exports")
def validate_exports(call: ValidateCall) -> Run:
    """Prove the exports of all partitions as they lie in the store: on new rows, or a new runtime.

    An export run proves each file before it is published. This does so again, from the store, with
    the onnxruntime that is installed now, on the rows given now.

    Example:
        >>> run = validate_exports("sales-1-onnx", data="december.parquet")  # doctest: +SKIP
        >>> run.partitions["export_max_abs_diff"]  # doctest: +SKIP

    Returns:
        The run. Its status is SUCCESS, PARTIAL_FAILURE or SKIPPED.

    Raises:
        InputError: An argument cannot be used; nothing was written.
        TrustError: The export run was made elsewhere, and `trust` is not said.
        RunNotFoundError: There is no such export run, or its training run is gone.
        SerdeError: The trained models need a serde that was not given.
        RunExistsError: The run exists, and on_existing_artifacts is "error".
        RunFailedError: No partition was done, or the failure budget was exceeded; carries the run.
        RunCancelledError: The run was cancelled; what was committed is kept.
    """
    exports = Run.open(call.export_run_id, open_store(call.store))
    training = Run.open(check_exports(exports), exports.store)
    earlier = EarlierCall.of(exports, trust=call.trust)
    source = earlier.open_rows(call.data, call.columns, call.filter)
    call = replace(
        call,
        example_inputs=call.example_inputs or earlier.named("example_inputs"),
        exporter=call.exporter or earlier.named("exporter"),
    )
    null_keys = EarlierCall.of(training).null_keys
    plan = prepare_validation(call, source, exports, training, null_keys=null_keys)
    return execute(plan, call.store, call.cluster)
