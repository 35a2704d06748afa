"""Flows that return a plain value."""

import inspect
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from partwise.flows.orchestration.direct import direct_call
from partwise.flows.orchestration.lazy_flow import LazyFlow
from partwise.tasks.steps import named

P = ParamSpec("P")
R = TypeVar("R")


class PlainFlow(LazyFlow[P, R]):
    """A flow that returns a plain value."""

    def __init__(self, fn: Callable[P, R], name: str) -> None:
        super().__init__(fn, name, inspect.signature(fn))
        self.function = fn

    def make_flow(self) -> Any:
        """Return the flow of Prefect's."""
        from partwise.flows.orchestration.prefect_plain_flow import PrefectPlainFlow

        return PrefectPlainFlow(self)

    def run_bound(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> R:
        """Run the flow, and return its value."""
        bound = self.bind(args, kwargs)
        if not self.runs_directly():
            value: R = self.flow.run(bound)
            return value
        bound.apply_defaults()
        function: Callable[..., R] = self.function
        with direct_call(), named(self.name):
            # As a flow run does, so that both refuse the same.
            return function(**self.valid(bound.arguments))


def plain_flow(name: str) -> Callable[[Callable[P, R]], PlainFlow[P, R]]:
    """Decorate a function that returns a plain value as a flow of a name."""

    def decorate(fn: Callable[P, R]) -> PlainFlow[P, R]:
        return PlainFlow(fn, name)

    return decorate
