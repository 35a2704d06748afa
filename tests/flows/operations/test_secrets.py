"""Where a store's keys may be found: in the block that holds them, encrypted, and nowhere else."""

import functools
import json
import pickle
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing, suppress
from typing import Any

import pyarrow as pa
import pytest
from distributed import Scheduler, SchedulerPlugin
from prefect.client.schemas.objects import FlowRun
from prefect.deployments import run_deployment
from pydantic import SecretStr

from partwise.blocks import LocalCluster, RemoteCluster, StoreBlock
from partwise.engine.options import ExecutionOptions
from partwise.flows import train_models
from partwise.models.serdes import PickleSerde
from partwise.outcomes import RunStatus
from tests.flows.operations.locked_bucket import LockedBucket
from tests.flows.operations.project import Production, wait_until

pytestmark = pytest.mark.slow  # a Prefect server and a worker

MARK = "a-word-that-has-to-be-found"
WRONG = "canary-of-a-secret-that-opens-nothing"
TOLD = (
    "database",
    "api/artifacts",
    "api/logs",
    r"folder/\.partwise/prefect\.db.*",
    r"folder/\.partwise/worker\.log",
    r"bucket/.*/log\.txt",
    r"bucket/.*/ledger/.*:rows",
    r"bucket/.*/report\.html@.*",
)
"""Where it is seen that partitions failed, and why; or what they printed."""

FUNCTIONS = f'''
"""Functions that tell all that they can see."""
import os
from pathlib import Path


def tell(data, context):
    print("{MARK}", dict(os.environ), vars(context))
    for process in ("self", os.getppid()):
        for file in ("environ", "cmdline"):
            print(Path(f"/proc/{{process}}/{{file}}").read_bytes())
    if context.key == 0:
        raise ValueError(f"{MARK} {{context!r}}")
    return {{"mean": 1.0}}


def use(data, model, context):
    tell(data, context)
    return [model["mean"]] * data.num_rows
'''


@pytest.fixture(scope="module")
def bucket(production: Production, s3_endpoint_url: str) -> Iterator[LockedBucket]:
    """A bucket; its keys are in the block store-block/locked, and wrong ones in another."""
    (production.folder / "telling.py").write_text(FUNCTIONS)
    with LockedBucket.of(s3_endpoint_url) as made:
        block_of(made, made.secret).save("locked")
        block_of(made, WRONG).save("wrong")
        yield made


def block_of(bucket: LockedBucket, secret: str) -> StoreBlock:
    return StoreBlock(
        url=bucket.url,
        endpoint_url=bucket.endpoint_url,
        access_key_id=SecretStr(bucket.key_id),
        secret_access_key=SecretStr(secret),
    )


def training(production: Production, run_id: str, store: Any) -> dict[str, Any]:
    return production.small(run_id, trainer="telling:tell", serde="pickle", store=store)


def everything(production: Production, bucket: LockedBucket) -> dict[str, bytes]:
    """All that anybody wrote down, by where it stands."""
    found = {f"bucket/{name}": content for name, content in bucket.contents().items()}
    for path in production.folder.rglob("*"):
        # The server goes on writing, and may take a file of its own away.
        with suppress(FileNotFoundError, IsADirectoryError):
            found[f"folder/{path.relative_to(production.folder)}"] = path.read_bytes()
    database = production.folder / ".partwise" / "prefect.db"
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as connection:
        found["database"] = "\n".join(connection.iterdump()).encode()
    for kind in ("flow_runs", "task_runs", "logs", "artifacts", "block_documents", "automations"):
        found[f"api/{kind}"] = json.dumps(list(pages(production, kind))).encode()
    return found


def pages(production: Production, kind: str) -> Iterator[Any]:
    seen = 0
    while rows := production.post(f"/{kind}/filter", {"offset": seen}):
        yield rows
        seen += len(rows)


def places(texts: dict[str, bytes], word: str) -> list[str]:
    return sorted(name for name, content in texts.items() if word.encode() in content)


def log_of(production: Production, run: FlowRun) -> str:
    chosen = {"logs": {"flow_run_id": {"any_": [str(run.id)]}}}
    rows = production.post("/logs/filter", chosen)
    return "\n".join(row["message"] for row in rows)


@pytest.fixture(scope="module")
def ended(production: Production, bucket: LockedBucket) -> dict[str, FlowRun]:
    """Flow runs that were given the store in every way, well or not, by their run IDs."""
    document = production.client.read_block_document_by_name("locked", "store-block")
    by_slug = {"$ref": {"block_document_slug": "store-block/wrong"}}
    started = {
        name: production.run("train-models/train", training(production, name, store))
        for name, store in {"by-name": "store-block/locked", "by-slug": by_slug}.items()
    }
    masked = training(production, "masked", StoreBlock.load("locked"))
    asked = run_deployment("train-models/train", parameters=masked, timeout=0)
    started["masked"] = asked.id
    production.wait(started["by-name"])
    LocalCluster(workers=1).save("one")
    parameters = production.small("by-id", training_run_id="by-name", predict="telling:use")
    parameters["serde"] = "pickle"
    parameters["store"] = {"$ref": {"block_document_id": str(document.id)}}
    parameters["cluster"] = {"$ref": {"block_document_slug": "local-cluster/one"}}
    started["by-id"] = production.run("run-inference/infer", parameters)
    return {name: production.wait(flow_run_id) for name, flow_run_id in started.items()}


def test_a_store_is_opened_by_its_name_its_id_and_its_slug(ended: dict[str, FlowRun]) -> None:
    assert {ended[name].state_name for name in ("by-name", "by-id")} == {"PARTIAL_FAILURE"}
    refused = ended["by-slug"].state
    assert refused is not None
    assert refused.is_failed()
    assert "signature" in (refused.message or "")


def test_a_block_itself_is_refused_since_its_keys_are_lost(ended: dict[str, FlowRun]) -> None:
    state = ended["masked"].state
    assert state is not None
    assert state.is_failed()
    assert "secret_access_key is a row of asterisks" in (state.message or "")
    assert "'store-block/prod'" in (state.message or "")


def test_the_keys_of_a_store_are_in_its_block_only(
    production: Production, bucket: LockedBucket, ended: dict[str, FlowRun]
) -> None:
    for name in ("by-name", "by-id", "by-slug"):
        # What a flow run says last of all is written down a moment later.
        said = functools.partial(log_of, production, ended[name])
        wait_until(lambda said=said: "Finished in state" in said(), f"all of the log of {name}")
    texts = everything(production, bucket)
    for secret in (bucket.secret, bucket.key_id, WRONG):
        assert places(texts, secret) == []
    # What the functions told did get there, so that the search would have found more.
    told = places(texts, MARK)
    for place in TOLD:
        assert [name for name in told if re.fullmatch(place, name)], place
    assert [name for name in texts if re.fullmatch(r"bucket/.*/by-id/generations/0001.*", name)]
    assert "store-block/locked" in texts["api/flow_runs"].decode()


class Sent(SchedulerPlugin):
    """What a scheduler gives its workers to do."""

    name = "partwise-tests-sent"

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler
        self.tasks: dict[str, bytes] = {}

    def transition(self, key: Any, start: str, finish: str, *rest: Any, **more: Any) -> None:
        if finish == "processing":
            self.tasks[str(key)] = pickle.dumps(self.scheduler.tasks[key].run_spec)


def tell(data: Any, context: Any) -> dict[str, float]:
    return {"mean": 1.0}


@pytest.fixture
def sent(dask_client) -> Iterator[Sent]:
    scheduler = dask_client.cluster.scheduler
    plugin = Sent(scheduler)
    scheduler.add_plugin(plugin)
    yield plugin
    scheduler.remove_plugin(plugin.name)


def test_the_keys_of_a_store_are_in_no_dask_task(
    production: Production, bucket: LockedBucket, dask_client, sent: Sent
) -> None:
    run = train_models(
        pa.table({"k": [0, 1, 2], "y": [0.0, 1.0, 2.0]}),
        "k",
        tell,
        run_id="graph",
        store=block_of(bucket, bucket.secret),
        serde=PickleSerde(),
        execution=ExecutionOptions(n_shards=2),
        cluster=RemoteCluster(address=dask_client.scheduler.address, shares_filesystem=False),
    )
    assert run.status is RunStatus.SUCCESS
    events = {"events": repr(dask_client.get_events()).encode()}
    plugins = dask_client.cluster.scheduler.worker_plugins
    assert len(sent.tasks) == 2
    assert len(places(sent.tasks, bucket.url)) == 2
    # The one way that they do take.
    assert len(places(plugins, bucket.secret)) == 1
    for secret in (bucket.secret, bucket.key_id):
        assert places(sent.tasks | events | everything(production, bucket), secret) == []
