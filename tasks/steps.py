"""The steps of a flow: task runs within a flow run of Prefect, and plain calls without one.

A call of a flow needs no Prefect server. Without one its steps are functions in this process, its
lines go where Prefect shows those of a flow run, and nothing has artifacts. Prefect, which takes a
second to import, is then not imported at all.
"""

import contextvars
import functools
import logging
import math
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent import futures
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, Protocol, TypeVar, cast

from partwise.cluster_calls import on_thread
from partwise.engine.driver.cluster_watch import Logger
from partwise.engine.failures import describe_error
from partwise.outcomes import RunStatus
from partwise.tasks.direct_lines import direct_logger
from partwise.tasks.flow_run import is_direct

if TYPE_CHECKING:
    from prefect import Task

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
logger = logging.getLogger(__name__)

LOOK_S = 0.5

_name: ContextVar[str] = ContextVar("partwise_direct_run", default="")


class StepFunction(Generic[P, R]):
    """A function that is a task of Prefect's within a flow run."""

    def __init__(
        self, fn: Callable[P, R], name: str, run_name: str, retries: int | None = None
    ) -> None:
        self.fn, self.name, self._run_name, self._retries = fn, name, run_name, retries

    @functools.cached_property
    def task(self) -> "Task[P, R]":
        """The task: its results are those of the run in the store, and neither kept nor reused."""
        from prefect import task
        from prefect.cache_policies import NO_CACHE

        # None is its default, which its types leave out.
        retries: Any = self._retries
        decorate: Any = task(
            name=self.name,
            task_run_name=self._run_name,
            # Prefect's own policy hashes all arguments, and cannot hash a Dask client.
            cache_policy=NO_CACHE,
            persist_result=False,
            retries=retries,
        )
        made: Task[P, R] = decorate(self.fn)
        return made


def step(
    name: str, run_name: str, retries: int | None = None
) -> Callable[[Callable[P, R]], StepFunction[P, R]]:
    """Decorate a function as a step.

    Args:
        name: Of its task in Prefect.
        run_name: Of each task run; arguments stand in it in braces.
        retries: How often Prefect begins a task run again; None: as its settings say.
    """

    def decorate(fn: Callable[P, R]) -> StepFunction[P, R]:
        return StepFunction(fn, name, run_name, retries)

    return decorate


class Step(Protocol[R_co]):
    """A step that was begun, and may be at work."""

    def result(self, timeout: float | None = None) -> R_co:
        """Wait for its end, and return its value or raise its error."""


def is_at_work() -> bool:
    """Whether a flow run, or a direct call of a flow, is around this."""
    return bool(_name.get()) or not is_direct()


@contextmanager
def named(run_id: str) -> Iterator[None]:
    """Have the lines of a direct call begin as those of a flow run of this name."""
    token = _name.set(run_id)
    try:
        yield
    finally:
        _name.reset(token)


def run_logger() -> Logger:
    """Return the logger of the flow run or task run at work, or of the direct call."""
    if is_direct():
        return direct_logger(_name.get() or "<unknown>")
    from prefect import get_run_logger

    return get_run_logger()


def run_step(function: StepFunction[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Carry out a step, and return its value."""
    return (function.fn if is_direct() else function.task)(*args, **kwargs)


def try_step(function: StepFunction[P, Any], *args: P.args, **kwargs: P.kwargs) -> None:
    """Carry out a step without which the run is whole all the same: an error is only logged."""
    if not is_direct():
        # Asked for its state, a task that failed raises nothing.
        function.task(*args, return_state=True, **kwargs)
        return
    try:
        function.fn(*args, **kwargs)
    except Exception as error:
        # By a logger that a command shows too: there is no UI in which it could be seen.
        failure = describe_error(error)
        logger.warning(
            "The step %s failed, and the run is whole without it: %s: %s",
            function.name,
            failure.error_type,
            failure.message,
        )


def begin_step(function: StepFunction[P, R], *args: P.args, **kwargs: P.kwargs) -> Step[R]:
    """Begin a step beside this thread."""
    if not is_direct():
        return function.task.submit(*args, **kwargs)
    # A thread begins without the context, in which the name stands that the run's lines bear.
    context, call = contextvars.copy_context(), functools.partial(function.fn, *args, **kwargs)
    return on_thread(f"partwise-{function.name}", context.run, call)


class Handed(Generic[R]):
    """A value within a failed state: Prefect writes into its log what states have."""

    def __init__(self, value: R) -> None:
        self.value = value

    def __repr__(self) -> str:
        return "..."


def shown_as_failed(value: R, status: RunStatus, message: str) -> R:
    """Return what a step returns whose task run Prefect is to show as failed, named for a status.

    The work goes on: `value_of` the step is the value.
    """
    if is_direct():
        return value
    from prefect.states import Failed

    state: Any = Failed(name=status.value, message=message, data=Handed(value))
    return cast("R", state)


def value_of(begun: Step[R]) -> R:
    """Wait for the end of a step, and return its value, also where it is shown as failed.

    Raises:
        Exception: What the step raised.
    """
    future: Any = begun
    value: Any = future.result() if is_direct() else future.result(raise_on_failure=False)
    # Not raised, that is what Prefect gives of a task run that ended by an error.
    if isinstance(value, BaseException):
        raise value
    return cast("R", value.value if isinstance(value, Handed) else value)


def await_steps(
    steps: Sequence[Step[Any]],
    timeout_s: float | None = None,
    check: Callable[[], None] = lambda: None,
) -> None:
    """Wait until steps have ended, well or not, or for so long.

    `check` is called every half second meanwhile, and ends the waiting by what it raises.
    """
    begun: list[Any] = list(steps)
    pending = set(begun if is_direct() else [each.wrapped_future for each in begun])
    deadline = time.monotonic() + (math.inf if timeout_s is None else timeout_s)
    while pending and (left_s := deadline - time.monotonic()) > 0:
        pending = futures.wait(pending, min(left_s, LOOK_S)).not_done
        check()
