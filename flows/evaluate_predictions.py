"""The flow that looks whether predictions came true."""

from partwise.calls.partitions import EvaluateCall
from partwise.flows.orchestration.run_flow import run_flow
from partwise.flows.orchestration.saved_blocks import open_store
from partwise.flows.running.connections import open_rows_of
from partwise.flows.running.environments import resolve_packages
from partwise.flows.running.execute_shards import execute
from partwise.planning.evaluation import open_predictions, prepare_evaluation
from partwise.runs.run import Run
from partwise.tasks.steps import run_logger


@run_flow(EvaluateCall, name="evaluate-predictions")
def evaluate_predictions(call: EvaluateCall) -> Run:
    """Compare the predictions of an inference run with what has become true, key by key.

    Each prediction has its label, is pending, or is no number: these counts add up. The metric
    stands beside that of the key's model at promotion, or in training, with the rows of both. Once
    more labels are there, or corrected ones, a resume evaluates just the keys whose rows changed.

    Example:
        >>> run = evaluate_predictions(  # doctest: +SKIP
        ...     "sold.parquet", "store", inference_run_id="night-3", on="day", label="sales"
        ... )
        >>> Evaluated.of(run).table.to_pandas()  # doctest: +SKIP

    Returns:
        The run. `Evaluated.of(run).table` has a row for each key; `run.predictions()` has those
        rows whose label is there.

    Raises:
        InputError: An argument cannot be used; nothing was written.
        KeyClassError: Keys, or columns of `on`, are of other classes than those of the predictions.
        PackageError: The environment cannot be resolved; has the resolver's own words.
        EnvironmentBuildError: It cannot be built on a worker.
        RunNotFoundError: There is no such inference run.
        RunExistsError: The run exists, and on_existing_artifacts is "error".
        RunFailedError: No partition was done, or the failure budget was exceeded; carries the run.
        RunCancelledError: The run was cancelled; what was committed is kept.
    """
    store = open_store(call.store)
    predictions = open_predictions(call, store)
    if predictions.gone:
        run_logger().warning(
            "How good the models were is not known any more, so that no key is called worse by its "
            "metric: %s",
            predictions.gone,
        )
    plan = prepare_evaluation(
        call, open_rows_of(call), predictions, store, packages=resolve_packages(call)
    )
    return execute(plan, call.store, call.cluster)
