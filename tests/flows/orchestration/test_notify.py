"""Who is told that a night stopped: by a block that a person has saved in Prefect."""

import http.server
import json
import threading
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from prefect.blocks.notifications import CustomWebhookNotificationBlock
from prefect.blocks.system import Secret

from partwise.errors import ColumnError, InputError
from partwise.flows import lifecycle
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
