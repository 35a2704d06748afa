"""Calls of flows that need no Prefect server: where none is named, and nobody asks for one.

A direct call runs the body of its flow in this process. Only its own lines report it,
its run in the store, and what it returns or raises, which are those of a flow run.
"""

import functools
import inspect
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn, ParamSpec, TypeVar

from prefect import Flow
from prefect.context import FlowRunContext, get_settings_context
from prefect.exceptions import TerminationSignal
from prefect.settings import (
    PREFECT_API_URL,
    PREFECT_SERVER_ALLOW_EPHEMERAL_MODE,
    temporary_settings,
)

from partwise.flows.orchestration.embedded_server import start_embedded_server
from partwise.tasks.steps import named, run_logger

P = ParamSpec("P")
R = TypeVar("R")

EPHEMERAL_MODE = ("PREFECT_SERVER_ALLOW_EPHEMERAL_MODE", "PREFECT_SERVER_EPHEMERAL_ENABLED")
"""The environment variables by which a person asks for Prefect's embedded server."""
_SHIPPED_PROFILE = "ephemeral"
"""Prefect's own, of whoever has made none: it allows the embedded server without being asked."""


def runs_directly() -> bool:
    """Whether a call of a flow, here and now, runs without Prefect."""
    return (
        FlowRunContext.get() is None
        and not PREFECT_API_URL.value()
        and not _asks_for_embedded_server()
    )


def _asks_for_embedded_server() -> bool:
    if not PREFECT_SERVER_ALLOW_EPHEMERAL_MODE.value():
        return False
    is_shipped = get_settings_context().profile.name == _SHIPPED_PROFILE
    return not is_shipped or any(name in os.environ for name in EPHEMERAL_MODE)


@contextmanager
def direct_call() -> Iterator[None]:
    """Have a call find no Prefect server, and SIGTERM interrupt it as it interrupts a flow run."""
    # What asks for a server all the same has to fail, and not to start one.
    with temporary_settings(updates={PREFECT_SERVER_ALLOW_EPHEMERAL_MODE: False}), _terminated():
        yield


@functools.cache
def say_so() -> None:
    """Say once in a process, however many calls there are, why Prefect shows nothing of them."""
    run_logger().info("running without a Prefect server; PREFECT_API_URL names one that shows runs")


@contextmanager
def _terminated() -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        # Signals are those of the main thread.
        yield
        return

    def stop(number: int, _: FrameType | None) -> NoReturn:
        raise TerminationSignal(signal=number)

    # None: it was set by no Python code.
    earlier = signal.signal(signal.SIGTERM, stop) or signal.SIG_DFL
    try:
        yield
    except TerminationSignal as error:
        # Nobody made a cancelled run of it: it does what it would have done without us.
        signal.signal(signal.SIGTERM, earlier)
        os.kill(os.getpid(), error.signal)
        raise
    finally:
        signal.signal(signal.SIGTERM, earlier)


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


def plain_flow(name: str) -> Callable[[Callable[P, R]], PlainFlow[P, R]]:
    """Decorate a function that returns a plain value as a flow of a name."""

    def decorate(fn: Callable[P, R]) -> PlainFlow[P, R]:
        return PlainFlow(fn, name=name, persist_result=False)

    return decorate
