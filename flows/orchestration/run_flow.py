"""What a person calls to begin a run: without Prefect where no server is named, else as a flow."""

import inspect
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, cast

from partwise.calls.call import Call, CallKind, roles
from partwise.calls.descriptions import with_parameters
from partwise.errors import InputError
from partwise.flows.orchestration.direct import direct_call, say_so
from partwise.flows.orchestration.endings import cancelled, mask_logs, result_of
from partwise.flows.orchestration.interruption import (
    interruption,
    interrupts,
    noticed,
    watched_work,
)
from partwise.flows.orchestration.lazy_flow import LazyFlow
from partwise.flows.orchestration.notebook import quiet_notebook
from partwise.flows.orchestration.python_signature import flow_signature
from partwise.flows.orchestration.run_ids import fill_in, reference_of_flow_run, run_id_of_flow_run
from partwise.flows.orchestration.saved_blocks import open_store
from partwise.flows.orchestration.source_lines import source_lines
from partwise.planning.named_runs import NAME_RUNS, NAMES_RUN, names_open_run, with_named_runs
from partwise.renamed import old_names_in
from partwise.runs.pipeline import Pipeline
from partwise.runs.run import Run
from partwise.tasks.steps import named, run_logger

if TYPE_CHECKING:
    from partwise.flows.orchestration.started_run import StartedRun

P = ParamSpec("P")
C = TypeVar("C", bound=Call)
R = TypeVar("R", bound=Run | Pipeline)


class Opaque:
    """A value that Prefect should neither walk through nor store."""

    def __init__(self, value: Any) -> None:
        self.value = value


class RunFlow(LazyFlow[P, R]):
    """A flow around a run of partitions, or around a pipeline of runs."""

    def __init__(self, fn: Callable[[Any], R], name: str, call: type[Call]) -> None:
        super().__init__(fn, name, flow_signature(call, inspect.signature(fn).return_annotation))
        self.__doc__ = with_parameters(fn.__doc__ or "", call)
        self.call, self._function = call, fn
        self.opaque = tuple(key for key, role in roles(call).items() if role.is_data)

    def make_flow(self) -> Any:
        """Return the flow of Prefect's."""
        from partwise.flows.orchestration.prefect_flow import PrefectFlow

        return PrefectFlow(self)

    def run_bound(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> R:
        """Run the flow.

        Returns:
            The run, when it ended with SUCCESS, PARTIAL_FAILURE or SKIPPED.

        Raises:
            RunFailedError: It ended with FAILURE; carries the run.
            RunCancelledError: It was cancelled; carries the run.
        """
        bound = self._bound(args, kwargs)
        with interruption() as interrupted_call, watched_work() as work, quiet_notebook():
            mask_logs()
            is_direct = self.runs_directly()
            try:
                return self._call_directly(bound) if is_direct else self.flow.run(bound)
            except KeyboardInterrupt:
                interrupted_call.end()
                if interrupted_call.has_pressed and not is_direct:
                    from partwise.flows.orchestration.embedded_server import forget_unsent

                    # Something hung, and was left to itself; Prefect's server perhaps.
                    forget_unsent()
                run_id = str(bound.arguments.get("run_id") or "")
                raise cancelled(run_id, has_begun=work.has_begun) from None

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
        run_id = self.fill_in(self.checked(bound.arguments, self.valid))["run_id"]
        return StartedRun(self.call.flow(), {**given, "run_id": run_id})

    def _bound(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> inspect.BoundArguments:
        """Return the arguments of a call by name, with data as Prefect is to leave it."""
        self.refuse_old_names(kwargs)
        bound = self.bind(args, kwargs)
        for key in self.opaque:
            if not is_plain(bound.arguments.get(key)):
                bound.arguments[key] = Opaque(bound.arguments[key])
        return bound

    def _call_directly(self, bound: inspect.BoundArguments) -> R:
        """Run the flow without Prefect; what it returns and raises is what a flow run does."""
        bound.apply_defaults()
        with direct_call():
            arguments = self.fill_in(self.checked(bound.arguments, self.valid))
            with named(arguments["run_id"]), watched_work() as work:
                work.at_claim = say_so
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
        for name in (*NAMES_RUN, *NAME_RUNS):
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

    def refuse_old_names(self, parameters: Mapping[str, Any]) -> None:
        """Refuse arguments by names that they had once, and say what they are called now."""
        flow = self.call.flow()
        for sentence in old_names_in(flow, parameters):
            raise InputError(f"{flow}: the argument {sentence}.")


def run_flow(call: Callable[P, C], name: str) -> Callable[[Callable[[C], R]], "RunFlow[P, R]"]:
    """Decorate a function that carries out a call, and returns a `Run` or a `Pipeline`, as a flow.

    Whoever calls the flow gives what makes a call of the class; `name` is its name in Prefect.
    """

    def decorate(fn: Callable[[C], R]) -> RunFlow[P, R]:
        # By the ParamSpec, mypy knows the class as a function only, without its attributes.
        return RunFlow(fn, name, cast("type[Call]", call))

    return decorate


def is_plain(value: Any) -> bool:
    """Whether a parameter is a name or names, which Prefect may store."""
    if isinstance(value, list):
        return len(value) <= 1000 and all(isinstance(item, str) for item in value)
    return value is None or isinstance(value, str | PurePath)


def own_run_id(parameters: Mapping[str, Any], kind: CallKind) -> str:
    """Return the ID of the run of a call: as given, filled in, or made up."""
    return run_id_of_flow_run(parameters.get("run_id") or "", kind)
