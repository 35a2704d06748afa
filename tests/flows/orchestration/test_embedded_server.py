"""What of Prefect's inside we rely on, so that a release that changes it is noticed."""

import os
import sqlite3
import subprocess
import sys
from contextlib import closing

import httpx
import psutil
import pytest
from prefect._internal.concurrency.services import QueueService

from partwise.flows.orchestration.embedded_server import forget_unsent, start_embedded_server
from tests.lazily import Lazily

server = Lazily("prefect.server.api.server")


def test_what_waits_to_be_sent_is_dropped() -> None:
    class Sender(QueueService[int]):
        async def _handle(self, item: int) -> None:
            raise AssertionError(item)

    sender = Sender()
    for item in range(3):
        sender._queue.put(item)
    forget_unsent()
    assert sender._queue.empty()


def test_no_server_is_embedded_where_one_is_named(prefect_server) -> None:
    start_embedded_server()
    assert server.SubprocessASGIServer._instances == {}


SCRIPT = """
import sys
import pyarrow as pa
from prefect.server.api.server import SubprocessASGIServer
from partwise.blocks import LocalCluster
from partwise.flows import map_partitions
from partwise.flows.cli.prefect_log import prefect_server


def first(data, context):
    return data.to_arrow().slice(0, 1).select(["value"])


table = pa.table({"key": [1, 2], "value": [1, 2]})
cluster = LocalCluster(workers=1)
with prefect_server():
    # Two flows in the settings of one command, as the demo calls them.
    map_partitions(table, "key", first, run_id="embedded", store=sys.argv[1], cluster=cluster)
    map_partitions(table, "key", first, run_id="second", store=sys.argv[1], cluster=cluster)
run = map_partitions(table, "key", first, run_id="third", store=sys.argv[1], cluster=cluster)
# Also outside of a flow this process is let in.
cluster.save("kept")
server = SubprocessASGIServer()
print(run.status, LocalCluster.load("kept").workers, server.api_url, server.server_process.pid)
sys.stdout.flush()
sys.stdin.read()
"""


@pytest.mark.slow
def test_an_embedded_server_lets_nobody_else_in_and_ends_with_a_driver_that_is_killed(tmp_path):
    environment = {key: os.environ[key] for key in os.environ if not key.startswith("PREFECT_")}
    home = tmp_path / "home"
    with subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(tmp_path / "store")],
        env=environment
        | {"PREFECT_HOME": str(home), "PREFECT_SERVER_ALLOW_EPHEMERAL_MODE": "true"},
        stderr=subprocess.DEVNULL,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as driver:
        try:
            status, workers, url, pid = driver.stdout.readline().split()
            server = psutil.Process(int(pid))
            refused = {
                (method, path): httpx.request(method, f"{url}{path}", json={}).status_code
                for method, path in [
                    ("GET", "/admin/version"),
                    ("GET", "/csrf-token?client=evil"),
                    ("POST", "/block_documents/filter"),
                    ("POST", "/deployments/"),
                ]
            }
            words = " ".join(server.cmdline())
            modes = {path.name: path.stat().st_mode & 0o077 for path in home.iterdir()}
        finally:
            driver.kill()
    gone, _ = psutil.wait_procs([server], timeout=10)

    assert (status, workers) == ("SUCCESS", "1")
    assert set(refused.values()) <= {401, 403}, refused
    assert "partwise:" not in words
    assert modes["prefect.db"] == 0
    assert [process.pid for process in gone] == [server.pid]
    # What Prefect's own threads send has reached it all the same.
    with closing(sqlite3.connect(home / "prefect.db")) as database:
        for table in ("flow_run", "log", "events", "artifact"):
            assert database.execute(f"SELECT count(*) FROM {table}").fetchone()[0] > 0, table
