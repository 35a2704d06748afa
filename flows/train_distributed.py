"""The flow that trains one model on all rows, by ranks that work together."""

from partwise.calls.one_model import DistributedCall
from partwise.flows.orchestration.run_flow import run_flow
from partwise.flows.running.connections import open_eval_rows, open_rows_of
from partwise.flows.running.environments import resolve_packages
from partwise.flows.running.execute_gang import execute_gang
from partwise.planning.gang import prepare_gang
from partwise.runs.run import Run


@run_flow(DistributedCall, name="train-distributed")
def train_distributed(call: DistributedCall) -> Run:
    """Train one model on all rows, by as many ranks as the cluster has room for.

    The ranks start together or not at all, each in a process of its own. When one fails, all end,
    and nothing of them counts. The run has a partition for each rank, with its log and metrics.

    Example:
        >>> trainer = DistributedXGBoost(label="sales", rounds=50)
        >>> run = train_distributed("sales.parquet", trainer, run_id="one")  # doctest: +SKIP
        >>> run.model().num_boosted_rounds()  # doctest: +SKIP
        50

    Returns:
        The run. Its status is SUCCESS, or SKIPPED where rank 0 declined to make a model.

    Raises:
        PackageError: The environment cannot be resolved; has the resolver's own words.
        EnvironmentBuildError: A worker's machine cannot build the environment.
        InputError: An argument cannot be used, or the cluster has no room for the ranks; nothing
            was written.
        RunExistsError: The run exists, and on_existing_artifacts is "error".
        RunFailedError: A rank failed, or its time ran out; carries the run.
        RunCancelledError: The run was cancelled.
        ClusterError: Workers stayed busy for too long, or the cluster is gone.
    """
    plan = prepare_gang(
        call, open_rows_of(call), open_eval_rows(call), packages=resolve_packages(call)
    )
    return execute_gang(plan, call.store, call.cluster)
