"""`partwise up` and `partwise down`: what they start, and that they end just that."""

import os
import signal
import socket
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from uuid import UUID

import httpx
import psutil
import pytest

from partwise.errors import ServiceError
from partwise.flows.operations.services import Services
from tests.flows.operations.project import COMMAND, Production, Project, wait_until

pytestmark = pytest.mark.slow  # Prefect servers that start and end


def test_down_does_no_harm_where_nothing_runs(project: Project) -> None:
    assert "Nothing" in project.down()
    assert not (project.folder / ".partwise").exists()


def test_down_leaves_a_process_that_has_got_an_old_ones_id(project: Project) -> None:
    # As after a boot: the file is there, and its IDs are those of others.
    services = Services.plan("http://127.0.0.1:9/api", owns_server=True)
    with subprocess.Popen(["sleep", "60"]) as stranger:
        (project.folder / ".partwise").mkdir()
        services.model_copy(
            update={"pids": {"server": stranger.pid, "worker": stranger.pid}}
        ).write(project.folder)
        said = project.cli("down", PREFECT_API_URL="http://127.0.0.1:9/api")
        assert "was gone already" in said
        assert "next: unset PREFECT_API_URL PREFECT_API_AUTH_STRING" in said
        assert stranger.poll() is None
        stranger.kill()
    assert "Nothing is running" in project.down()


def test_a_port_that_is_taken_is_named_with_its_owner(project: Project) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        said = project.cli("up", "--port", str(port), code=1)
    assert f"Port {port} is taken by process {os.getpid()}" in said
    assert "--port" in said
    assert "Nothing is running" in project.down()


def test_without_a_prefect_yaml_it_says_where_to_get_one(project: Project) -> None:
    (project.folder / "prefect.yaml").unlink()
    said = project.cli("up", code=2)
    assert "There is no prefect.yaml in" in said
    assert "`partwise init NAME` makes a project with one" in said


def test_a_server_that_is_named_and_silent_is_not_replaced(project: Project) -> None:
    said = project.cli("up", code=1, PREFECT_API_URL="http://192.0.2.1:4200/api")
    assert "No answer from the Prefect server at http://192.0.2.1:4200/api" in said
    said = project.cli("deploy", code=2)
    assert "No Prefect server is named" in said


def test_a_server_that_does_not_start_shows_its_log_and_leaves_nothing(project: Project) -> None:
    url = "sqlite+aiosqlite:////proc/nowhere/prefect.db"
    words = ("up", "--port", str(project.port))
    said = project.cli(*words, code=1, PREFECT_SERVER_DATABASE_CONNECTION_URL=url)
    assert "unable to open database file" in said
    assert "Prefect's server ended as it started: see" in said
    assert Services.read(project.folder) is None


def test_what_a_newer_release_wrote_names_its_format(tmp_path) -> None:
    (tmp_path / ".partwise").mkdir()
    (tmp_path / ".partwise" / "services.json").write_text('{"format_version": 9}')
    with pytest.raises(ServiceError, match=r"\(ValidationError\) \(format version 9\): end what"):
        Services.read(tmp_path)


def test_ctrl_c_in_mid_start_ends_what_was_started(project: Project) -> None:
    path = project.folder / ".partwise" / "services.json"

    def started() -> Services | None:
        services = Services.read(project.folder) if path.exists() else None
        return services if services is not None and services.processes("server") else None

    with subprocess.Popen(
        [*COMMAND, "up", "--port", str(project.port)],
        cwd=project.folder,
        env=project.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        services = wait_until(started, "the server to be started")
        process.send_signal(signal.SIGINT)
        said, _ = process.communicate(timeout=60)
    assert process.returncode == 130, said
    assert services.processes("server") == []
    assert not path.exists()


def test_up_twice_starts_nothing_twice_and_leaves_schedules_as_they_were_switched(
    production: Production,
) -> None:
    before = production.project.services()
    client = production.client
    nightly = client.read_deployment_by_name("train-models/nightly-train").id
    [schedule] = client.read_deployment_schedules(nightly)
    assert not schedule.active
    client.update_deployment_schedule(nightly, schedule.id, active=True)
    said = production.project.up()
    assert "runs already at" in said
    assert "30 2 * * * Europe/Amsterdam, on" in said
    [schedule] = client.read_deployment_schedules(nightly)
    assert schedule.active
    client.update_deployment_schedule(nightly, schedule.id, active=False)
    assert production.project.services() == before
    assert before.is_alive("server")
    assert before.is_alive("worker")


def test_the_server_keeps_its_own_database_and_is_heard_on_loopback_only(
    production: Production,
) -> None:
    assert (production.folder / ".partwise" / "prefect.db").stat().st_size > 0
    heard = {
        connection.laddr.ip
        for process in production.project.services().processes("server")
        for connection in process.net_connections("tcp")
        if connection.status == psutil.CONN_LISTEN
    }
    assert heard == {"127.0.0.1"}


def test_prometheus_is_told_what_the_server_knows(production: Production) -> None:
    url = f"{production.project.services().reports_url}/metrics"
    user, secret = production.project.password.split(":")

    def told() -> str:
        text = httpx.get(url, auth=(user, secret), timeout=60).text
        # It loads Prefect first, which may take longer than it waits for.
        return text if 'partwise_scrape_errors{part="prefect"} 0.0' in text else ""

    text = wait_until(told, "the server to be asked")
    assert 'partwise_schedule_lag_seconds{deployment="train-models/nightly-train"} 0.0' in text
    assert f'partwise_disk_free_bytes{{folder="{production.folder}/.partwise"}}' in text
    assert httpx.get(url).status_code == 401


def test_its_database_forgets_what_ended_long_ago(production: Production) -> None:
    """By a service of Prefect's, which has to know the setting by this name."""
    settings = production.client.request("GET", "/admin/settings").json()
    enabled = settings["server"]["services"]["db_vacuum"]["enabled"]
    assert set(enabled) == {"events", "flow_runs"}


def test_forms_that_are_sent_at_once_all_make_their_flow_runs(production: Production) -> None:
    """SQLite lets one write at a time, and no browser repeats a request that is refused."""
    deployment = production.client.read_deployment_by_name("map-partitions/map").id
    asked = {
        "parameters": {"data": "rows.parquet", "partition_by": "k", "function": "mine:f"},
        "state": {"type": "SCHEDULED", "state_details": {"scheduled_time": "2999-01-01T00:00:00Z"}},
    }

    def send(_: int) -> int:
        # Prefect's own client would repeat what is refused.
        with production.browser(f"form-{threading.get_ident()}") as client:
            answer = client.post(f"/deployments/{deployment}/create_flow_run", json=asked)
        made.append(answer.json().get("id"))
        return answer.status_code

    made: list[str | None] = []
    with ThreadPoolExecutor(8) as threads:
        statuses = list(threads.map(send, range(24)))
    for flow_run_id in filter(None, made):
        production.client.delete_flow_run(UUID(flow_run_id))
    assert statuses == [201] * 24


def test_a_request_within_another_one_does_not_wait_for_it(production: Production) -> None:
    # To pause a queue, Prefect's server opens a second transaction within the first.
    queue = production.client._client.post("/work_pools/partwise/queues/", json={"name": "nested"})
    assert queue.status_code == 201, queue.text
    began = time.monotonic()
    path = "/work_pools/partwise/queues/nested"
    paused = production.client._client.patch(path, json={"is_paused": True})
    assert paused.status_code == 204, paused.text
    assert time.monotonic() - began < 30
    production.client._client.delete(path)


def test_another_port_is_refused_while_it_runs(production: Production) -> None:
    said = production.project.cli("up", "--port", "4999", code=1)
    assert f"with the server at {production.api_url}" in said
