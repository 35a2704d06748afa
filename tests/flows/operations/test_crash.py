"""A flow run whose worker and process were both killed: nobody is left to say so."""

import time
from contextlib import suppress
from uuid import UUID

import psutil
import pytest
from prefect.states import AwaitingRetry

from partwise.outcomes import RunStatus
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


def begin(production: Production, second: Project, run_id: str) -> UUID:
    """Have the worker of the second folder begin a run that waits for a word."""
    parameters = production.small(run_id, function="mine:wait_for_word")
    flow_run = production.run("map-partitions/second", parameters)
    waiting = second.folder / "waiting"
    wait_until(lambda: waiting.exists() and len(list(waiting.iterdir())) >= 2, "a run at work")
    return flow_run


@pytest.mark.slow
def test_a_worker_alone_is_killed_and_started_again_and_its_flow_run_crashed_and_retried(
    production: Production, second: Project
) -> None:
    """All that becomes of the worker of a folder without a server, from `up` to `down`."""

    def up() -> str:
        told = second.cli("up")
        assert (
            "map-partitions/second waits for runs of 'map-partitions/secnd', a deployment" in told
        )
        assert "does not have. Did you mean 'map-partitions/second'?" in told
        assert told.count("waits for runs of") == 1
        assert second.services().pids.keys() == {"worker"}
        assert second.services().is_alive("worker")
        return told

    # A worker alone where a server answers.
    assert "not ours" in up()
    services = second.services()
    quick = production.small("quick", function="mine:first_row")
    done = production.wait(production.run("map-partitions/second", quick))
    assert done.state_name == "Completed"

    # It is killed with a flow run, and started again.
    flow_run = begin(production, second, "killed")
    second.kill_worker()
    kill_flow_run(flow_run)
    killed = time.monotonic()
    wait_until(lambda: not services.is_alive("worker"), "the worker to die")
    wait_until(lambda: not processes_of(flow_run), "its processes to end", timeout_s=30)
    assert production.state(flow_run) == "Running"
    assert "is up" in up()

    # The flow run is marked as crashed, by nothing but the silence of it.
    ended = production.wait(flow_run, LONGEST_S, pause_s=2.0)
    print(f"marked as crashed {time.monotonic() - killed:.0f} s after the kill")
    assert ended.state_name == "Crashed"
    assert "No heartbeat for 90 s" in (ended.state.message or "")
    # Runs that ended send no heartbeats either.
    assert production.state(done.id) == "Completed"

    # A retry goes on with it, as Retry does in the UI.
    (second.folder / "go").touch()
    production.client.set_flow_run_state(flow_run, AwaitingRetry(), force=True)
    assert production.wait(flow_run).state_name == "Completed"
    assert Run.open("killed", second.folder / "store").counts == {"DONE": 8}

    # `down` ends the worker with what is at work, and leaves the server.
    second.forget_words()
    flow_run = begin(production, second, "at-work")
    began = time.monotonic()
    said = second.down()
    assert time.monotonic() - began < 30
    assert "flow run at-work: Cancelled" in said
    assert "server" not in said
    assert production.wait(flow_run).state_name == "Cancelled"
    assert Run.open("at-work", second.folder / "store").status is RunStatus.CANCELLED
    assert services.processes("worker") == []
    assert production.project.services().is_alive("server")
