"""The step that runs a gang on the cluster: one task for all of its ranks."""

from typing import Any

from prefect import task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State
from prefect.states import Cancelled, Completed, Failed

from partwise.gangs.driver import GangDriver
from partwise.gangs.errors import GangFailedError


@task(
    name="run-gang",
    task_run_name="work on {ranks} ranks",
    cache_policy=NO_CACHE,
    persist_result=False,
)
def run_gang_step(driver: GangDriver, ranks: int) -> State[Any]:  # noqa: ARG001 (names the task run)
    """Run a gang to its end, and return how its ranks ended; or the error that says why not."""
    try:
        return Completed(data=driver.run())
    except GangFailedError as error:
        # As values: the ends of the ranks go into the ledger, also where the gang failed.
        failed = error.with_traceback(None)
        state = Failed if error.stopped is None else Cancelled
        return state(message=str(error), data=failed)
