"""The flow that exports every model of a training run, and proves each file."""

from partwise.calls.exports import ExportCall
from partwise.flows.orchestration.run_flow import run_flow
from partwise.flows.orchestration.saved_blocks import open_store
from partwise.flows.running.earlier_call import EarlierCall
from partwise.flows.running.execute_shards import execute
from partwise.planning.exports import prepare_export
from partwise.runs.exports import check_has_models
from partwise.runs.run import Run


@run_flow(ExportCall, name="export-models")
def export_models(call: ExportCall) -> Run:
    """Export the model of every partition, and prove each file before it is published.

    A file is compared with its model on the partition's held-out rows and on rows made to go wrong:
    on every threshold and beside it, missing, infinite, unseen. A partition whose file gives
    anything else is FAILED with ExportMismatchError, and one whose model would not come out right
    with ExportRefusedError; of neither is a file kept.

    Example:
        >>> run = export_models("sales-1", "onnx", run_id="sales-1-onnx")  # doctest: +SKIP
        >>> run.model("store-7").predict(rows)  # doctest: +SKIP

    Returns:
        The run. Its status is SUCCESS, PARTIAL_FAILURE or SKIPPED.

    Raises:
        InputError: An argument cannot be used; nothing was written.
        TrustError: The training run was made elsewhere, and `trust` is not said.
        ExportRefusedError: None of its models could be exported so; nothing was written.
        RunNotFoundError: There is no such training run.
        RunExistsError: The run exists, and on_existing_artifacts is "error".
        RunFailedError: No partition was done, or the failure budget was exceeded; carries the run.
        RunCancelledError: The run was cancelled; what was committed is kept.
    """
    training = Run.open(call.training_run_id, open_store(call.store))
    # Before the question whether it is trusted: a wrong name is the commoner mistake.
    check_has_models(training, takes_exports=False)
    earlier = EarlierCall.of(training, trust=call.trust)
    plan = prepare_export(
        call,
        earlier.open_rows(call.data, call.columns, call.filter),
        training,
        trainer=earlier.trainer,
        seed=earlier.seed,
        null_keys=earlier.null_keys,
    )
    return execute(plan, call.store, call.cluster)
