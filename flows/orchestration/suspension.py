"""Suspend in Prefect's UI: a flow run ends in good order, and Resume begins it again.

Prefect itself raises wherever its engine comes by next, so that a run would be left as it stands.
Here the call is interrupted instead, as by Ctrl-C: workers commit what they have, and the run is
completed as CANCELLED. Prefect's Resume begins the same flow run again, which goes on with the run.
"""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from prefect.client.schemas.objects import State
from prefect.context import FlowRunContext
from prefect.exceptions import Pause

from partwise.tasks.steps import run_logger


class Suspension:
    """Whether the flow run at work was suspended."""

    def __init__(self) -> None:
        self._state: State | None = None
        self._is_over = False

    def begin(self, state: State) -> None:
        """Interrupt the call on the main thread; the first time counts."""
        if self._state is None and not self._is_over:
            self._state = state
            # A real signal: it also ends a wait for a lock or a socket.
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    def settle(self, ended: State) -> State:
        """Return the state that a flow run ended in, unless it ended because it was suspended.

        Raises:
            Pause: It was; Prefect then leaves the flow run Suspended.
        """
        # First: what is asked for from now on interrupts nobody.
        self._is_over = True
        if self._state is None or not ended.is_cancelled():
            return ended
        run_logger().info("suspended: what is done is kept, and Resume goes on with the rest")
        raise Pause(state=self._state)


@contextmanager
def suspension() -> Iterator[Suspension]:
    """Have a suspended flow run interrupted, and not raised in by Prefect, while a block runs.

    A flow within a flow is part of the outer one, which alone can be suspended.
    """
    found = Suspension()
    context = FlowRunContext.get()
    is_main = threading.current_thread() is threading.main_thread()
    if context is None or not is_main or context.flow_run_suspension_request.is_requested():
        yield found
        return
    own = vars(context.flow_run_suspension_request)
    if "mark_requested" in own:
        yield found
        return
    # In place of Prefect's method, which notes the state so that the engine raises.
    own["mark_requested"] = found.begin
    try:
        yield found
    finally:
        del own["mark_requested"]
