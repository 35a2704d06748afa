"""/metrics: how runs ended and what is due, by a real server; what is left out where one hangs."""

import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest
import yaml
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.events import emit_event
from prefect.states import Crashed, Scheduled
from prometheus_client.parser import text_string_to_metric_families

from partwise.flows.cli.run_output import run_record
from partwise.flows.operations import metrics
from partwise.flows.operations.metrics import METRICS, Metrics
from partwise.flows.operations.report_server import ReportServer
from partwise.flows.operations.server_view import RunEnd, ServerView, ServerWatch
from partwise.flows.orchestration import announcement
from partwise.runs.run import Run
from partwise.store.store import Store
from tests.own_cluster import wait_for
from tests.run_maker import RunMaker

DOCS = Path(__file__).parents[3] / "docs"
SECRET = "partwise:a secret of this test"
EMPTY = ServerView(last=(), recent={}, flow_runs={}, lags={})


def values_of(text: bytes) -> dict[str, dict[tuple[str, ...], float]]:
    """The values of an answer, by metric and by the values of its labels."""
    return {
        family.name: {tuple(one.labels.values()): one.value for one in family.samples}
        for family in text_string_to_metric_families(text.decode())
    }


def ended_run(store: Store, run_id: str, *statuses: str) -> Run:
    made = RunMaker(store, run_id)
    made.begin()
    made.commit(*((f"key {i}", status, 1.0) for i, status in enumerate(statuses)))
    return made.end(len(statuses))


@pytest.fixture
def deployed(prefect_server: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A deployment whose name no other test has, and in which runs are said to end."""
    name = f"nightly-{uuid4().hex[:8]}"
    with get_client(sync_client=True) as client:
        flow_id = client.create_flow_from_name("watched")
        deployment_id = client.create_deployment(flow_id, name)
        monkeypatch.setattr(announcement, "_deployment", lambda: f"watched/{name}")
        yield client, deployment_id, f"watched/{name}"
        client.delete_deployment(deployment_id)


def begin(client: SyncPrefectClient, deployment_id: Any, minutes_ago: float) -> Any:
    due = Scheduled(scheduled_time=datetime.now(UTC) - timedelta(minutes=minutes_ago))
    return client.create_flow_run_from_deployment(deployment_id, state=due).id


def test_it_tells_how_runs_ended_and_what_is_due(deployed, tmp_path) -> None:
    client, deployment_id, name = deployed
    store = Store.parse(tmp_path / "store")
    announcement.announce(ended_run(store, "first", "DONE", "DONE"))
    last = ended_run(store, "second", "DONE", "FAILED", "SKIPPED")
    announcement.announce(last)
    # A program may emit anything by this name.
    mine = {"prefect.resource.id": "partwise.run.x", "partwise.deployment": name}
    emit_event("partwise.run.completed", {**mine, "partwise.status": "anything"})
    emit_event("partwise.run.completed", {**mine, "partwise.status": "FAILURE"}, payload={})
    crashed = begin(client, deployment_id, 1)
    client.set_flow_run_state(crashed, Crashed(), force=True)
    late = begin(client, deployment_id, 60)

    watch = ServerWatch(client)
    statuses = {"SUCCESS", "PARTIAL_FAILURE", "FAILURE", "Crashed"}
    wait_for(
        lambda: {end.status for end in watch.look().last if end.deployment == name} == statuses,
        "the events to arrive",
    )
    (tmp_path / "prefect.db").write_bytes(bytes(100))
    found = values_of(Metrics(tmp_path, watch.look).text())
    mine = {
        metric: {key[1:]: value for key, value in values.items() if key[0] == name}
        for metric, values in found.items()
        if METRICS[metric][0][:1] == ("deployment",)
    }
    # What was asked twice is counted once.
    assert mine["partwise_runs"] == {(status,): 1.0 for status in statuses}
    ends = mine["partwise_run_end_timestamp_seconds"]
    assert set(ends) == {(status,) for status in statuses}
    assert datetime.now(UTC).timestamp() - 600 < ends["SUCCESS",] <= ends["PARTIAL_FAILURE",]
    [((state,), count)] = mine["partwise_flow_runs"].items()
    # Prefect marks those that are late a little later.
    assert (state in ("Late", "Scheduled"), count) == (True, 1.0)
    assert mine["partwise_schedule_lag_seconds"][()] == pytest.approx(3600, abs=300)
    client.delete_flow_run(late)
    assert watch.look().lags[name] == 0
    disk = found["partwise_disk_free_bytes"]
    assert (str(tmp_path),) in disk
    assert (store.url,) in disk
    assert found["partwise_prefect_database_bytes"] == {(): 100.0}
    assert found["partwise_scrape_errors"] == {("prefect",): 0.0, ("disk",): 0.0}


def test_what_is_due_is_counted_also_where_a_server_answers_with_a_part(deployed, monkeypatch):
    client, deployment_id, name = deployed
    for _ in range(3):
        begin(client, deployment_id, 60)
    for read in ("read_flow_runs", "read_deployments", "read_flows"):
        monkeypatch.setattr(client, read, partial(getattr(client, read), limit=2))
    view = ServerWatch(client).look()
    assert sum(count for (of, _), count in view.flow_runs.items() if of == name) == 3
    assert view.lags[name] == pytest.approx(3600, abs=300)


def end(status: str, seconds: float, **counts: int) -> RunEnd:
    at = datetime(2026, 11, 27, tzinfo=UTC) + timedelta(seconds=seconds)
    return RunEnd(
        deployment="train/nightly",
        status=status,
        at=at,
        has_run=bool(counts),
        store="",
        counts=counts,
        seconds=seconds,
    )


def test_partitions_and_seconds_are_of_the_last_run(tmp_path) -> None:
    ends = (end("SUCCESS", 10, DONE=5), end("FAILURE", 20, FAILED=4, DONE=1), end("Crashed", 30))
    found = values_of(
        Metrics(tmp_path, lambda: ServerView(last=ends, recent={}, flow_runs={}, lags={})).text()
    )
    assert found["partwise_partitions"] == {
        ("train/nightly", "DONE"): 1.0,
        ("train/nightly", "SKIPPED"): 0.0,
        ("train/nightly", "FAILED"): 4.0,
        ("train/nightly", "INTERNAL_ERROR"): 0.0,
        ("train/nightly", "CANCELLED"): 0.0,
    }
    assert found["partwise_run_seconds"] == {("train/nightly",): 20.0}
    # They ended days ago.
    assert set(found["partwise_runs"].values()) == {0.0}


@contextmanager
def served(metrics: Metrics) -> Iterator[str]:
    with ReportServer(0, SECRET, metrics=metrics.text) as started:
        threading.Thread(target=started.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{started.server_address[1]}/metrics"
        started.shutdown()


def test_a_server_that_hangs_or_refuses_is_left_out(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.setattr(metrics, "PART_S", 0.05)
    monkeypatch.setattr(metrics, "FRESH_S", -1.0)
    go_on, looks = threading.Event(), []

    def look() -> ServerView:
        looks.append(go_on.wait(60))
        if len(looks) > 1:
            raise httpx.ConnectError("https://mine:hidden@example.org refused")
        return EMPTY

    watched = Metrics(tmp_path, look)

    def knows(part: str) -> bool:
        found = values_of(watched.text())
        assert ("partwise_flow_runs" in found) == (found["partwise_scrape_errors"]["prefect",] == 0)
        return found["partwise_scrape_errors"][part,] == 0

    wait_for(lambda: knows("disk"), "what the server has no part in")
    assert not knows("prefect")
    # It was not asked once more meanwhile.
    assert looks == []
    go_on.set()
    wait_for(lambda: knows("prefect"), "its answer")
    said = []

    def was_refused() -> bool:
        assert not knows("prefect")
        said.append(capsys.readouterr().err)
        return "refused" in "".join(said)

    wait_for(was_refused, "the reason in the log")
    assert "/metrics lacks prefect: ConnectError: " in "".join(said)
    assert "hidden" not in "".join(said)


def test_only_who_knows_the_password_reads_it(tmp_path) -> None:
    user, secret = SECRET.split(":")
    with served(Metrics(tmp_path, lambda: EMPTY)) as url, httpx.Client(timeout=60) as client:
        for wrong in (None, (user, "guess"), (user, ""), ("", secret)):
            answer = client.get(url, auth=wrong)
            assert answer.status_code == 401
            assert "partwise_" not in answer.text
            # A browser would remember the password, and show it again by itself.
            assert "www-authenticate" not in answer.headers
        assert client.get(url, headers={"Authorization": "Basic é".encode()}).status_code == 401
        assert client.get(f"{url}/", auth=(user, secret)).status_code == 404
        answer = client.get(url, auth=(user, secret))
        assert answer.status_code == 200
        assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
        assert set(values_of(answer.content)) <= set(METRICS)


def test_dashboard_and_page_have_each_metric_and_no_other() -> None:
    board = json.loads((DOCS / "grafana.json").read_text())
    asked = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    assert set(re.findall(r"partwise_\w+", " ".join(asked))) == set(METRICS)
    sources = {
        one["datasource"]["uid"] for panel in board["panels"] for one in [panel, *panel["targets"]]
    }
    assert sources == {"${datasource}"}
    rows = re.findall(r"^\| (`partwise_.*?) \| (.*?) ?\|", (DOCS / "watching.md").read_text(), re.M)
    told = {
        name: tuple(re.findall(r"`(\w+)`", labels))
        for names, labels in rows
        for name in re.findall(r"`(\w+)`", names)
    }
    assert told == {name: labels for name, (labels, _) in METRICS.items()}


def test_a_rule_about_the_last_success_holds_where_it_was_forgotten() -> None:
    found = re.findall(
        r"^```yaml\n(groups:.*?)^```", (DOCS / "watching.md").read_text(), re.M | re.S
    )
    rules = {each["alert"]: each for each in yaml.safe_load(found[0])["groups"][0]["rules"]}
    asked = re.findall(r"partwise_\w+", " ".join(each["expr"] for each in rules.values()))
    assert set(asked) <= set(METRICS)
    old, forgotten = rules["NoModelsSinceYesterday"]["expr"].strip().split("\nor ")
    series = re.search(r"partwise_\w+\{.*?\}", old)
    assert series is not None
    assert old == f"time() - {series[0]} > 93600"
    assert forgotten == f"absent({series[0]})"


def test_the_page_has_each_field_of_the_list_of_runs(tmp_path) -> None:
    store = Store.parse(tmp_path)
    fields = run_record(ended_run(store, "r", "DONE"))
    part = (DOCS / "watching.md").read_text().partition("| field |")[2]
    firsts = re.findall(r"^\| (`.*?) \|", part, re.M)
    assert sorted(re.findall(r"`(\w+)`", " ".join(firsts))) == sorted(fields)
