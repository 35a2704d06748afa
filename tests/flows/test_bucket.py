"""Runs in a bucket, with workers that see neither this machine's disk nor its keys."""

import os
from collections import Counter
from collections.abc import Iterator

import pyarrow as pa
import pytest
from pydantic import SecretStr

from partwise.blocks import RemoteCluster, StoreBlock
from partwise.engine.options import ExecutionOptions
from partwise.flows import run_inference, train_models
from partwise.models.serdes import PickleSerde
from partwise.outcomes import Result, RunStatus
from partwise.runs.garbage import collect_garbage
from partwise.runs.run import Run
from tests.lazily import Lazily

boto3 = Lazily("boto3")

KEYS = 40
SHARDS = 4
SECRET = "the-secret-half-of-a-key"
KEY_NAMES = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")


def table_of(changed: dict[int, float]) -> pa.Table:
    keys = [key for key in range(KEYS) for _ in range(3)]
    return pa.table({"key": keys, "y": [changed.get(key, float(key)) for key in keys]})


def fit(data, context):
    context.logger.info("training %s", context.key)
    return Result({"mean": float(data.to_numpy("y").mean())}, metrics={"n": len(data)})


def predict(data, model, context):
    return {"prediction": [model["mean"]] * len(data)}


def take_keys() -> dict[str, str]:
    return {name: os.environ.pop(name) for name in KEY_NAMES if name in os.environ}


def give_keys(keys: dict[str, str]) -> None:
    # A function of ours, as os.environ.update would travel with a copy of the environment.
    os.environ.update(keys)


@pytest.fixture
def workers_without_keys(dask_client) -> Iterator[None]:
    taken = dask_client.run(take_keys)
    yield
    for worker, keys in taken.items():
        dask_client.run(give_keys, keys, workers=[worker])


@pytest.fixture
def bucket(s3_store_url: str) -> Iterator[object]:
    client = boto3.client("s3")
    yield lambda: {
        entry["Key"]: client.get_object(Bucket=name, Key=entry["Key"])["Body"].read()
        for name in [s3_store_url.removeprefix("s3://")]
        for page in client.get_paginator("list_objects_v2").paginate(Bucket=name)
        for entry in page.get("Contents", [])
    }
    client.close()


def by_folder(names: list[str], run_id: str) -> Counter[str]:
    """Count the objects of a run in each of its folders."""
    prefix = f"models/runs/{run_id}/"
    inside = [name.removeprefix(prefix) for name in names if name.startswith(prefix)]
    return Counter(name.rpartition("/")[0] or name for name in inside)


@pytest.mark.slow
def test_train_resume_and_infer_in_a_bucket(
    cluster, s3_store_url, s3_endpoint_url, bucket, workers_without_keys
) -> None:
    arguments = {
        "store": StoreBlock(
            url=f"{s3_store_url}/models",
            endpoint_url=s3_endpoint_url,
            access_key_id=SecretStr("an-id"),
            secret_access_key=SecretStr(SECRET),
        ),
        "serde": PickleSerde(),
        "on_existing_artifacts": "resume",
        "cluster": RemoteCluster(address=cluster.address, shares_filesystem=False),
    }
    options = ExecutionOptions(n_shards=SHARDS)
    run = train_models(
        table_of({}),
        "key",
        fit,
        run_id="trained",
        execution=options,
        params={3: {"a": 1}},
        **arguments,
    )
    assert (run.status, run.counts) == (RunStatus.SUCCESS, {"DONE": KEYS})
    assert run.model(7, PickleSerde()) == {"mean": 7.0}
    assert "training 7" in run.logs(7)
    objects = by_folder(list(bucket()), "trained")
    lease = objects.pop("lease")
    assert lease <= 4
    assert objects == {
        "run.json": 1,
        "generations": 4,
        "bundles": SHARDS,
        "ledger": SHARDS,
        "report.html": 1,
    }

    changed = {3: 30.0, 4: 40.0}
    run = train_models(
        table_of(changed), "key", fit, run_id="trained", params={3: {"a": 1}}, **arguments
    )
    assert (run.executed, run.kept) == (2, KEYS - 2)
    assert run.model(3, PickleSerde()) == {"mean": 30.0}

    data = table_of({})
    for executed in (KEYS, 0):
        inferred = run_inference(data, "key", "trained", predict, run_id="inferred", **arguments)
        assert (inferred.status, inferred.executed) == (RunStatus.SUCCESS, executed)
    rows = inferred.predictions()
    found = dict(zip(rows["key"].to_pylist(), rows["prediction"].to_pylist(), strict=True))
    assert rows.num_rows == 3 * KEYS
    assert found == {key: changed.get(key, float(key)) for key in range(KEYS)}

    stored = bucket()
    assert not [name for name in stored if "/scratch/" in name or ".tmp-" in name]
    assert by_folder(list(stored), "inferred")["predictions"] == SHARDS
    assert not [name for name, content in stored.items() if SECRET.encode() in content]
    # Anybody with keys of his own sees the same.
    again = Run.open("trained", f"{s3_store_url}/models")
    assert again.model(4, PickleSerde()) == {"mean": 40.0}
    garbage = collect_garbage(again.store, "trained", dry_run=False, grace_hours=0).files
    assert {path for path, _ in garbage} == {
        path.removeprefix("models/") for path in set(stored) - set(bucket())
    } - {path for path, _ in garbage if "/lease/" in path}
    assert again.refresh().model(3, PickleSerde()) == {"mean": 30.0}
