"""The flow that infers every partition with its trained model."""

from partwise.calls.partitions import InferCall
from partwise.flows.orchestration.run_flow import run_flow
from partwise.flows.orchestration.saved_blocks import open_store
from partwise.flows.running.connections import open_output, open_rows_of
from partwise.flows.running.earlier_call import earlier_keys
from partwise.flows.running.environments import resolve_packages
from partwise.flows.running.execute_shards import execute
from partwise.planning.models import models_of_call, newer_versions, with_versions_of_before
from partwise.planning.partitions import prepare_inference
from partwise.planning.previous_runs import with_previous_models
from partwise.runs.run import Run
from partwise.tasks.publish_rows import with_output
from partwise.tasks.steps import run_logger


@run_flow(InferCall, name="run-inference")
def run_inference(call: InferCall) -> Run:
    """Infer every partition with its own model of a training run, and keep the predictions.

    A partition without a model is FAILED with ModelNotFoundError, alone, unless a fallback, or the
    model that its key had before, answers for it. Predictions are Parquet files in the run's folder
    `predictions`, the key columns first.

    Example:
        >>> run = run_inference("new.parquet", "store", training_run_id="sales-1")  # doctest: +SKIP
        >>> run.predictions().to_pandas()  # doctest: +SKIP

    Returns:
        The run. Its status is SUCCESS, PARTIAL_FAILURE or SKIPPED.

    Raises:
        InputError: An argument cannot be used; nothing was written.
        PackageError: The environment cannot be resolved; has the resolver's own words.
        EnvironmentBuildError: It cannot be built on a worker.
        RunNotFoundError: There is no such training run, or no export of it.
        RunExistsError: The run exists, and on_existing_artifacts is "error".
        RunFailedError: No partition was done, or the failure budget was exceeded; carries the run.
        RunCancelledError: The run was cancelled; what was committed is kept.
        OutputError: The run is complete, but its rows are not all in the table.
    """
    store = open_store(call.store)
    pinned = with_versions_of_before(call, store)
    for sentence in newer_versions(call, pinned, store):
        run_logger().info("%s", sentence)
    models, sentence = with_previous_models(models_of_call(pinned, store), pinned, store)
    if sentence:
        run_logger().info("%s", sentence)
    output = open_output(call.output)
    plan = prepare_inference(
        pinned,
        open_rows_of(call),
        models,
        output=output,
        earlier_keys=earlier_keys(call),
        packages=resolve_packages(call),
    )
    return with_output(execute(plan, call.store, call.cluster), output, call.execution)
