"""The step that runs a gang on the cluster: one task for all of its ranks."""

from typing import Any

from partwise.gangs.driver import GangDriver
from partwise.gangs.errors import GangFailedError
from partwise.tasks.flow_run import is_direct
from partwise.tasks.steps import step


@step("run-gang", "work on {ranks} ranks")
def run_gang_step(driver: GangDriver, ranks: int) -> Any:  # noqa: ARG001 (names the task run)
    """Run a gang to its end, and return how its ranks ended.

    Raises:
        GangFailedError: It failed, or was stopped; has the ends of its ranks for the ledger.
    """
    try:
        return driver.run()
    except GangFailedError as error:
        if is_direct():
            raise
        from prefect.states import Cancelled, Failed

        # As a state: by an exception, Prefect's log would have its engine's frames.
        state = Failed if error.stopped is None else Cancelled
        return state(message=str(error), data=error.with_traceback(None))
