"""A Prefect flow whose data stays out of its database, and whose result outlives the server."""

import functools
import inspect
import json
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import PurePath
from typing import Any, NoReturn, ParamSpec

import httpx
import pyarrow.compute as pc
from prefect import Flow
from prefect.client.schemas.objects import State
from prefect.exceptions import ParameterTypeError
from prefect.settings import (
    PREFECT_CLIENT_MAX_RETRIES,
    PREFECT_SERVER_ANALYTICS_ENABLED,
    PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS,
    temporary_settings,
)
from prefect.states import Cancelled, Completed, Failed
from prefect.task_runners import TaskRunner, ThreadPoolTaskRunner
from pydantic import BaseModel, ValidationError

from partwise.flows.prefect_server import forget_unsent, start_embedded_server
from partwise.tasks.errors import InputError, RunCancelled, RunFailed
from partwise.tasks.partitions.outcomes import PartitionStatus, RunStatus
from partwise.tasks.runs import Run

TASK_THREADS = 16
LARGEST_PARAMETER_BYTES = 32 << 10
MOST_MISTAKES = 4
"""Told of in one message."""

_THREADS: TaskRunner[Any] = ThreadPoolTaskRunner(max_workers=TASK_THREADS)

P = ParamSpec("P")
logger = logging.getLogger(__name__)

_ended: ContextVar[list[Run] | None] = ContextVar("partwise_ended_runs", default=None)


class _Opaque:
    """A value that Prefect should neither walk through nor store."""

    def __init__(self, value: Any) -> None:
        self.value = value


class RunFlow(Flow[P, Any]):
    """A flow around a run of partitions.

    Frames and large params never reach Prefect's database, and when its server dies in mid-run, the
    run goes on and the caller gets it all the same.

    Args:
        fn: The flow function; returns a `Run`.
        name: The flow's name.
        opaque: Parameters that hold data.
    """

    def __init__(self, fn: Callable[P, Run], name: str, opaque: Sequence[str]) -> None:
        self._opaque = tuple(opaque)
        signature = inspect.signature(fn)

        @functools.wraps(fn)
        def body(*args: Any, **kwargs: Any) -> State[Any]:
            bound = signature.bind(*args, **kwargs)
            for key, value in bound.arguments.items():
                if isinstance(value, _Opaque):
                    bound.arguments[key] = value.value
            run = fn(*bound.args, **bound.kwargs)
            ended = _ended.get()
            if ended is not None:
                ended.append(run)
            return state_of(run)

        super().__init__(
            fn=body,
            name=name,
            flow_run_name=_flow_run_name,
            task_runner=_THREADS,
            persist_result=False,
        )

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Run:  # type: ignore[override]
        """Run the flow.

        Returns:
            The run, when it ended with SUCCESS or PARTIAL_FAILURE.

        Raises:
            RunFailed: It ended with FAILURE; carries the run.
            RunCancelled: It was cancelled; carries the run.
        """
        bound = inspect.signature(self.fn).bind(*args, **kwargs)
        for key in self._opaque:
            if not _is_plain(bound.arguments.get(key)):
                bound.arguments[key] = _Opaque(bound.arguments[key])
        ended: list[Run] = []
        token = _ended.set(ended)
        try:
            with _settings():
                start_embedded_server()
                run: Run = super().__call__(*bound.args, **bound.kwargs)
                return run
        except (RunFailed, RunCancelled) as error:
            # By way of Prefect's engine it has gathered forty lines that tell nobody anything.
            raise error.with_traceback(None) from None
        except httpx.HTTPError as error:
            if not ended:
                raise
            run_id = ended[-1].run_id
            logger.warning("Prefect's server went away before the run %s ended: %s", run_id, error)
            forget_unsent()
            return _result_of(ended[-1])
        finally:
            _ended.reset(token)

    def validate_parameters(self, parameters: dict[str, Any]) -> dict[str, Any]:
        """Validate all parameters but those that hold data.

        Raises:
            InputError: One is of a wrong type, or none of the choices.
        """
        kept = {key: value for key, value in parameters.items() if isinstance(value, _Opaque)}
        blank = {key: None if key in kept else value for key, value in parameters.items()}
        try:
            return {**super().validate_parameters(blank), **kept}
        except ParameterTypeError as error:
            raise InputError(_describe_mistakes(self.name, error)) from None

    def serialize_parameters(self, parameters: dict[str, Any]) -> dict[str, Any]:
        """Return the parameters as Prefect may store them: small plain values, or a type's name."""
        return {key: _stored(value) for key, value in parameters.items()}


def run_flow(name: str, opaque: Sequence[str]) -> Callable[[Callable[P, Run]], "RunFlow[P]"]:
    """Decorate a function that returns a `Run` as a flow.

    Args:
        name: The flow's name in Prefect.
        opaque: Parameters that hold data, which Prefect should neither walk through nor store.
    """

    def decorate(fn: Callable[P, Run]) -> RunFlow[P]:
        return RunFlow(fn, name, opaque)

    return decorate


def _describe_mistakes(flow: str, error: ParameterTypeError) -> str:
    """Return in one line what is wrong with the parameters of a call."""
    cause = error.__context__
    if not isinstance(cause, ValidationError):
        return f"{flow}: {' '.join(str(error).split())}"
    mistakes = []
    for mistake in cause.errors(include_url=False)[:MOST_MISTAKES]:
        # For a union, pydantic puts the branches' own names between those of the fields.
        names = [str(name) for name in mistake["loc"] if str(name).isidentifier()]
        value = mistake["input"]
        seen = f" {value!r}" if isinstance(value, str | int | float) else ""
        mistakes.append(f"{'.'.join(names)}{seen[:80]}: {mistake['msg']}")
    return f"The call of {flow} has parameters that it cannot use: {'; '.join(mistakes)}."


def _is_plain(value: Any) -> bool:
    if isinstance(value, list):
        return len(value) <= 1000 and all(isinstance(item, str) for item in value)
    return value is None or isinstance(value, str | PurePath)


def _stored(value: Any) -> Any:
    if isinstance(value, _Opaque):
        return f"<{type(value.value).__name__}>"
    if isinstance(value, BaseModel):
        value = value.model_dump(mode="json")
    elif isinstance(value, PurePath):
        value = str(value)
    try:
        text = json.dumps(value)
    except (TypeError, ValueError, RecursionError):
        name = getattr(value, "__qualname__", type(value).__name__)
        return f"<{name}>"
    return value if len(text) <= LARGEST_PARAMETER_BYTES else f"<{type(value).__name__}>"


def _flow_run_name() -> str:
    from prefect.runtime import flow_run

    return str(flow_run.parameters.get("run_id") or flow_run.flow_name)


@contextmanager
def _settings() -> Iterator[None]:
    """Set what a run needs of Prefect, where the user has not set it."""
    wanted: dict[Any, Any] = {
        # A fresh database took 15 s on an idle machine, and over the 20 s allowed on a busy one.
        PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS: 120,
        PREFECT_SERVER_ANALYTICS_ENABLED: False,
        # The run is safe on the store: do not wait minutes for a server that is gone.
        PREFECT_CLIENT_MAX_RETRIES: 2,
    }
    with temporary_settings(set_defaults=wanted):
        yield


def state_of(run: Run) -> State[Any]:
    """Return the Prefect state that a run ends its flow run in.

    SUCCESS is Completed; PARTIAL_FAILURE is Completed with that name; FAILURE is Failed; CANCELLED
    is Cancelled. The latter two hold an error, which calling the flow raises.
    """
    message = "" if run.summary is None else run.summary.message
    match run.status:
        case RunStatus.FAILURE:
            return Failed(name="FAILURE", message=message, data=RunFailed(_explain(run), run))
        case RunStatus.CANCELLED:
            return Cancelled(message=message, data=RunCancelled(_explain(run), run))
        case RunStatus.SUCCESS:
            return Completed(message=message, data=run)
        case status:
            return Completed(name=status.value, message=message, data=run)


def _result_of(run: Run) -> Run:
    match run.status:
        case RunStatus.FAILURE:
            _raise(RunFailed(_explain(run), run))
        case RunStatus.CANCELLED:
            _raise(RunCancelled(_explain(run), run))
    return run


def _raise(error: Exception) -> NoReturn:
    # What went wrong between us and the server is beside the point by now.
    raise error from None


def _explain(run: Run) -> str:
    """Return a sentence with the first causes."""
    message = "" if run.summary is None else run.summary.message
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
