"""The Prefect states that runs end in, and what they tell whoever looks at a flow run."""

from typing import Any, NoReturn, TypeVar

import pyarrow.compute as pc
from prefect.client.schemas.objects import State
from prefect.states import Cancelled, Completed, Failed

from partwise.errors import PartwiseError, RunCancelled, RunFailed
from partwise.outcomes import PartitionStatus, RunStatus
from partwise.runs.pipeline import Pipeline
from partwise.runs.run import Run

R = TypeVar("R", bound=Run | Pipeline)


def state_of(run: Run | Pipeline) -> State[Any]:
    """Return the Prefect state that a run, or a pipeline of runs, ends its flow run in.

    SUCCESS is Completed; PARTIAL_FAILURE and SKIPPED are Completed with these names; FAILURE is
    Failed; CANCELLED is Cancelled. The latter two hold an error, which calling the flow raises.
    """
    message = run.message if isinstance(run, Pipeline) else _message(run)
    if isinstance(run, Run):
        match run.status:
            case RunStatus.FAILURE:
                return ended_early(_failed(run))
            case RunStatus.CANCELLED:
                return Cancelled(message=message, data=RunCancelled(_explain(run), run))
    match run.status:
        case RunStatus.SUCCESS:
            return Completed(message=message, data=run)
        case status:
            return Completed(name=status.value, message=message, data=run)


def ended_early(error: RunFailed | RunCancelled) -> State[Any]:
    """Return the state of a flow run whose run, or a stage of it, ended without success."""
    error = error.with_traceback(None)
    if isinstance(error, RunCancelled):
        return Cancelled(message=str(error), data=error)
    return Failed(name="FAILURE", message=str(error), data=error)


def result_of(run: R) -> R:
    """Return a run, or raise what calling a flow raises for it.

    Raises:
        RunFailed: It ended with FAILURE.
        RunCancelled: It was cancelled.
    """
    if isinstance(run, Run):
        match run.status:
            case RunStatus.FAILURE:
                _raise(_failed(run))
            case RunStatus.CANCELLED:
                _raise(RunCancelled(_explain(run), run))
    return run


def interrupted(run_id: str) -> State[Any]:
    """Return the state of a flow run that was cancelled before or after its partitions ran."""
    message = (
        f"The run {run_id!r} was interrupted. What is committed is kept; the same call with "
        "on_existing_artifacts='resume' goes on with it."
    )
    return Cancelled(message=message, data=RunCancelled(message, None))


def refused(error: PartwiseError) -> State[Any]:
    """Return the state of a flow run that ends with an error of ours, which says all in a sentence.

    Its traceback would fill the log with forty lines that tell nobody more. The message begins with
    the class' name, as Prefect's own do: by it, who has sent the call raises the same error.
    """
    message = f"{type(error).__name__}: {error}"
    return Failed(message=message, data=error.with_traceback(None))


def _raise(error: Exception) -> NoReturn:
    # What went wrong between us and the server is beside the point by now.
    raise error from error.__cause__


def _failed(run: Run) -> RunFailed:
    error = RunFailed(_explain(run), run)
    error.__cause__ = run.cause
    return error


def _message(run: Run) -> str:
    return "" if run.summary is None else run.summary.message


def _explain(run: Run) -> str:
    """Return a sentence with the first causes."""
    message = _message(run)
    causes = [
        f"{row['count']} x {row['error_type']}: {' '.join(row['error_message'].split())[:300]}"
        for row in run.failures().slice(0, 3).to_pylist()
    ]
    lost = pc.equal(run.partitions["status"], PartitionStatus.INTERNAL_ERROR.value)
    reasons = run.partitions["reason"].filter(lost).to_pylist()
    if reasons:
        causes.append(f"{len(reasons)} x INTERNAL_ERROR: {' '.join(reasons[0].split())[:300]}")
    tail = f" First causes: {'; '.join(causes)}" if causes else ""
    return f"The run {run.run_id!r} ended with {message}{tail}"
