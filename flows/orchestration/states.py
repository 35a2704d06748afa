"""The Prefect states that runs end in, and what they tell whoever looks at a flow run."""

from typing import Any, Literal

from prefect.client.schemas.objects import State
from prefect.logging import get_run_logger
from prefect.states import Cancelled, Completed, Failed

from partwise.engine.failures import describe_error
from partwise.errors import PartwiseError, RunCancelledError, RunFailedError
from partwise.flows.orchestration.endings import error_of, message_of
from partwise.outcomes import RunStatus
from partwise.runs.pipeline import Pipeline
from partwise.runs.run import Run


def state_of(
    run: Run | Pipeline, partial_failure: Literal["completed", "failed"] = "completed"
) -> State[Any]:
    """Return the Prefect state that a run, or a pipeline of runs, ends its flow run in.

    SUCCESS is Completed; PARTIAL_FAILURE and SKIPPED are Completed with these names, or as
    `partial_failure` says Failed; FAILURE is Failed; CANCELLED is Cancelled. These two hold an
    error, which calling the flow raises.
    """
    message = run.message if isinstance(run, Pipeline) else message_of(run)
    match error_of(run):
        case RunFailedError() as error:
            return ended_early(error)
        case RunCancelledError() as error:
            return Cancelled(message=message, data=error)
    match run.status:
        case RunStatus.SUCCESS:
            return Completed(message=message, data=run)
        case RunStatus.PARTIAL_FAILURE as status if partial_failure == "failed":
            # Prefect wants an error there; who called gets the run that it has.
            return Failed(name=status.value, message=message, data=RunFailedError(message, run))
        case status:
            return Completed(name=status.value, message=message, data=run)


def ended_early(error: RunFailedError | RunCancelledError) -> State[Any]:
    """Return the state of a flow run whose run, or a stage of it, ended without success."""
    error = error.with_traceback(None)
    if isinstance(error, RunCancelledError):
        return Cancelled(message=str(error), data=error)
    return Failed(name="FAILURE", message=str(error), data=error)


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
    message = f"Flow run encountered an exception: {failure.summary}"
    return Failed(message=message, data=error)
