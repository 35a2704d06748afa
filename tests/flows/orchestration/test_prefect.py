"""What Prefect is told of a run, what it is spared, and a run without it."""

import json
import os
import re
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import orjson
import pandas as pd
import pyarrow as pa
import pytest
from prefect import flow
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import (
    FlowRunFilter,
    FlowRunFilterName,
    TaskRunFilter,
    TaskRunFilterFlowRunId,
)
from prefect.client.schemas.objects import FlowRun, TaskRun

from partwise.blocks import StoreBlock
from partwise.catalogs.rules import Improvement
from partwise.engine.options import ExecutionOptions
from partwise.errors import InputError, RunFailedError
from partwise.flows import map_partitions, promote_models, tidy_store, train_models
from partwise.flows.orchestration import prefect_flow
from partwise.flows.running import execute_shards
from partwise.outcomes import RunStatus
from partwise.tasks.flow_run import FLOW_RUN_ID, flow_run_id, has_own_process
from partwise.trainers import LightGBMTrainer
from tests import prefect_database

# What Prefect shows of runs is asked of its server.
pytestmark = pytest.mark.usefixtures("prefect_server")

PATIENCE_S = 60.0


def flow_run(run_id: str) -> FlowRun:
    """The newest flow run of this name that has begun; other tests may have had runs of it."""
    with get_client(sync_client=True) as client:
        chosen = FlowRunFilter(name=FlowRunFilterName(any_=[run_id]))
        found = client.read_flow_runs(flow_run_filter=chosen)
    begun = [run for run in found if run.start_time is not None]
    return max(begun, key=lambda run: run.start_time)


def task_runs(of: FlowRun, expected: int) -> list[TaskRun]:
    """The task runs of a flow run; the server learns of them a moment later."""
    deadline = time.monotonic() + PATIENCE_S
    chosen = TaskRunFilter(flow_run_id=TaskRunFilterFlowRunId(any_=[of.id]))
    with get_client(sync_client=True) as client:
        while True:
            found = client.read_task_runs(task_run_filter=chosen)
            done = [run for run in found if run.state is not None and run.state.is_final()]
            if len(done) >= expected or time.monotonic() > deadline:
                return found
            time.sleep(0.1)


def numbers(partitions: int) -> pa.Table:
    return pa.table({"key": range(partitions), "value": range(partitions)})


def fail_for(keys: set[int]):
    def function(data, context):
        if context.key in keys:
            raise ValueError("not this one")

    return function


@pytest.mark.parametrize(
    ("failing", "partial", "kind", "name"),
    [
        (set(), "failed", "COMPLETED", "Completed"),
        ({1}, "completed", "COMPLETED", "PARTIAL_FAILURE"),
        ({1}, "failed", "FAILED", "PARTIAL_FAILURE"),
        ({0, 1, 2}, "completed", "FAILED", "FAILURE"),
    ],
    ids=["success", "partial failure", "partial failure as failed", "failure"],
)
def test_a_flow_run_ends_in_the_state_of_its_run(
    cluster, tmp_path, failing, partial, kind, name
) -> None:
    run_id = f"state-{len(failing)}-{partial}"
    options = {
        "run_id": run_id,
        "store": tmp_path,
        "execution": ExecutionOptions(n_shards=1, max_retries=0, partial_failure=partial),
        "cluster": cluster,
    }
    if name == "FAILURE":
        with pytest.raises(RunFailedError) as caught:
            map_partitions(numbers(3), "key", fail_for(failing), **options)
        run = caught.value.run
    else:
        run = map_partitions(numbers(3), "key", fail_for(failing), **options)
    told = flow_run(run_id)
    assert told.state is not None
    assert told.state.type.value == kind
    assert told.state.name == name
    assert "3 partitions" in (told.state.message or "")
    assert run.counts.get("FAILED", 0) == len(failing)
    # In the timeline, the bar of a group with failures is not green; the work went on, once.
    [group] = [one for one in task_runs(told, 3) if one.name.startswith("map ")]
    assert group.state is not None
    if not failing:
        assert group.state.type.value == "COMPLETED"
    else:
        assert (group.state.type.value, group.run_count) == ("FAILED", 1)
        assert group.state.message == f"{len(failing)} of 3 partitions failed."


def test_refused_input_is_a_failed_flow_run_that_says_why(cluster, tmp_path) -> None:
    with pytest.raises(InputError):
        map_partitions(
            numbers(3),
            "store",
            fail_for(set()),
            run_id="refused-input",
            store=tmp_path,
            cluster=cluster,
        )
    told = flow_run("refused-input").state
    assert told is not None
    assert told.is_failed()
    assert "'store'" in (told.message or "")


def test_task_runs_are_few_and_named(cluster, tmp_path, monkeypatch) -> None:
    assert execute_shards.MOST_GROUPS == 64
    # With so few groups, twelve shards are too many for one each.
    monkeypatch.setattr(execute_shards, "MOST_GROUPS", 9)
    run = map_partitions(
        numbers(60),
        "key",
        fail_for(set()),
        run_id="many-shards",
        store=tmp_path,
        execution=ExecutionOptions(n_shards=12),
        cluster=cluster,
    )
    told = flow_run("many-shards")
    shards = len(run.partitions["shard"].unique())
    assert shards > execute_shards.MOST_GROUPS, "else each has a task run of its own"
    expected = -(-shards // 2)
    names = [run.name for run in task_runs(told, expected + 2)]
    assert len(names) == expected + 2
    assert names.count("publish report") == 1
    assert names.count("load partitions") == 1
    named = re.compile(r"map (2 shards from|shard) \d+ \(\d+ rows\)")
    assert sum(named.fullmatch(name) is not None for name in names) == expected


def test_large_data_and_params_do_not_reach_the_server(cluster, tmp_path) -> None:
    partitions, rows = 2_000, 200_000
    frame = pd.DataFrame({f"x{i}": np.random.default_rng(i).random(rows) for i in range(37)})
    frame.insert(0, "key", np.arange(rows) % partitions)
    assert frame.memory_usage().sum() > 60e6
    params = {key: {"text": f"parameter of {key}"} for key in range(partitions)}
    table = np.arange(100_000.0)

    def function(data, context):
        if context.key == 7:
            return {"text": [context.params["text"]], "last": [table[-1]]}
        return None

    began = time.monotonic()
    run = map_partitions(
        frame,
        "key",
        function,
        run_id="large-data-and-params",
        store=tmp_path,
        params=params,
        execution=ExecutionOptions(n_shards=4),
        cluster=cluster,
    )
    assert time.monotonic() - began < PATIENCE_S
    assert run.counts == {"DONE": partitions}
    assert run.predictions().to_pylist() == [{"key": 7, "text": "parameter of 7", "last": 99_999}]
    stored = json.dumps(flow_run("large-data-and-params").parameters)
    assert len(stored) < 10_000
    assert "parameter of" not in stored
    assert "DataFrame" in stored


def test_keys_of_a_store_do_not_reach_the_server() -> None:
    store = StoreBlock(
        url="s3://bucket", access_key_id="canary-id", secret_access_key="canary-secret"
    )
    stored = train_models.serialize_parameters({"store": store})
    assert stored["store"]["url"] == "s3://bucket"
    assert "canary" not in json.dumps(stored)


def test_a_flow_of_a_plain_value_tells_prefect_no_secrets(monkeypatch, tmp_path, caplog) -> None:
    given = {"mlflow": "https://me:hunter2hunter@mlflow", "rule": Improvement(), "store": tmp_path}
    stored = promote_models.serialize_parameters(given)
    assert stored["mlflow"] == "https://me:***@mlflow"
    assert (stored["rule"]["kind"], stored["store"]) == ("improvement", str(tmp_path))

    def fail(*_: Any) -> None:
        raise RuntimeError("no answer from postgresql://reader:hunter2hunter@db/shop")

    monkeypatch.setattr(sys.modules["partwise.flows.tidy_store"], "open_store", fail)
    with pytest.raises(RuntimeError):
        tidy_store(store=str(tmp_path))
    with get_client(sync_client=True) as client:
        told = [run.state.message or "" for run in client.read_flow_runs() if run.state]
    assert any("RuntimeError: no answer from postgresql://reader:***@db" in text for text in told)
    assert "hunter2" not in f"{told} {caplog.text}"
    with pytest.raises(InputError, match="keep_last"):
        tidy_store(keep_last="x")


def test_prefect_begins_a_flow_of_a_plain_value_again_where_it_is_told_to(
    monkeypatch, tmp_path
) -> None:
    module, tries = sys.modules["partwise.flows.tidy_store"], list[str]()
    opened = module.open_store

    def fail_once(store: str) -> Any:
        tries.append(store)
        if len(tries) == 1:
            raise RuntimeError("no answer from postgresql://reader:hunter3hunter@db/shop")
        return opened(store)

    monkeypatch.setattr(module, "open_store", fail_once)
    tidy_store.with_options(retries=1)(store=str(tmp_path))
    assert len(tries) == 2


def test_whole_numbers_beyond_64_bits_are_stored_as_text() -> None:
    """Else the server lists no flow run any more."""
    trainer = LightGBMTrainer(label="value", params={"seed": 2**70, "bagging_seed": -(2**63)})
    filters = [("x", "<", 2**64), ("x", "in", (1, 2**64 - 1, -(2**63) - 1)), ("y", "==", True)]
    stored = train_models.serialize_parameters({"trainer": trainer, "filter": filters})
    assert stored["trainer"]["params"] == {"seed": str(2**70), "bagging_seed": -(2**63)}
    assert [each[2] for each in stored["filter"]] == [
        str(2**64),
        [1, 2**64 - 1, str(-(2**63) - 1)],
        True,
    ]
    orjson.dumps(stored)


def test_parameters_are_stored_as_a_person_reads_them(cluster, tmp_path) -> None:
    # What is a path stays one, whether it came as text or not.
    trainer = LightGBMTrainer(label="value", features=["x"], rounds=1, min_rows=1)
    path = tmp_path / "rows.csv"
    path.write_text("key,x,value\n1,2,3\n1,3,4\n")
    train_models(
        path,
        "key",
        trainer,
        run_id="readable",
        store=tmp_path / "store",
        execution=ExecutionOptions(n_shards=1),
        cluster=cluster,
    )
    stored = flow_run("readable").parameters
    assert stored["data"] == str(path)
    assert stored["partition_by"] == "key"
    assert stored["trainer"]["kind"] == "lightgbm"
    assert stored["execution"]["n_shards"] == 1
    assert stored["store"] == str(tmp_path / "store")


SCRIPT = """
import sys
import time

import pyarrow as pa

from partwise.blocks import LocalCluster, RemoteCluster
from partwise.flows import train_models
from partwise.models.serdes import PickleSerde

store, address, seconds = sys.argv[1], sys.argv[2], float(sys.argv[3])
cluster = LocalCluster(workers=2)
if address:
    cluster = RemoteCluster(address=address, shares_filesystem=True)
table = pa.table({"key": [n % 20 for n in range(60)], "value": range(60)})


def fit(data, context):
    time.sleep(seconds)
    return {"mean": float(data.to_numpy("value").mean())}


run = train_models(
    table, "key", fit, run_id="outlives", store=store, serde=PickleSerde(), cluster=cluster
)
print("the last words:", run.status, run.counts)
"""


def script_environment(home: Path) -> dict[str, str]:
    environment = {key: os.environ[key] for key in os.environ if not key.startswith("PREFECT_")}
    return environment | {"PREFECT_HOME": str(home)}


@pytest.mark.slow
@pytest.mark.parametrize("is_embedded", [False, True], ids=["direct", "embedded"])
def test_a_plain_script_runs_where_no_server_is_named(tmp_path, is_embedded) -> None:
    """It has no guard against being imported, as short scripts have none."""
    environment = script_environment(tmp_path / "prefect")
    if is_embedded:
        environment["PREFECT_SERVER_ALLOW_EPHEMERAL_MODE"] = "true"
        prefect_database.copy_to(tmp_path / "prefect")
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, script, tmp_path / "store", "", "0"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "the last words: SUCCESS {'DONE': 20}\n"
    assert "Traceback" not in done.stderr
    assert "Error" not in done.stderr
    # A person sees the same lines.
    assert re.search(r"INFO +\| Flow run 'outlives' - Run outlives: 60 rows in 20", done.stderr)
    database = tmp_path / "prefect" / "prefect.db"
    assert database.exists() is is_embedded
    if is_embedded:
        with closing(sqlite3.connect(database)) as connection:
            assert connection.execute("SELECT count(*) FROM flow_run").fetchone() == (1,)


@contextmanager
def way_to(port: int) -> Iterator[tuple[int, Callable[[], None]]]:
    """Give a port that leads to another one, and a function that ends it and all connections."""
    opened = [socket.create_server(("127.0.0.1", 0))]

    def forward(source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                target.sendall(data)
        close([source, target])

    def close(sockets: list[socket.socket]) -> None:
        for each in sockets:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def accept(threads: ThreadPoolExecutor) -> None:
        with suppress(OSError):
            while True:
                pair = opened[0].accept()[0], socket.create_connection(("127.0.0.1", port))
                opened.extend(pair)
                threads.submit(forward, *pair)
                threads.submit(forward, *reversed(pair))

    with ThreadPoolExecutor(64) as threads:
        threads.submit(accept, threads)
        try:
            yield opened[0].getsockname()[1], lambda: close(opened)
        finally:
            close(opened)


@pytest.mark.slow
def test_a_run_outlives_the_server(prefect_server, dask_client, tmp_path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    store = tmp_path / "store"
    with way_to(urlsplit(prefect_server).port or 0) as (port, end_it):
        environment = script_environment(tmp_path / "prefect") | {
            "PREFECT_API_URL": f"http://127.0.0.1:{port}/api",
            "PREFECT_CLIENT_MAX_RETRIES": "0",
        }
        with subprocess.Popen(
            [sys.executable, script, store, dask_client.scheduler.address, "0.1"],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            deadline = time.monotonic() + PATIENCE_S
            while not (store / "runs" / "outlives" / "generations").exists():
                assert process.poll() is None, process.communicate()
                assert time.monotonic() < deadline
                time.sleep(0.05)
            end_it()
            out, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, err
    assert out == "the last words: SUCCESS {'DONE': 20}\n"
    told = flow_run("outlives").state
    assert told is not None
    assert not told.is_final()


def test_a_process_of_one_flow_run_looks_for_garbage_rarely_and_no_other_does(monkeypatch) -> None:
    rarely = []
    monkeypatch.setattr(prefect_flow, "collect_rarely", lambda: rarely.append(flow_run_id()))

    def begin() -> str | None:
        # The call itself is refused.
        with pytest.raises(TypeError, match="missing"):
            map_partitions.flow.fn()
        return flow_run_id()

    @flow
    def within() -> None:
        begin()

    @flow
    def around() -> str | None:
        begin()
        # As Prefect starts a process for a flow run.
        monkeypatch.setenv(FLOW_RUN_ID, str(flow_run_id()))
        within()
        return begin()

    assert around() == rarely.pop()
    assert not rarely
    assert not has_own_process(), "no flow run is at work"


@pytest.mark.slow
def test_two_runs_at_once_share_a_process(cluster, tmp_path) -> None:
    def run(number: int) -> Any:
        return map_partitions(
            numbers(6),
            "key",
            fail_for({number}),
            run_id=f"at-once-{number}",
            store=tmp_path,
            execution=ExecutionOptions(n_shards=2, max_retries=0),
            cluster=cluster,
        )

    with ThreadPoolExecutor(2) as threads:
        runs = list(threads.map(run, (1, 2)))
    for number, found in zip((1, 2), runs, strict=True):
        assert found.run_id == f"at-once-{number}"
        assert found.status is RunStatus.PARTIAL_FAILURE
        assert found.partitions["status"].to_pylist()[number] == "FAILED"
