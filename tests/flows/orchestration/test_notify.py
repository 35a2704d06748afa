"""Who is told that a night stopped: by a block that a person has saved in Prefect."""

import http.server
import json
import threading
import time
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from prefect.blocks.notifications import CustomWebhookNotificationBlock
from prefect.blocks.system import Secret
from prefect.client.orchestration import get_client
from prefect.events.schemas.automations import AutomationCore
from prefect.flow_engine import run_flow
from prefect.settings import PREFECT_API_URL
from prefect.states import Late, Running

from partwise.errors import ColumnError, InputError
from partwise.flows import lifecycle, map_partitions
from partwise.flows.cli.main import main
from partwise.flows.operations.automations import crash_automation, save_automation
from partwise.flows.operations.notifications import (
    Notification,
    automations_of,
    notifications_of,
    save_notifications,
)
from partwise.flows.orchestration import announcement
from partwise.redaction import without_secrets
from partwise.trainers import Mean

pytestmark = pytest.mark.usefixtures("prefect_server")


class _Handler(http.server.BaseHTTPRequestHandler):
    server: "_Server"

    def do_POST(self) -> None:
        content = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.heard.append(json.loads(content))
        self.send_response(self.server.status)
        self.end_headers()

    def log_message(self, *values: Any) -> None:
        """Nothing is printed."""


class _Server(http.server.ThreadingHTTPServer):
    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.heard: list[dict[str, str]] = []
        self.status = 200


@pytest.fixture
def webhook() -> Iterator[_Server]:
    server = _Server()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    block = CustomWebhookNotificationBlock(
        name="ops",
        url=f"http://127.0.0.1:{server.server_address[1]}/",
        json_data={"subject": "{{subject}}", "text": "{{body}}"},
    )
    block.save("ops", overwrite=True)
    yield server
    server.shutdown()
    server.server_close()


def fails_for_b(data: Any, context: Any) -> None:
    """Fail for one key."""
    if context.key == "b":
        raise ValueError(f"no {context.key}")


@pytest.mark.slow
def test_automations_tell_of_what_went_wrong_in_a_deployment(webhook, cluster, tmp_path) -> None:
    """Of a run with failures, of a flow run without a run, and of one that does not begin."""
    pq.write_table(pa.table({"key": ["a", "b"], "x": [1, 2]}), tmp_path / "rows.parquet")
    given = {
        "data": str(tmp_path / "rows.parquet"), "partition_by": "key", "run_id": "told",
        "function": f"{__name__}:fails_for_b", "store": str(tmp_path / "store"),
        "execution": {"n_shards": 1, "max_retries": 0}, "cluster": cluster.address,
    }  # fmt: skip
    wanted = notifications_of(
        {"notifications": [{"name": "n", "block": "custom-webhook/ops", "late_after_s": 10}]}
    )
    with get_client(sync_client=True) as client:
        flow_id = client.create_flow(map_partitions)
        deployment = client.create_deployment(flow_id, "told")

        def save(*notifications: Notification, keeps_switches: bool = False) -> list[str]:
            return save_notifications(
                notifications, [deployment], PREFECT_API_URL.value(), keeps_switches=keeps_switches
            )

        absent = wanted[0].model_copy(update={"block": "custom-webhook/nobody"})
        assert "no block custom-webhook/nobody" in save(absent)[0]
        assert save(*wanted) == ["n: by custom-webhook/ops, off"]
        on = wanted[0].model_copy(update={"enabled": True})
        assert save(on, keeps_switches=True) == ["n: by custom-webhook/ops, off"]
        assert save(on) == save(*wanted, keeps_switches=True) == ["n: by custom-webhook/ops, on"]

        def begin(parameters: dict[str, Any]) -> Any:
            return client.create_flow_run_from_deployment(deployment, parameters=parameters)

        late = begin({})
        client.set_flow_run_state(late.id, Late(), force=True)
        for changes in ({}, {"partition_by": "nowhere", "run_id": "refused"}):
            run_flow(map_partitions, flow_run=begin({**given, **changes}), return_type="state")
    deadline = time.monotonic() + 90
    while len(webhook.heard) < 3 and time.monotonic() < deadline:
        time.sleep(0.2)
    heard = {one["subject"]: one["text"] for one in webhook.heard}
    assert {*heard} == {"PARTIAL_FAILURE: told", "Failed: refused", f"Late: {late.name}"}
    text = heard["PARTIAL_FAILURE: told"]
    assert "1 x ValueError: no b" in text
    assert "Failed keys: b.\npartwise runs show told --failures" in text
    assert "'nowhere'" in heard["Failed: refused"]
    assert "map-partitions/told, due 20" in heard[f"Late: {late.name}"]


@pytest.mark.usefixtures("prefect_server")
def test_a_flow_run_of_a_schedule_tells_of_its_first_state_once(monkeypatch) -> None:
    """Those of pipelines of nights and of tidying too, as Prefect begins them."""
    told: list[UUID] = []
    monkeypatch.setattr(announcement, "emit_event", lambda **event: told.append(event["id"]))
    [hook] = lifecycle.on_running_hooks
    with get_client(sync_client=True) as client:
        deployment = client.create_deployment(client.create_flow(lifecycle), "nights")
        asked_for = client.create_flow_run_from_deployment(deployment)
        client.set_flow_run_state(asked_for.id, Running(), force=True)
        scheduled = asked_for.model_copy(update={"auto_scheduled": True})
        again = scheduled.model_copy(update={"run_count": 2})
        for flow_run in (asked_for, scheduled, again):
            hook(lifecycle, flow_run, Running())
        first, _ = client.read_flow_run_states(asked_for.id)
    assert first.is_scheduled()
    assert told == [first.id]


@pytest.mark.usefixtures("webhook")
def test_an_automation_that_is_as_wanted_is_left_alone() -> None:
    """An update has Prefect forget what it waits for: a heartbeat, or that a late one begins."""
    [one] = notifications_of({"notifications": [{"name": "m", "block": "custom-webhook/ops"}]})
    with get_client(sync_client=True) as client:
        flow_id = client.create_flow(map_partitions)
        block = client.read_block_document_by_name("ops", "custom-webhook").id
        deployment = client.create_deployment(flow_id, "left")
        for wanted in (crash_automation(), *automations_of(one, block, [deployment])):

            def trigger_of(automation: AutomationCore, *, keeps_switch: bool = False) -> str:
                found = save_automation(client, automation, keeps_switch=keeps_switch)
                trigger = client._client.get(f"/automations/{found}").json()["trigger"]
                return str(trigger["id"])

            before = trigger_of(wanted)
            assert trigger_of(wanted) == before
            changed = wanted.model_copy(update={"enabled": not wanted.enabled})
            assert trigger_of(changed, keeps_switch=True) == before
            assert trigger_of(changed) != before


@pytest.mark.usefixtures("webhook")
def test_a_notification_of_another_project_on_the_server_is_left_as_it_is() -> None:
    [wanted] = notifications_of(
        {"notifications": [{"name": "taken", "block": "custom-webhook/ops"}]}
    )
    with get_client(sync_client=True) as client:
        flow_id = client.create_flow(map_partitions)
        ours, new, theirs = (client.create_deployment(flow_id, name) for name in ("a", "b", "c"))

        def save(*deployments: UUID) -> str:
            api_url = PREFECT_API_URL.value()
            return save_notifications([wanted], deployments, api_url, keeps_switches=False)[0]

        assert save(ours) == save(ours, new) == "taken: by custom-webhook/ops, off"
        assert "taken: not saved, " in save(theirs)
        assert "for other deployments, such as " in save(theirs)
        assert save(new) == "taken: by custom-webhook/ops, off"
        # Of a project that is gone nobody is told.
        client.delete_deployment(new)
        assert save(theirs) == "taken: by custom-webhook/ops, off"


def test_a_test_is_sent_on_request(webhook, capsys) -> None:
    assert main(["doctor", "--notify", "custom-webhook/ops"]) == 0
    assert [one["subject"] for one in webhook.heard] == ["A test of partwise"]
    webhook.status = 500
    assert main(["doctor", "--notify", "custom-webhook/ops"]) == 1
    assert main(["doctor", "--notify", "custom-webhook/nobody"]) == 1
    assert "No block 'custom-webhook/nobody' can be loaded" in capsys.readouterr().out


def test_secrets_of_a_block_that_cannot_send_are_not_shown(webhook, capsys) -> None:
    place = f"http://127.0.0.1:{webhook.server_port}"
    secrets = {"path": "/hook/s3cretpath", "more": [{"deep": "s3cretdeep"}]}
    CustomWebhookNotificationBlock(name="bad", url=f"{place}1{{{{path}}}}", secrets=secrets).save(
        "bad", overwrite=True
    )
    assert main(["doctor", "--notify", "custom-webhook/bad"]) == 1
    said = capsys.readouterr().out
    assert "custom-webhook/bad" in said
    assert "s3cret" not in said + without_secrets("s3cretdeep")


def test_an_entry_that_cannot_be_used_is_refused() -> None:
    with pytest.raises(InputError, match=r"notifications.0.block: .* it is 'ops'"):
        notifications_of({"notifications": [{"name": "n", "block": "ops"}]})


def night(folder: Any, notified: str) -> Any:
    rows = folder / "rows.parquet"
    pq.write_table(pa.table({"key": ["a"], "day": ["2026-01-01"], "y": [1.0]}), rows)
    return lifecycle(
        str(rows), "key", Mean(label="y"), "sales", "date", "y",
        day="2026-02-01", store=str(folder / "store"), notified=notified,
    )  # fmt: skip


@pytest.mark.parametrize("status", [200, 500])
def test_a_night_that_stops_is_told_and_ends_by_its_own_error(webhook, tmp_path, status) -> None:
    """Also where nobody hears of it."""
    webhook.status = status
    with pytest.raises(ColumnError, match="'date'"):
        night(tmp_path, "custom-webhook/ops")
    [heard] = webhook.heard
    assert heard["subject"] == "The night 2026-02-01 of sales stopped"
    assert "'date'" in heard["text"]


def test_what_sends_no_notifications_is_refused_before_any_work(tmp_path) -> None:
    Secret(value="x").save("no-sender", overwrite=True)
    with pytest.raises(InputError, match="sends no notifications"):
        night(tmp_path, "secret/no-sender")
    with pytest.raises(InputError, match="No block 'slack-webhook/nobody'"):
        night(tmp_path, "slack-webhook/nobody")
    assert not (tmp_path / "store").exists()
