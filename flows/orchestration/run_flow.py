"""A Prefect flow whose data stays out of its database, and whose result outlives the server."""

import functools
import inspect
import json
import logging
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from pathlib import PurePath
from typing import Any, Generic, ParamSpec, TypeVar, cast

import httpx
from prefect import Flow
from prefect.client.schemas.objects import State
from prefect.context import FlowRunContext
from prefect.exceptions import ParameterTypeError, TerminationSignal
from prefect.settings import (
    PREFECT_CLIENT_MAX_RETRIES,
    PREFECT_SERVER_ANALYTICS_ENABLED,
    PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS,
    temporary_settings,
)
from prefect.task_runners import TaskRunner, ThreadPoolTaskRunner
from pydantic import BaseModel, ValidationError
from pydantic_core import PydanticSerializationError

from partwise.calls.call import Call, CallKind, roles
from partwise.calls.descriptions import with_parameters
from partwise.errors import InputError, PartwiseError, RunCancelledError, RunFailedError
from partwise.flows.orchestration.announcement import announce
from partwise.flows.orchestration.direct import direct_call, runs_directly, say_so
from partwise.flows.orchestration.embedded_server import forget_unsent, start_embedded_server
from partwise.flows.orchestration.interruption import interruption, noticed, watched_work
from partwise.flows.orchestration.python_signature import flow_signature, python_signature
from partwise.flows.orchestration.run_ids import fill_in, run_id_of_flow_run
from partwise.flows.orchestration.source_lines import source_lines
from partwise.flows.orchestration.states import (
    cancelled,
    ended_early,
    mask_logs,
    refused,
    result_of,
    state_of,
    unexpected,
)
from partwise.flows.orchestration.suspension import suspension
from partwise.redaction import masked
from partwise.renamed import old_names_in
from partwise.runs.pipeline import Pipeline
from partwise.runs.run import Run
from partwise.scripts.infrastructure import is_work_pool
from partwise.sources.opening import OpenedData
from partwise.tasks.steps import named

TASK_THREADS = 16
LARGEST_PARAMETER_BYTES = 32 << 10
MOST_MISTAKES = 4
"""So many stand in one message."""
USED_RUN_IDS = ("training_run_id", "export_run_id")
"""Parameters that name an earlier run; the scheduled time can stand in them."""

_THREADS: TaskRunner[Any] = ThreadPoolTaskRunner(max_workers=TASK_THREADS)

P = ParamSpec("P")
C = TypeVar("C", bound=Call)
R = TypeVar("R", bound=Run | Pipeline)
logger = logging.getLogger(__name__)

# A list, since the body of a flow works in a copy of the context of its caller.
_ended: ContextVar[list[Any] | None] = ContextVar("partwise_ended_runs", default=None)


class _Opaque:
    """A value that Prefect should neither walk through nor store."""

    def __init__(self, value: Any) -> None:
        self.value = value


class RunFlow(Flow[P, Any], Generic[P, R]):
    """A flow around a run of partitions, or around a pipeline of runs.

    Frames and large params never reach Prefect's database, and when its server dies in mid-run, the
    run goes on and the caller gets it all the same.
    """

    def __init__(self, fn: Callable[[Any], R], name: str, call: type[Call]) -> None:
        self._opaque = tuple(key for key, role in roles(call).items() if role.is_data)
        self._kind = call.kind
        self._call = call
        self._function = fn
        signature = flow_signature(call, inspect.signature(fn).return_annotation)

        @functools.wraps(fn)
        def body(*args: Any, **kwargs: Any) -> State[Any]:
            arguments = self._fill_in(signature.bind(*args, **kwargs).arguments)
            with suspension() as suspended:
                return suspended.settle(self._end_of(arguments))

        body.__signature__ = signature  # type: ignore[attr-defined]
        body.__doc__ = with_parameters(fn.__doc__ or "", call)
        super().__init__(
            fn=body,
            name=name,
            flow_run_name=lambda: _run_id(_parameters(), call.kind),
            task_runner=_THREADS,
            persist_result=False,
        )
        # What `help()` and notebooks show; Prefect looks at that of `body`.
        self.__signature__ = python_signature(signature)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:  # type: ignore[override]
        """Run the flow: as a flow run of Prefect, or without it where no server is named.

        Returns:
            The run, when it ended with SUCCESS, PARTIAL_FAILURE or SKIPPED.

        Raises:
            RunFailedError: It ended with FAILURE; carries the run.
            RunCancelledError: It was cancelled; carries the run.
        """
        self._refuse_old_names(kwargs)
        bound = inspect.signature(self.fn).bind(*args, **kwargs)
        for key in self._opaque:
            if not _is_plain(bound.arguments.get(key)):
                bound.arguments[key] = _Opaque(bound.arguments[key])
        ended: list[Any] = []
        token = _ended.set(ended)
        try:
            with interruption() as interrupted_call, watched_work() as work:
                mask_logs()
                try:
                    if runs_directly():
                        return self._call_directly(bound)
                    with _settings():
                        start_embedded_server()
                        run: R = super().__call__(*bound.args, **bound.kwargs)
                except KeyboardInterrupt:
                    interrupted_call.end()
                    if interrupted_call.has_pressed:
                        # Something hung, and was left to itself; Prefect's server perhaps.
                        forget_unsent()
                    run_id = str(bound.arguments.get("run_id") or "")
                    raise cancelled(run_id, has_begun=work.has_begun) from None
                return run
        except PartwiseError as error:
            if os.environ.get("PARTWISE_DEBUG"):
                raise
            # Our frames and those of Prefect's engine, forty lines, tell nobody anything.
            raise error.with_traceback(None) from error.__cause__
        except httpx.HTTPError as error:
            if not ended:
                raise
            run_id = ended[-1].run_id
            logger.warning("Prefect's server went away before the run %s ended: %s", run_id, error)
            forget_unsent()
            found: R = result_of(ended[-1])
            return found
        finally:
            _ended.reset(token)

    def _call_directly(self, bound: inspect.BoundArguments) -> R:
        """Run the flow without Prefect; what it returns and raises is what a flow run does."""
        bound.apply_defaults()
        with direct_call():
            arguments = self._fill_in(self.validate_parameters(bound.arguments))
            with named(arguments["run_id"]):
                say_so()
                return result_of(self._carry_out(arguments))

    def _end_of(self, arguments: Mapping[str, Any]) -> State[Any]:
        """Run the flow within a flow run of Prefect, and return the state that this ends in."""
        try:
            run = self._carry_out(arguments)
        except (RunFailedError, RunCancelledError) as error:
            # It was interrupted; or it is that of a stage of a pipeline.
            return ended_early(error)
        except PartwiseError as error:
            return refused(error)
        except Exception as error:
            return unexpected(error)
        ended = _ended.get()
        if ended is not None:
            ended.append(run)
        if not is_work_pool(arguments.get("cluster")):
            # There, the flow run that did the work has announced it.
            announce(run)
        return state_of(run)

    def _carry_out(self, arguments: Mapping[str, Any]) -> R:
        with watched_work() as work:
            try:
                with noticed(), source_lines():
                    return self._function(self._call(**arguments))
            except (KeyboardInterrupt, TerminationSignal):
                raise cancelled(arguments["run_id"], has_begun=work.has_begun) from None

    def _fill_in(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments with data as it is, and run IDs in place of their templates."""
        filled = {
            key: value.value if isinstance(value, _Opaque) else value
            for key, value in arguments.items()
        }
        filled["run_id"] = _run_id(filled, self._kind)
        for name in USED_RUN_IDS:
            if "{" in (template := filled.get(name) or ""):
                filled[name] = run_id_of_flow_run(template, self._kind)
        return filled

    def validate_parameters(self, parameters: dict[str, Any]) -> dict[str, Any]:
        """Validate all parameters but those that hold data.

        Raises:
            InputError: One is of a wrong type, or none of the choices.
            RunIdError: The run ID, or what its template comes to, is not a safe name.
        """
        # Where a worker of Prefect's runs the flow, this is the first that is called of it.
        mask_logs()
        self._refuse_old_names(parameters)
        kept = {key: value for key, value in parameters.items() if isinstance(value, _Opaque)}
        blank = {key: None if key in kept else value for key, value in parameters.items()}
        try:
            valid = {**super().validate_parameters(blank), **kept}
        except ParameterTypeError as error:
            raise InputError(_describe_mistakes(self.name, error)) from None
        if valid.get("run_id"):
            # Only to refuse a bad template now: for when it is due is known in the flow run.
            fill_in(valid["run_id"], datetime.now(UTC))
        return valid

    def _refuse_old_names(self, parameters: Mapping[str, Any]) -> None:
        flow = self._call.flow()
        for sentence in old_names_in(flow, parameters):
            raise InputError(f"{flow}: the argument {sentence}.")

    def serialize_parameters(self, parameters: dict[str, Any]) -> dict[str, Any]:
        """Return the parameters as Prefect may store them: small plain values, or a type's name."""
        return {key: _stored(value) for key, value in parameters.items()}


def run_flow(call: Callable[P, C], name: str) -> Callable[[Callable[[C], R]], "RunFlow[P, R]"]:
    """Decorate a function that carries out a call, and returns a `Run` or a `Pipeline`, as a flow.

    Args:
        call: The class of the call. Whoever calls the flow gives what makes one.
        name: The flow's name in Prefect.
    """

    def decorate(fn: Callable[[C], R]) -> RunFlow[P, R]:
        return RunFlow(fn, name, cast("type[Call]", call))

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
    if isinstance(value, _Opaque) and isinstance(value.value, OpenedData):
        name = value.value.name
        value = name if _is_plain(name) else _Opaque(name)
    if isinstance(value, _Opaque):
        return f"<{type(value.value).__name__}>"
    if isinstance(value, BaseModel):
        value = _dumped(value)
    elif isinstance(value, PurePath):
        value = str(value)
    elif isinstance(value, list | tuple):
        value = [_dumped(item) if isinstance(item, BaseModel) else item for item in value]
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


def _run_id(parameters: Mapping[str, Any], kind: CallKind) -> str:
    return run_id_of_flow_run(parameters.get("run_id") or "", kind)


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
