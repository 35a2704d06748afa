"""The flow that trains one model per partition."""

from dataclasses import replace

from partwise.calls.partitions import TrainCall
from partwise.flows.orchestration.run_flow import run_flow
from partwise.flows.orchestration.saved_blocks import open_store
from partwise.flows.running.connections import open_rows_of
from partwise.flows.running.earlier_call import earlier_keys
from partwise.flows.running.environments import resolve_packages
from partwise.flows.running.execute_shards import execute
from partwise.planning.partitions import prepare_training
from partwise.planning.portfolio import with_portfolio
from partwise.runs.run import Run


@run_flow(TrainCall, name="train-models")
def train_models(call: TrainCall) -> Run:
    """Train one model per partition, and keep them as a run.

    Example:
        >>> run = train_models("sales.parquet", "store", LightGBMTrainer(label="sales"))
        >>> run.partitions.to_pandas()  # doctest: +SKIP

    Returns:
        The run. Its status is SUCCESS, PARTIAL_FAILURE or SKIPPED.

    Raises:
        InputError: An argument cannot be used; nothing was written.
        PackageError: The environment cannot be resolved; has the resolver's own words.
        EnvironmentBuildError: It cannot be built on a worker.
        RunExistsError: The run exists, and on_existing_artifacts is "error".
        RunFailedError: No partition was done, or the failure budget was exceeded; carries the run.
        RunCancelledError: The run was cancelled; what was committed is kept.
    """
    plan = prepare_training(
        replace(call, trainer=with_portfolio(call.trainer, lambda: open_store(call.store))),
        open_rows_of(call),
        open_store=lambda: open_store(call.store),
        earlier_keys=earlier_keys(call),
        packages=resolve_packages(call),
    )
    return execute(plan, call.store, call.cluster)
