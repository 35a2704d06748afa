"""Secrets that users' functions and libraries say, looked for in everything that is written."""

import io
import json
import os
import traceback
import zipfile
from typing import Any

import pyarrow as pa
import pytest
from prefect.client.orchestration import get_client
from pydantic import SecretStr

from partwise.blocks import StoreBlock
from partwise.errors import PartwiseError, RunFailedError
from partwise.flows import map_partitions
from partwise.outcomes import Skip
from partwise.runs.run import Run
from partwise.sources.sql.query import Query

CANARY = "canary7f3a9c51d2"

SENTENCES = [
    f"no answer from postgresql://app:{CANARY}@db/shop",
    f"connect(host='db', password='{CANARY}')",
    f"AccountName=a;AccountKey={CANARY}==;EndpointSuffix=core",
    f"aws_secret_access_key={CANARY}",
    f"403 for https://b.s3.example.org/k?X-Amz-Signature={CANARY}",
    f"the header was Authorization: Bearer {CANARY}",
    f"a value of the environment: {CANARY}",
]


def leak(data, context):
    """Say a secret in one of many ways."""
    canary = "canary" + "7f3a9c51d2"
    if context.key == 6:
        assert os.environ["SHOP_DB_PASSWORD"] == canary
        print(f"known in the environment: {canary}")
    sentence = data.to_arrow()["sentence"][0].as_py()
    if context.key == 1:
        return Skip(sentence)
    try:
        raise ConnectionError(sentence)
    except ConnectionError as error:
        raise ValueError(f"cannot train: {sentence}") from error


def set_password(value: str | None) -> None:
    """Set a variable in the environment of a worker, or take it away."""
    os.environ.pop("SHOP_DB_PASSWORD", None)
    if value is not None:
        os.environ["SHOP_DB_PASSWORD"] = value


def written(run: Run) -> dict[str, bytes]:
    """All that a run left in its store but the rows, by where it stands; zip files unpacked."""
    found = {}
    for path in run.store.list(f"runs/{run.run_id}/"):
        content = run.store.read(path)
        found[path] = content
        if path.endswith(".zip"):
            with zipfile.ZipFile(io.BytesIO(content)) as bundle:
                found |= {f"{path}/{name}": bundle.read(name) for name in bundle.namelist()}
    found["ledger"] = json.dumps(run.ledger.to_pylist(), default=str).encode()
    return found


def told_to_prefect(run_id: str) -> dict[str, bytes]:
    """All that Prefect's server was told, of whichever run."""
    with get_client(sync_client=True) as client:
        found: dict[str, Any] = {
            kind: client._client.post(f"/{kind}/filter", json={"limit": 200}).json()
            for kind in ("flow_runs", "task_runs", "logs", "artifacts")
        }
    assert run_id in json.dumps(found["flow_runs"])
    return {kind: json.dumps(rows).encode() for kind, rows in found.items()}


@pytest.mark.slow
def test_no_canary_is_in_anything_that_is_written(
    prefect_server, cluster, dask_client, store, capfd
) -> None:
    keys = list(range(len(SENTENCES)))
    rows = pa.table({"key": keys, "sentence": SENTENCES})
    run_id = f"canaries-{'s3' if '://' in store.url else 'local'}"
    kept: Any = store.url
    if "://" in store.url:
        # The key of the store is one as well.
        secret = {"access_key_id": "an-id", "secret_access_key": SecretStr(CANARY)}
        kept = StoreBlock(url=store.url, endpoint_url=store.endpoint_url, **secret)
    dask_client.run(set_password, CANARY)
    try:
        with pytest.raises(RunFailedError) as raised:
            map_partitions(rows, "key", leak, run_id=run_id, store=kept, cluster=cluster)
    finally:
        dask_client.run(set_password, None)
    run = raised.value.run
    everything = written(run) | told_to_prefect(run_id)
    everything["terminal"] = "".join(capfd.readouterr()).encode()
    everything["raised"] = str(raised.value).encode()

    assert len(everything) > 10
    assert [place for place, content in everything.items() if CANARY.encode() in content] == []
    # What is told is whole but for the secrets.
    messages = [row["error_message"] or row["reason"] for row in run.ledger.to_pylist()]
    assert len([message for message in messages if "***" in message]) == len(SENTENCES)


@pytest.mark.slow
def test_no_canary_of_a_database_is_told(prefect_server, cluster, tmp_path, capfd) -> None:
    url = f"postgresql://app:{CANARY}@127.0.0.1:9/shop"
    run_id = "canaries-database"
    with pytest.raises(PartwiseError) as raised:
        map_partitions(
            Query("SELECT 1 AS key", url), "key", leak,
            run_id=run_id, store=str(tmp_path / "store"), cluster=cluster,
        )  # fmt: skip
    everything = told_to_prefect(run_id)
    everything["terminal"] = "".join(capfd.readouterr()).encode()
    everything["raised"] = "".join(traceback.format_exception(raised.value)).encode()
    assert [place for place, content in everything.items() if CANARY.encode() in content] == []
