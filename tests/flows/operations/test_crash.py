"""A flow run whose worker and process were both killed: nobody is left to say so."""

import time
from contextlib import suppress
from uuid import UUID

import psutil
import pytest
from prefect.states import AwaitingRetry

from partwise.runs.run import Run
from tests.flows.operations.project import Production, Project, processes_of, wait_until

LONGEST_S = 180.0
"""A heartbeat every 30 s, 90 s of silence, and the server's own pace."""


def kill_flow_run(flow_run_id: UUID) -> None:
    """Kill its process alone: what it has started has to see to itself."""
    for process in processes_of(flow_run_id):
        with suppress(psutil.Error):
            if "prefect.engine" in process.cmdline():
                process.kill()


@pytest.mark.slow
def test_it_is_marked_as_crashed_and_a_retry_goes_on_with_it(
    production: Production, second: Project
) -> None:
    told = second.cli("up")
    assert "map-partitions/second waits for runs of 'map-partitions/secnd', a deployment" in told
    assert "does not have. Did you mean 'map-partitions/second'?" in told
    assert told.count("waits for runs of") == 1
    quick = production.small("quick", function="mine:first_row")
    done = production.wait(production.run("map-partitions/second", quick))
    assert done.state_name == "Completed"
    parameters = production.small("killed", function="mine:wait_for_word")
    flow_run = production.run("map-partitions/second", parameters)
    waiting = second.folder / "waiting"
    wait_until(lambda: waiting.exists() and len(list(waiting.iterdir())) >= 2, "a run at work")
    second.kill_worker()
    kill_flow_run(flow_run)
    killed = time.monotonic()
    wait_until(lambda: not processes_of(flow_run), "its processes to end", timeout_s=30)
    assert production.state(flow_run) == "Running"
    ended = production.wait(flow_run, LONGEST_S)
    print(f"marked as crashed {time.monotonic() - killed:.0f} s after the kill")
    assert ended.state_name == "Crashed"
    assert "No heartbeat for 90 s" in (ended.state.message or "")
    # Runs that ended send no heartbeats either.
    assert production.state(done.id) == "Completed"

    (second.folder / "go").touch()
    told = second.cli("up")
    assert "map-partitions/second waits for runs of 'map-partitions/secnd', a deployment" in told
    assert "does not have. Did you mean 'map-partitions/second'?" in told
    assert told.count("waits for runs of") == 1
    # As Retry does in the UI.
    production.client.set_flow_run_state(flow_run, AwaitingRetry(), force=True)
    assert production.wait(flow_run).state_name == "Completed"
    assert Run.open("killed", second.folder / "store").counts == {"DONE": 8}
