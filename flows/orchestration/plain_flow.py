"""Flows of Prefect's that return a plain value, and need no server either."""

import inspect
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from prefect import Flow
from prefect.client.schemas.objects import FlowRun, State

from partwise.flows.orchestration.announcement import announce_schedule
from partwise.flows.orchestration.direct import direct_call, runs_directly, say_so
from partwise.flows.orchestration.embedded_server import start_embedded_server
from partwise.tasks.steps import named

P = ParamSpec("P")
R = TypeVar("R")


class PlainFlow(Flow[P, R]):
    """A flow that returns a plain value, and is called directly where no server is named."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:  # type: ignore[override]
        """Run the flow, and return its value."""
        if not runs_directly():
            start_embedded_server()
            value: R = super().__call__(*args, **kwargs)
            return value
        function: Callable[..., R] = self.fn
        bound = inspect.signature(function).bind(*args, **kwargs)
        bound.apply_defaults()
        with direct_call(), named(self.name):
            say_so()
            # As a flow run does, so that both refuse the same.
            return function(**self.validate_parameters(bound.arguments))


def _announce(flow: Flow[Any, Any], flow_run: FlowRun, state: State[Any]) -> None:
    """Be a hook of Prefect's, which names these three."""
    del flow, state
    announce_schedule(flow_run)


def plain_flow(name: str) -> Callable[[Callable[P, R]], PlainFlow[P, R]]:
    """Decorate a function that returns a plain value as a flow of a name."""

    def decorate(fn: Callable[P, R]) -> PlainFlow[P, R]:
        return PlainFlow(fn, name=name, persist_result=False, on_running=[_announce])

    return decorate
