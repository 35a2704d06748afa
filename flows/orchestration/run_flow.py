"""What a person calls to begin a run: without Prefect where no server is named, else as a flow."""

import functools
import inspect
import os
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, cast

from pydantic import BaseModel, ConfigDict, ValidationError, create_model

from partwise.calls.call import Call, CallKind, roles
from partwise.calls.descriptions import with_parameters
from partwise.errors import InputError, PartwiseError
from partwise.flows.orchestration.direct import direct_call, runs_directly, say_so
from partwise.flows.orchestration.endings import cancelled, mask_logs, result_of
from partwise.flows.orchestration.interruption import (
    interruption,
    interrupts,
    noticed,
    watched_work,
)
from partwise.flows.orchestration.notebook import quiet_notebook
from partwise.flows.orchestration.python_signature import flow_signature, python_signature
from partwise.flows.orchestration.run_ids import fill_in, reference_of_flow_run, run_id_of_flow_run
from partwise.flows.orchestration.saved_blocks import open_store
from partwise.flows.orchestration.source_lines import source_lines
from partwise.planning.named_runs import names_open_run, with_named_runs
from partwise.processes.garbage import collecting_rarely
from partwise.renamed import old_names_in
from partwise.runs.pipeline import Pipeline
from partwise.runs.run import Run
from partwise.stand_ins import load
from partwise.tasks.steps import named, run_logger

if TYPE_CHECKING:
    from partwise.flows.orchestration.started_run import StartedRun

MOST_MISTAKES = 4
"""So many stand in one message."""
USED_RUN_IDS = ("training_run_id", "export_run_id", "inference_run_id")
"""Parameters that name an earlier run; the scheduled time can stand in them."""
USED_MODELS = ("models", "candidates", "fallback")
"""Those that name models, such as run://night-3, or several; likewise."""

P = ParamSpec("P")
C = TypeVar("C", bound=Call)
R = TypeVar("R", bound=Run | Pipeline)


class Opaque:
    """A value that Prefect should neither walk through nor store."""

    def __init__(self, value: Any) -> None:
        self.value = value


class RunFlow(Generic[P, R]):
    """A flow around a run of partitions, or around a pipeline of runs.

    It stands for a flow of Prefect's, which is made when somebody asks for something of it: to
    import Prefect takes a second, and a call without a server needs nothing of it.
    """

    def __init__(self, fn: Callable[[Any], R], name: str, call: type[Call]) -> None:
        functools.update_wrapper(self, fn)
        del self.__wrapped__
        self.__doc__ = with_parameters(fn.__doc__ or "", call)
        self.name = name
        self.call, self._function = call, fn
        self.opaque = tuple(key for key, role in roles(call).items() if role.is_data)
        self.signature = flow_signature(call, inspect.signature(fn).return_annotation)
        # What `help()` and notebooks show; Prefect looks at the other one.
        self.__signature__ = python_signature(self.signature)

    @functools.cached_property
    def flow(self) -> Any:
        """The flow of Prefect's."""
        with collecting_rarely():
            from partwise.flows.orchestration.prefect_flow import PrefectFlow

            return PrefectFlow(self)

    def __getattr__(self, name: str) -> Any:
        # Who looks at what a module holds, such as pickle, asks for these of anything.
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.flow, name)

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        """That of Prefect's flow, which loads one by its entrypoint and looks whether it is one.

        Whoever asks whether it is a `RunFlow` is answered by its type, without this.
        """
        return type(self.flow)

    def __get__(self, instance: object, owner: type) -> "RunFlow[P, R]":
        """What has this is a function to `help()`, which then shows how it is called."""
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return load, ("partwise.flows", self.call.flow())

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run the flow: as a flow run of Prefect, or without it where no server is named.

        Returns:
            The run, when it ended with SUCCESS, PARTIAL_FAILURE or SKIPPED.

        Raises:
            RunFailedError: It ended with FAILURE; carries the run.
            RunCancelledError: It was cancelled; carries the run.
        """
        bound = self._bound(args, kwargs)
        try:
            with interruption() as interrupted_call, watched_work() as work, quiet_notebook():
                mask_logs()
                is_direct = runs_directly()
                try:
                    return self._call_directly(bound) if is_direct else self.flow.run(bound)
                except KeyboardInterrupt:
                    interrupted_call.end()
                    if interrupted_call.has_pressed and not is_direct:
                        # Something hung, and was left to itself; Prefect's server perhaps.
                        self.flow.forget_unsent()
                    run_id = str(bound.arguments.get("run_id") or "")
                    raise cancelled(run_id, has_begun=work.has_begun) from None
        except PartwiseError as error:
            if os.environ.get("PARTWISE_DEBUG"):
                raise
            # Our frames and those of Prefect's engine, forty lines, tell nobody anything.
            raise error.with_traceback(None) from error.__cause__

    def start(self, *args: P.args, **kwargs: P.kwargs) -> "StartedRun[R]":
        """Call the flow in a process of its own, and return at once.

        Raises:
            InputError: An argument cannot be used, or is only in this process: nothing was started.
        """
        from partwise.flows.orchestration.started_run import StartedRun

        bound = self._bound(args, kwargs)
        given = {
            key: value.value if isinstance(value, Opaque) else value
            for key, value in bound.arguments.items()
        }
        bound.apply_defaults()
        # The caller is to know which run it is before its process has begun.
        run_id = self.fill_in(self.checked(bound.arguments, self._valid))["run_id"]
        return StartedRun(self.call.flow(), {**given, "run_id": run_id})

    def _bound(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> inspect.BoundArguments:
        """Return the arguments of a call by name, with data as Prefect is to leave it."""
        self.refuse_old_names(kwargs)
        bound = self.signature.bind(*args, **kwargs)
        for key in self.opaque:
            if not is_plain(bound.arguments.get(key)):
                bound.arguments[key] = Opaque(bound.arguments[key])
        return bound

    def _call_directly(self, bound: inspect.BoundArguments) -> R:
        """Run the flow without Prefect; what it returns and raises is what a flow run does."""
        bound.apply_defaults()
        with direct_call():
            arguments = self.fill_in(self.checked(bound.arguments, self._valid))
            with named(arguments["run_id"]):
                say_so()
                return result_of(self.carry_out(arguments))

    def carry_out(self, arguments: Mapping[str, Any]) -> R:
        """Carry out a call.

        Raises:
            RunCancelledError: It was interrupted before its run had ended.
        """
        with watched_work() as work:
            work.run_id = work.run_id or arguments["run_id"]
            try:
                with noticed(), source_lines():
                    return self._function(self._call_of(arguments))
            except interrupts():
                # A pipeline has its other stages to do, and ends.
                if work.ended is not None and work.ended.run_id == work.run_id:
                    run_logger().warning(
                        "Run %s had ended when it was interrupted: its report may be missing.",
                        work.run_id,
                    )
                    return cast("R", work.ended)
                raise cancelled(arguments["run_id"], has_begun=work.has_begun) from None

    def _call_of(self, arguments: Mapping[str, Any]) -> Call:
        """Return the call, with the runs that "latest" and patterns mean, and say which these are.

        Here, since a call from Python, a command and a deployment all come by.
        """
        call = self.call(**arguments)
        if not names_open_run(call):
            return call
        call, sentences = with_named_runs(call, open_store(call.store))
        for sentence in sentences:
            run_logger().info("%s", sentence)
        return call

    def fill_in(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments with data as it is, and run IDs in place of their templates."""
        filled = {
            key: value.value if isinstance(value, Opaque) else value
            for key, value in arguments.items()
        }
        filled["run_id"] = own_run_id(filled, self.call.kind)
        for name in USED_RUN_IDS:
            if "{" in (template := filled.get(name) or ""):
                filled[name] = run_id_of_flow_run(template, self.call.kind)
        for name in USED_MODELS:
            named = filled.get(name)
            if isinstance(named, str):
                filled[name] = reference_of_flow_run(named, self.call.kind)
            elif isinstance(named, list | tuple):
                filled[name] = [
                    reference_of_flow_run(each, self.call.kind) if isinstance(each, str) else each
                    for each in named
                ]
        return filled

    def checked(
        self,
        parameters: Mapping[str, Any],
        valid: Callable[[dict[str, Any]], dict[str, Any]],
    ) -> dict[str, Any]:
        """Return parameters as they are validated by `valid`, but for those that hold data.

        Raises:
            InputError: One is of a wrong type, or none of the choices.
            RunIdError: The run ID, or what its template comes to, is not a safe name.
        """
        self.refuse_old_names(parameters)
        kept = {key: value for key, value in parameters.items() if isinstance(value, Opaque)}
        blank = {key: None if key in kept else value for key, value in parameters.items()}
        found = {**valid(blank), **kept}
        if found.get("run_id"):
            # Only to refuse a bad template now: for when it is due is known in the flow run.
            fill_in(found["run_id"], datetime.now(UTC))
        return found

    @functools.cached_property
    def _model(self) -> type[BaseModel]:
        """What pydantic makes of the signature, as Prefect has it make it."""
        fields: dict[str, Any] = {
            each.name: (each.annotation, ... if each.default is each.empty else each.default)
            for each in self.signature.parameters.values()
        }
        return create_model(
            self.name, __config__=ConfigDict(arbitrary_types_allowed=True), **fields
        )

    def _valid(self, parameters: dict[str, Any]) -> dict[str, Any]:
        try:
            return dict(self._model.model_validate(parameters))
        except ValidationError as error:
            raise InputError(describe_mistakes(self.name, error)) from None

    def refuse_old_names(self, parameters: Mapping[str, Any]) -> None:
        """Refuse arguments by names that they had once, and say what they are called now."""
        flow = self.call.flow()
        for sentence in old_names_in(flow, parameters):
            raise InputError(f"{flow}: the argument {sentence}.")


def run_flow(call: Callable[P, C], name: str) -> Callable[[Callable[[C], R]], "RunFlow[P, R]"]:
    """Decorate a function that carries out a call, and returns a `Run` or a `Pipeline`, as a flow.

    Args:
        call: The class of the call. Whoever calls the flow gives what makes one.
        name: The flow's name in Prefect.
    """

    def decorate(fn: Callable[[C], R]) -> RunFlow[P, R]:
        # By the ParamSpec, mypy knows the class as a function only, without its attributes.
        return RunFlow(fn, name, cast("type[Call]", call))

    return decorate


def describe_mistakes(flow: str, error: ValidationError) -> str:
    """Return in one line what is wrong with the parameters of a call."""
    mistakes = []
    for mistake in error.errors(include_url=False)[:MOST_MISTAKES]:
        # For a union, pydantic puts the branches' own names between those of the fields.
        names = [str(name) for name in mistake["loc"] if str(name).isidentifier()]
        value = mistake["input"]
        seen = f" {value!r}" if isinstance(value, str | int | float) else ""
        mistakes.append(f"{'.'.join(names)}{seen[:80]}: {mistake['msg']}")
    return f"The call of {flow} has parameters that it cannot use: {'; '.join(mistakes)}."


def is_plain(value: Any) -> bool:
    """Whether a parameter is a name or names, which Prefect may store."""
    if isinstance(value, list):
        return len(value) <= 1000 and all(isinstance(item, str) for item in value)
    return value is None or isinstance(value, str | PurePath)


def own_run_id(parameters: Mapping[str, Any], kind: CallKind) -> str:
    """Return the ID of the run of a call: as given, filled in, or made up."""
    return run_id_of_flow_run(parameters.get("run_id") or "", kind)
