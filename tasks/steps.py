"""The steps of a flow: task runs within a flow run of Prefect, and plain calls without one.

A call of a flow needs no Prefect server. Without one its steps are the tasks' own functions, in
this process, and its lines go where Prefect shows those of a flow run; nothing has artifacts then.
"""

import contextvars
import functools
import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent import futures
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, ParamSpec, Protocol, TypeVar
from uuid import UUID

from prefect import Task, get_run_logger
from prefect.client.schemas.objects import State
from prefect.context import FlowRunContext
from prefect.futures import wait
from prefect.logging.loggers import flow_run_logger

from partwise.engine.driver.cluster_watch import Logger
from partwise.engine.failures import describe_error

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
logger = logging.getLogger(__name__)

_name: ContextVar[str] = ContextVar("partwise_direct_run", default="")


class Step(Protocol[R_co]):
    """A step that was begun, and may be at work."""

    def result(self, timeout: float | None = None) -> R_co:
        """Wait for its end, and return its value or raise its error."""


def is_direct() -> bool:
    """Whether no flow run of Prefect is around this."""
    return FlowRunContext.get() is None


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
    if not is_direct():
        return get_run_logger()
    # The same logger, so that levels, handlers and the masking of secrets are the same.
    return flow_run_logger(
        flow_run_id=UUID(int=0), flow_run_name=_name.get() or "<unknown>", send_to_api=False
    )


def run_step(task: Task[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Carry out a step, and return its value."""
    return _value_of(task.fn(*args, **kwargs)) if is_direct() else task(*args, **kwargs)


def try_step(task: Task[P, Any], *args: P.args, **kwargs: P.kwargs) -> None:
    """Carry out a step without which the run is whole all the same: an error is only logged."""
    if not is_direct():
        task(*args, return_state=True, **kwargs)
        return
    try:
        task.fn(*args, **kwargs)
    except Exception as error:
        # By a logger that a command shows too: there is no UI in which it could be seen.
        failure = describe_error(error)
        logger.warning(
            "The step %s failed, and the run is whole without it: %s: %s",
            task.name,
            failure.error_type,
            failure.message,
        )


def begin_step(task: Task[P, R], *args: P.args, **kwargs: P.kwargs) -> Step[R]:
    """Begin a step beside this thread."""
    if not is_direct():
        return task.submit(*args, **kwargs)
    future: futures.Future[R] = futures.Future()
    context, call = contextvars.copy_context(), functools.partial(run_step, task, *args, **kwargs)

    def work() -> None:
        try:
            future.set_result(context.run(call))
        except BaseException as error:
            future.set_exception(error)

    # Of an executor, Python would wait as it exits: a step that hangs is left to itself.
    threading.Thread(target=work, name=f"partwise-{task.name}", daemon=True).start()
    return future


def await_steps(steps: Sequence[Step[Any]], timeout_s: float | None = None) -> None:
    """Wait until steps have ended, well or not, or for so long."""
    begun: list[Any] = list(steps)
    waiting: Callable[..., object] = futures.wait if is_direct() else wait
    waiting(begun, timeout=timeout_s)


def _value_of(returned: Any) -> Any:
    """Return the value of a step that may have returned a state, with its value or its error."""
    if not isinstance(returned, State):
        return returned
    if isinstance(returned.data, BaseException):
        raise returned.data
    return returned.data
