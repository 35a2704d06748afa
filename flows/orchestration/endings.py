"""How a call of a flow ends: what it returns or raises, with Prefect or without it."""

import logging
import os
from typing import TypeVar

import pyarrow.compute as pc

from partwise.errors import PartwiseError, RunCancelledError, RunFailedError
from partwise.outcomes import PartitionStatus, RunStatus
from partwise.redaction import without_secrets
from partwise.runs.pipeline import Pipeline
from partwise.runs.run import Run

R = TypeVar("R", bound=Run | Pipeline)


def result_of(run: R) -> R:
    """Return a run, or raise what calling a flow raises for it.

    Raises:
        RunFailedError: It ended with FAILURE.
        RunCancelledError: It was cancelled.
    """
    if (error := error_of(run)) is not None:
        # What went wrong between us and the server is beside the point by now.
        raise error from error.__cause__
    return run


def error_of(run: Run | Pipeline) -> RunFailedError | RunCancelledError | None:
    """Return what calling a flow raises for a run; None: the run is returned."""
    if isinstance(run, Run) and run.status is RunStatus.FAILURE:
        error = RunFailedError(explain(run), run)
        error.__cause__ = run.cause
        return error
    if isinstance(run, Run) and run.status is RunStatus.CANCELLED:
        return RunCancelledError(explain(run), run)
    return None


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


def message_of(run: Run) -> str:
    """Return how a run ended, in its summary's words."""
    return "" if run.summary is None else run.summary.message


def explain(run: Run) -> str:
    """Return a sentence with the first causes."""
    message = message_of(run)
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
        try:
            said = record.getMessage()
        except Exception as unsaid:  # A message that does not fit what it is about.
            where = f"{record.pathname}:{record.lineno}"
            said = f"what {where} logs cannot be said: {type(unsaid).__name__}: {unsaid}"
        record.msg, record.args = without_secrets(said), None
        if record.exc_info:
            text = logging.Formatter().formatException(record.exc_info)
            # A formatter that finds this text makes none of its own.
            record.exc_text = without_secrets(text)
        return True


def mask_logs() -> None:
    """Have secrets masked in what Prefect logs of flow runs and task runs of this process."""
    for name in ("prefect.flow_runs", "prefect.task_runs"):
        found = logging.getLogger(name)
        if not any(isinstance(each, Masking) for each in found.filters):
            found.addFilter(Masking())
