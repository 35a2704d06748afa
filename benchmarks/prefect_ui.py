"""What a run costs Prefect's server and UI: a run of few partitions beside one of very many.

    python benchmarks/prefect_ui.py [--partitions 100 100000] [--rows 10] [--repeat 15]

Starts a Prefect server of its own, with an empty SQLite database, and runs `map_partitions` with a
no-op function over each number of partitions. Prints how many rows each run has added to the
database, and medians, taken in turn for all runs: of the requests that the page of a flow run makes
in both of Prefect's UIs; and, where /usr/bin/chromium is installed, of the newer page itself until
nothing more is requested, the half second of silence included by which playwright tells that.
"""

import argparse
import logging
import os
import shutil
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from prefect.settings import PREFECT_API_URL, PREFECT_HOME, temporary_settings

from benchmarks.served.servers import free_port
from partwise.blocks import LocalCluster
from partwise.flows import map_partitions

CHROMIUM = "/usr/bin/chromium"
START_S = 180.0
QUIET_S = 12.0
"""Prefect writes events and task runs down seconds late: so long without any, and all are there."""
TABLES = (
    "flow_run",
    "flow_run_state",
    "task_run",
    "task_run_state",
    "log",
    "artifact",
    "events",
    "event_resources",
)

Requests = Mapping[str, Callable[[], httpx.Response]]


def do_nothing(data: Any, context: Any) -> None:
    """Stand for a function that costs nothing."""


@contextmanager
def prefect_server(folder: Path) -> Iterator[str]:
    """Give the API's address of a server of our own, whose database lies in a folder."""
    port = free_port()
    api_url = f"http://127.0.0.1:{port}/api"
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}
    settings = {
        "PREFECT_HOME": str(folder),
        "PREFECT_API_URL": api_url,
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "DO_NOT_TRACK": "1",
    }
    words = ["server", "start", "--host", "127.0.0.1", "--port", str(port)]
    with (folder / "server.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "prefect", *words],
            env=kept | settings,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    try:
        deadline = time.monotonic() + START_S
        while not answers(f"{api_url}/health"):
            if process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit((folder / "server.log").read_text())
            time.sleep(0.2)
        with temporary_settings({PREFECT_API_URL: api_url, PREFECT_HOME: folder}):
            yield api_url
    finally:
        process.terminate()
        process.wait()


def answers(url: str) -> bool:
    try:
        return httpx.get(url, timeout=5).is_success
    except httpx.HTTPError:
        return False


def count_rows(database: Path) -> dict[str, int]:
    """Return how many rows each table has, once all that was to be written is."""
    seen: dict[str, int] = {}
    since = time.monotonic()
    while time.monotonic() - since < QUIET_S:
        with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as connection:
            found = {
                table: connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
                for table in TABLES
            }
        if found != seen:
            seen, since = found, time.monotonic()
        time.sleep(0.5)
    return seen


def requests_of_page(client: httpx.Client, flow_run_id: str) -> Requests:
    """Return what the pages of a flow run ask for in both of Prefect 3.8.8's UIs."""
    these = {"operator": "and_", "flow_run_id": {"any_": [flow_run_id]}}
    this = {"operator": "and_", "id": {"any_": [flow_run_id]}}
    logs = {**these, "level": {"ge_": 0}}
    artifacts = {**these, "type": {"not_any_": ["result"]}}
    related = {"id": [f"prefect.flow-run.{flow_run_id}"]}
    shown = {"exclude_prefix": ["prefect.log.write", "prefect.task-run."]}

    def post(path: str, body: Mapping[str, Any]) -> Callable[[], httpx.Response]:
        return lambda: client.post(path, json=body)

    return {
        "flow run": lambda: client.get(f"/flow_runs/{flow_run_id}"),
        "graph": lambda: client.get(f"/flow_runs/{flow_run_id}/graph-v2"),
        "first 50 log lines": post(
            "/logs/filter", {"limit": 50, "sort": "TIMESTAMP_ASC", "logs": logs, "offset": 0}
        ),
        "task runs": post(
            "/task_runs/paginate",
            {"page": 1, "sort": "EXPECTED_START_TIME_DESC", "flow_runs": this},
        ),
        "count of task runs": post("/task_runs/count", {"flow_runs": this}),
        "artifacts": post(
            "/artifacts/filter", {"sort": "ID_DESC", "artifacts": artifacts, "offset": 0}
        ),
        "events": post("/events/filter", {"filter": {"any_resource": related, "event": shown}}),
    }


def timed(call: Callable[[], Any]) -> float:
    """Return the seconds that a call took."""
    began = time.perf_counter()
    answer = call()
    if isinstance(answer, httpx.Response):
        answer.raise_for_status()
    return time.perf_counter() - began


def medians(calls: Sequence[Callable[[], Any]], repeat: int) -> list[float]:
    """Return each call's median of several, made in turn after one that does not count."""
    rounds = [[timed(call) for call in calls] for _ in range(repeat + 1)]
    return [statistics.median(times) for times in zip(*rounds[1:], strict=True)]


@contextmanager
def pages(api_url: str, flow_run_ids: Sequence[str]) -> Iterator[list[Callable[[], Any]]]:
    """Give calls that open the page of each flow run in a browser."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        # As root there is no sandbox to be had.
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1280, "height": 1000})
        base = f"{api_url.removesuffix('/api')}/v2/runs/flow-run"
        yield [
            lambda name=name: page.goto(f"{base}/{name}", wait_until="networkidle") and None
            for name in flow_run_ids
        ]
        browser.close()


def show(name: str, values: Sequence[float], unit: str) -> None:
    shown = "".join(f"{value:>12,.{0 if unit == 'rows' else 1}f}" for value in values)
    ratio = f"{values[-1] / values[0]:8.2f} x" if values[0] else ""
    print(f"{name:<24}{shown} {unit:<5}{ratio}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--partitions", type=int, nargs="+", default=[100, 100_000])
    parser.add_argument("--rows", type=int, default=10)
    parser.add_argument("--repeat", type=int, default=15)
    parser.add_argument("--workers", type=int, default=2)
    arguments = parser.parse_args()
    # What goes to the API is counted, so only the terminal is spared.
    for handler in logging.getLogger().handlers:
        handler.setLevel(logging.WARNING)
    with tempfile.TemporaryDirectory() as name, prefect_server(Path(name)) as api_url:
        folder, database = Path(name), Path(name, "prefect.db")

        def run(partitions: int, run_id: str) -> dict[str, int]:
            keys = np.tile(np.arange(partitions), arguments.rows)
            pq.write_table(pa.table({"key": keys}), folder / "rows.parquet")
            before = count_rows(database)
            done = map_partitions(
                str(folder / "rows.parquet"),
                "key",
                do_nothing,
                run_id=run_id,
                store=folder / "store",
                cluster=LocalCluster(workers=arguments.workers),
            )
            after = count_rows(database)
            grown = {table: after[table] - before[table] for table in TABLES}
            return {"shards": done.document.n_shards, **grown}

        run(1, "warm-up")
        names = [f"of-{partitions}" for partitions in arguments.partitions]
        pairs = zip(arguments.partitions, names, strict=True)
        grown = [run(partitions, run_id) for partitions, run_id in pairs]
        ids = [flow_run_id(api_url, run_id) for run_id in names]
        show("partitions", arguments.partitions, "rows")
        for what in ("shards", *TABLES):
            show(what, [each[what] for each in grown], "rows")
        with httpx.Client(base_url=api_url, timeout=60) as client:
            asked = [requests_of_page(client, each) for each in ids]
            for what in asked[0]:
                times = medians([each[what] for each in asked], arguments.repeat)
                show(what, [seconds * 1000 for seconds in times], "ms")
        if shutil.which(CHROMIUM):
            with pages(api_url, ids) as calls:
                times = medians(calls, arguments.repeat)
                show("page in chromium", [seconds * 1000 for seconds in times], "ms")


def flow_run_id(api_url: str, run_id: str) -> str:
    chosen = {"flow_runs": {"name": {"any_": [run_id]}}}
    [found] = httpx.post(f"{api_url}/flow_runs/filter", json=chosen).json()
    return str(found["id"])


if __name__ == "__main__":
    main()
