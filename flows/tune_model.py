"""The flow that tunes one model on all rows, by trials side by side on the cluster."""

from partwise.calls.one_model import TuneCall
from partwise.flows.orchestration.run_flow import run_flow
from partwise.flows.running.connections import open_eval_rows, open_rows_of
from partwise.flows.running.execute_study import execute_study
from partwise.planning.study import prepare_study
from partwise.runs.run import Run


@run_flow(TuneCall, name="tune-model")
def tune_model(call: TuneCall) -> Run:
    """Try settings of one model on all rows, side by side, and keep the model of each trial.

    A trial is what a partition is elsewhere: it runs in a process of its own, within the limits of
    `execution`, is tried again when it fails, and has a row in `run.partitions`. `run.trials` has
    what each tried; `run.best` is the best one, and `run.model()` its model, as is that of an
    inference with this run's ID.

    Example:
        >>> space = {"learning_rate": loguniform(0.01, 0.3), "num_leaves": randint(4, 64)}
        >>> run = tune_model("sales.parquet", trainer, space, trials=64)  # doctest: +SKIP
        >>> run.best.settings  # doctest: +SKIP
        {'learning_rate': 0.07, 'num_leaves': 23}

    Returns:
        The run. Its status is SUCCESS, PARTIAL_FAILURE where trials failed, or SKIPPED.

    Raises:
        InputError: An argument cannot be used, or the cluster has no room for the ranks of a trial;
            nothing was written.
        RunExistsError: The run exists, and on_existing_artifacts is "error".
        RunFailedError: All trials failed, or the failure budget was exceeded; carries the run.
        RunCancelledError: The run was cancelled; what was committed is kept.
        ClusterError: The cluster is gone.
    """
    plan = prepare_study(call, open_rows_of(call), open_eval_rows(call))
    return execute_study(plan, call.store, call.cluster)
