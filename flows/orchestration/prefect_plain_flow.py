"""What a flow that returns a plain value is to Prefect."""

import functools
import inspect
from typing import Any

from prefect import Flow
from prefect.client.schemas.objects import FlowRun, State
from prefect.context import FlowRunContext

from partwise.errors import PartwiseError
from partwise.flows.orchestration.announcement import announce_schedule
from partwise.flows.orchestration.embedded_server import start_embedded_server
from partwise.flows.orchestration.plain_flow import PlainFlow
from partwise.flows.orchestration.prefect_flow import OwnFlow
from partwise.flows.orchestration.states import unexpected


class PrefectPlainFlow(OwnFlow):
    """What a `PlainFlow` is to Prefect."""

    def __init__(self, called: PlainFlow[..., Any]) -> None:
        self._called = called

        @functools.wraps(called.function)
        def body(*args: Any, **kwargs: Any) -> Any:
            try:
                return called.function(*args, **kwargs)
            except PartwiseError:
                raise
            except Exception as error:
                state = unexpected(error)
                context = FlowRunContext.get()
                if context is not None and context.flow is not None and context.flow.retries:
                    # Prefect begins again after what is raised, not after a state; masked as that.
                    raise RuntimeError(state.message) from None
                return state

        super().__init__(body, name=called.name, persist_result=False, on_running=[_announce])

    def run(self, bound: inspect.BoundArguments) -> Any:
        """Run the flow as a flow run, and return its value."""
        start_embedded_server()
        return Flow.__call__(self, *bound.args, **bound.kwargs)


def _announce(flow: Flow[Any, Any], flow_run: FlowRun, state: State[Any]) -> None:
    """Be a hook of Prefect's, which names these three."""
    del flow, state
    announce_schedule(flow_run)
