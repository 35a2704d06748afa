"""A Prefect flow whose data stays out of its database, and whose result outlives the server."""

import functools
import inspect
import json
import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import PurePath
from typing import Any, Generic, NamedTuple, TypeVar, cast
from uuid import UUID

import httpx
from prefect import Flow
from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import State
from prefect.context import FlowRunContext
from prefect.exceptions import ParameterTypeError, UnfinishedRun
from prefect.settings import (
    PREFECT_CLIENT_MAX_RETRIES,
    PREFECT_SERVER_ANALYTICS_ENABLED,
    PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS,
    temporary_settings,
)
from prefect.states import Cancelled
from prefect.task_runners import TaskRunner, ThreadPoolTaskRunner
from prefect.utilities.callables import ParameterSchema, parameter_schema
from pydantic import BaseModel, ValidationError
from pydantic_core import PydanticSerializationError

# Prefect finds the classes of blocks that a deployment refers to once this is imported.
import partwise.blocks.saved  # noqa: F401
from partwise.errors import InputError, PartwiseError, RunCancelledError, RunFailedError
from partwise.flows.orchestration.announcement import (
    announce,
    announce_schedule,
    is_of_own_deployment,
)
from partwise.flows.orchestration.embedded_server import forget_unsent, start_embedded_server
from partwise.flows.orchestration.endings import mask_logs, result_of
from partwise.flows.orchestration.lazy_flow import LazyFlow, describe_call
from partwise.flows.orchestration.run_flow import Opaque, RunFlow, is_plain, own_run_id
from partwise.flows.orchestration.server_client import refused_password
from partwise.flows.orchestration.states import ended_early, refused, state_of, unexpected
from partwise.flows.orchestration.suspension import suspension
from partwise.outcomes import RunStatus
from partwise.processes.garbage import collect_rarely
from partwise.redaction import masked
from partwise.runs.pipeline import Pipeline
from partwise.runs.run import Run
from partwise.scripts.infrastructure import is_work_pool
from partwise.sources.opening import OpenedData
from partwise.tasks.flow_run import has_own_process

# With Prefect's own number, 200 task runs took 192 threads and 153 MB.
TASK_THREADS = 16
# Prefect's server refuses parameters of more than 512 KiB in all.
LARGEST_PARAMETER_BYTES = 32 << 10

_THREADS: TaskRunner[Any] = ThreadPoolTaskRunner(max_workers=TASK_THREADS)

R = TypeVar("R", bound=Run | Pipeline)
logger = logging.getLogger(__name__)


class _End(NamedTuple):
    """What a flow has come to, whatever Prefect's server makes of it."""

    flow_run_id: UUID
    outcome: Any
    """A run, or what the call raises."""
    message: str


# A list, since the body of a flow works in a copy of the context of its caller.
_ended: ContextVar[list[_End] | None] = ContextVar("partwise_ended_runs", default=None)


class OwnFlow(Flow[..., Any]):
    """What a `LazyFlow` is to Prefect."""

    _called: LazyFlow[..., Any]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Do what calling the `LazyFlow` does."""
        return self._called(*args, **kwargs)

    def validate_parameters(self, parameters: dict[str, Any]) -> dict[str, Any]:
        """Validate all parameters, with saved blocks in the places of their references.

        Raises:
            InputError: One is of a wrong type, or none of the choices.
        """
        # Where a worker of Prefect's runs the flow, this is the first that is called of it.
        mask_logs()
        try:
            return super().validate_parameters(parameters)
        except ParameterTypeError as error:
            cause = error.__context__
            if isinstance(cause, ValidationError):
                raise InputError(describe_call(self.name, cause)) from None
            raise InputError(f"{self.name}: {' '.join(str(error).split())}") from None

    def serialize_parameters(self, parameters: dict[str, Any]) -> dict[str, Any]:
        """Return the parameters as Prefect may store them: small plain values, or a type's name."""
        return {key: _stored(value) for key, value in parameters.items()}


class PrefectFlow(OwnFlow, Generic[R]):
    """What a `RunFlow` is to Prefect.

    Frames and large params never reach Prefect's database, and when its server dies in mid-run, the
    run goes on and the caller gets it all the same.
    """

    _called: RunFlow[Any, R]

    def __init__(self, called: RunFlow[Any, R]) -> None:
        self._called = called

        # Not its attributes, of which Prefect would take the name before one that is an option.
        @functools.wraps(called, updated=())
        def body(*args: Any, **kwargs: Any) -> State[Any]:
            if has_own_process():
                collect_rarely()
            announce_schedule()
            arguments = called.fill_in(called.bind(args, kwargs).arguments)
            with suspension() as suspended:
                state = suspended.settle(self._end_of(arguments))
            _keep_end(state)
            return state

        # Prefect has pydantic make the form of a flow, and what validates a call, as the flow is
        # made, and again when they are needed: 0.4 s, which a function of nothing does not take.
        body.__signature__ = inspect.Signature()  # type: ignore[attr-defined]
        super().__init__(
            fn=body,
            name=called.name,
            flow_run_name=lambda: own_run_id(_parameters(), called.call.kind),
            task_runner=_THREADS,
            # The store has the run; where Prefect keeps it too, it warns of what does not pickle.
            persist_result=False,
        )
        body.__signature__ = called.signature  # type: ignore[attr-defined]
        del self.parameters
        self.__signature__ = called.__signature__

    @functools.cached_property
    def parameters(self) -> ParameterSchema:  # type: ignore[override]
        """The form of the flow, as Prefect has it."""
        return parameter_schema(self.fn)

    def run(self, bound: inspect.BoundArguments) -> R:
        """Run the flow as a flow run, and return what its call returns."""
        ended: list[_End] = []
        token = _ended.set(ended)
        try:
            with _settings():
                start_embedded_server()
                run: R = Flow.__call__(self, *bound.args, **bound.kwargs)
                return run
        except RunFailedError as error:
            if error.run is None or error.run.status is not RunStatus.PARTIAL_FAILURE:
                raise
            # Only Prefect was to take it for failed.
            partial: R = error.run
            return partial
        except httpx.HTTPError as error:
            if not ended:
                if (refusal := refused_password(error)) is not None:
                    raise refusal from error
                raise
            logger.warning(
                "Prefect's server went away before the flow run %s ended: %s",
                ended[-1].flow_run_id,
                error,
            )
            forget_unsent()
            return self._outcome(ended[-1])
        except UnfinishedRun:
            if not ended:
                raise
            # It was cancelled in the UI when all was done. Prefect takes just one end then, and
            # would show the flow run as Cancelling for ever.
            message = f"It had ended when it was cancelled. {ended[-1].message}"
            # What a client says of a server that it cannot reach is a RuntimeError.
            with suppress(httpx.HTTPError, RuntimeError), get_client(sync_client=True) as client:
                client.set_flow_run_state(ended[-1].flow_run_id, Cancelled(message=message))
            return self._outcome(ended[-1])
        finally:
            _ended.reset(token)

    @staticmethod
    def _outcome(end: _End) -> R:
        error = end.outcome
        if isinstance(error, RunFailedError) and error.run is not None:
            return cast("R", result_of(error.run))
        if isinstance(error, BaseException):
            raise error
        return cast("R", error)

    def _end_of(self, arguments: Mapping[str, Any]) -> State[Any]:
        """Run the flow within a flow run of Prefect, and return the state that this ends in."""
        try:
            run = self._called.carry_out(arguments)
        except (RunFailedError, RunCancelledError) as error:
            # It was interrupted; or it is that of a stage of a pipeline.
            if error.run is not None:
                announce(error.run, pipeline=arguments["run_id"])
            return ended_early(error)
        except PartwiseError as error:
            return refused(error)
        except Exception as error:
            return unexpected(error)
        # In a pool, the flow run that did the work has announced it, as of its own deployment.
        if not is_work_pool(arguments.get("cluster")) or is_of_own_deployment():
            announce(run)
        execution = arguments.get("execution")
        return state_of(run, getattr(execution, "partial_failure", "completed"))

    def validate_parameters(self, parameters: dict[str, Any]) -> dict[str, Any]:
        """Validate all parameters but those that hold data.

        Raises:
            InputError: One is of a wrong type, or none of the choices.
            RunIdError: The run ID, or what its template comes to, is not a safe name.
        """
        # Before old names are refused.
        mask_logs()
        found: dict[str, Any] = self._called.checked(parameters, super().validate_parameters)
        return found


def _keep_end(state: State[Any]) -> None:
    ended, context = _ended.get(), FlowRunContext.get()
    if ended is not None and context and context.flow_run and state.is_final():
        # Prefect puts something else in the place of a state's data.
        ended.append(_End(context.flow_run.id, state.data, state.message or ""))


def _stored(value: Any) -> Any:
    if isinstance(value, Opaque) and isinstance(value.value, OpenedData):
        name = value.value.name
        value = name if is_plain(name) else Opaque(name)
    if isinstance(value, Opaque):
        return f"<{type(value.value).__name__}>"
    if isinstance(value, BaseModel):
        value = _dumped(value)
    elif isinstance(value, PurePath):
        value = str(value)
    elif isinstance(value, list | tuple):
        value = [_dumped(item) if isinstance(item, BaseModel) else item for item in value]
    elif isinstance(value, dict):
        value = {
            name: _dumped(item) if isinstance(item, BaseModel) else item
            for name, item in value.items()
        }
    try:
        # A URI where a block's name or a path belongs may have a password in it.
        value = _within_64_bits(masked(value))
        text = json.dumps(value)
    except (TypeError, ValueError, RecursionError):
        return _named(value)
    return value if len(text) <= LARGEST_PARAMETER_BYTES else f"<{type(value).__name__}>"


def _within_64_bits(value: Any) -> Any:
    """Return plain values with larger whole numbers as text.

    With one of these among its parameters, Prefect's server lists no flow run any more, of any
    flow (PrefectHQ/prefect#15031).
    """
    if isinstance(value, dict):
        return {key: _within_64_bits(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_within_64_bits(each) for each in value]
    return str(value) if isinstance(value, int) and not -(2**63) <= value < 2**64 else value


def _dumped(model: BaseModel) -> dict[str, Any]:
    try:
        return model.model_dump(mode="json")
    except PydanticSerializationError:
        # A trainer with a function of the caller's; a block has none, and takes no fallback.
        return model.model_dump(mode="json", fallback=_named)


def _named(value: Any) -> str:
    return f"<{getattr(value, '__qualname__', type(value).__name__)}>"


def _parameters() -> Mapping[str, Any]:
    context = FlowRunContext.get()
    return {} if context is None else context.parameters or {}


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
