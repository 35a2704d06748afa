"""Cancel in Prefect's UI, for a flow run that no worker of Prefect's has begun.

Of a deployment's flow run Prefect ends the process. One that somebody has called gets a state only,
at which nobody looks: the UI shows it as cancelled, and the work goes on.
"""

import contextvars
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from partwise.tasks.flow_run import current_flow_run

LOOK_S = 2.0


@contextmanager
def cancelled_in_ui(note: Callable[[], None]) -> Iterator[None]:
    """Call `note`, from another thread, when the flow run at work is cancelled in the UI."""
    flow_run = current_flow_run()
    if flow_run is None or flow_run.deployment_id is not None:
        yield
        return
    has_ended = threading.Event()

    def look() -> None:
        from prefect.client.orchestration import get_client

        with get_client(sync_client=True) as client:
            while not has_ended.wait(LOOK_S):
                # A server that is away now may be there the next time.
                with suppress(Exception):
                    state = client.read_flow_run(flow_run.id).state
                    if state is not None and (state.is_cancelling() or state.is_cancelled()):
                        note()
                        return

    # Prefect finds its settings in the context.
    looking = contextvars.copy_context().run
    threading.Thread(target=looking, args=(look,), daemon=True, name="partwise-ui-cancel").start()
    try:
        yield
    finally:
        has_ended.set()
