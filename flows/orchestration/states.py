"""The Prefect states that runs end in, and what they tell whoever looks at a flow run."""

import logging
import os
from typing import Any, NoReturn, TypeVar

import pyarrow.compute as pc
from prefect.client.schemas.objects import State
from prefect.logging import get_run_logger
from prefect.states import Cancelled, Completed, Failed

from partwise.engine.failures import describe_error
from partwise.errors import PartwiseError, RunCancelledError, RunFailedError
from partwise.outcomes import PartitionStatus, RunStatus
from partwise.redaction import without_secrets
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
                return Cancelled(message=message, data=RunCancelledError(_explain(run), run))
    match run.status:
        case RunStatus.SUCCESS:
            return Completed(message=message, data=run)
        case status:
            return Completed(name=status.value, message=message, data=run)


def ended_early(error: RunFailedError | RunCancelledError) -> State[Any]:
    """Return the state of a flow run whose run, or a stage of it, ended without success."""
    error = error.with_traceback(None)
    if isinstance(error, RunCancelledError):
        return Cancelled(message=str(error), data=error)
    return Failed(name="FAILURE", message=str(error), data=error)


def result_of(run: R) -> R:
    """Return a run, or raise what calling a flow raises for it.

    Raises:
        RunFailedError: It ended with FAILURE.
        RunCancelledError: It was cancelled.
    """
    if isinstance(run, Run):
        match run.status:
            case RunStatus.FAILURE:
                _raise(_failed(run))
            case RunStatus.CANCELLED:
                _raise(RunCancelledError(_explain(run), run))
    return run


def cancelled(run_id: str, *, has_begun: bool) -> RunCancelledError:
    """Return the error of a call that was cancelled before or after its partitions ran.

    An empty `run_id`: it has no name yet. `has_begun`: something of it may have been begun.
    """
    run = f"The run {run_id!r}" if run_id else "The call"
    message = f"{run} was interrupted before anything was begun: there is nothing to go on with."
    if has_begun:
        message = (
            f"{run} was interrupted. What is committed is kept; the same call with "
            "on_existing_artifacts='resume' goes on with it."
        )
    return RunCancelledError(message, None)


def refused(error: PartwiseError) -> State[Any]:
    """Return the state of a flow run that ends with an error of ours, which says all in a sentence.

    Its traceback would fill the log with forty lines that tell nobody more. The message begins with
    the class' name, as Prefect's own do: by it, who has sent the call raises the same error.
    """
    message = f"{type(error).__name__}: {error}"
    return Failed(message=message, data=error.with_traceback(None))


def unexpected(error: Exception) -> State[Any]:
    """Return the state of a flow run that an error of somebody else's has ended.

    It says what Prefect would say, without secrets that a library may have put into its message.
    """
    failure = describe_error(error)
    get_run_logger().error("Encountered exception during execution:\n%s", failure.traceback)
    message = f"Flow run encountered an exception: {failure.error_type}: {failure.message}"
    return Failed(message=message, data=error)


class Masking(logging.Filter):
    """Masks secrets in all that Prefect logs of flow runs and task runs, tracebacks included.

    Of an error of ours it leaves the sentence: the traceback is one of Prefect's engine.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """Mask what a record says, and let it pass."""
        error = record.exc_info[1] if record.exc_info else None
        if isinstance(error, PartwiseError) and not os.environ.get("PARTWISE_DEBUG"):
            record.msg, record.args = f"{type(error).__name__}: {error}", None
            record.exc_info = record.exc_text = None
        record.msg, record.args = without_secrets(record.getMessage()), None
        if record.exc_info:
            text = logging.Formatter().formatException(record.exc_info)
            record.exc_text = without_secrets(text)
        return True


def mask_logs() -> None:
    """Have secrets masked in what Prefect logs of flow runs and task runs of this process."""
    for name in ("prefect.flow_runs", "prefect.task_runs"):
        found = logging.getLogger(name)
        if not any(isinstance(each, Masking) for each in found.filters):
            found.addFilter(Masking())


def _raise(error: Exception) -> NoReturn:
    # What went wrong between us and the server is beside the point by now.
    raise error from error.__cause__


def _failed(run: Run) -> RunFailedError:
    error = RunFailedError(_explain(run), run)
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
    lost = pc.equal(run.ledger["status"], PartitionStatus.INTERNAL_ERROR.value)
    rows = run.ledger.filter(lost).select(["reason", "error_message"]).to_pylist()
    if rows:
        # Of a rank whose worker was lost, the reason stands where errors do.
        why = rows[0]["reason"] or rows[0]["error_message"] or "nobody knows why"
        causes.append(f"{len(rows)} x INTERNAL_ERROR: {' '.join(why.split())[:300]}")
    tail = f" First causes: {'; '.join(causes)}" if causes else ""
    return f"The run {run.run_id!r} ended with {message}{tail}"
