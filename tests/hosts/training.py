"""A script of a user's that trains a model for each key, notes each call on the host it is made on,
and prints how it ended.
"""

import hashlib
import io
import json
import os
import sys
import time
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

PARTITIONS = 48
NAP_S = 0.25
CALLS = "/tmp/calls"
"""A line for each call of the function: when, of which run, for which key."""
OUTPUT = "/tmp/output-{}"


def rows_of_all() -> pa.Table:
    """The rows."""
    keys = np.repeat(np.arange(PARTITIONS), 12)
    return pa.table({"key": keys, "x": np.random.default_rng(0).normal(size=len(keys))})


def model_of(x: np.ndarray) -> dict[str, float]:
    """What a model is."""
    return {"mean": float(x.mean()), "spread": float(x.std())}


def digest_of(models: list[dict[str, float]]) -> str:
    """Hash models, in the order of their keys."""
    return hashlib.sha256(repr(models).encode()).hexdigest()


def fit(data: Any, context: Any) -> Any:
    """Train a model; it takes a moment."""
    with open(CALLS, "a") as file:
        file.write(f"{time.time()} {context.run_id} {context.key}\n")
    time.sleep(NAP_S)
    return model_of(data.to_numpy("x"))


def commits_of(store: str, run_id: str) -> list[tuple[float, int, float]]:
    """List what was committed: when, for which key, and when its function had returned."""
    import boto3

    bucket = boto3.resource("s3").Bucket(store.split("/")[2])
    found = []
    for each in bucket.objects.filter(Prefix=f"runs/runs/{run_id}/ledger/"):
        rows = pq.read_table(io.BytesIO(each.get()["Body"].read()))
        found += [
            (each.last_modified.timestamp(), row["key.key"], row["finished_at"].timestamp())
            for row in rows.to_pylist()
            if row["status"] == "DONE"
        ]
    return found


def report(store: str, address: str, run_id: str) -> None:
    """Begin a run or resume it, when two workers are there, and print what came of it."""
    from distributed import Client

    from partwise.errors import PartwiseError

    with Client(address, timeout=60) as client:
        client.wait_for_workers(2)
    try:
        run = train(store, address, run_id)
        if run.status.value != "SUCCESS":
            print(f"ENDED {run.status.value}: {run}")
            return
        keys = run.partitions["key"].to_pylist()
        digest = digest_of([run.model(key, "pickle") for key in keys])
    except PartwiseError as error:
        print(f"ENDED {type(error).__name__}: {error}")
        return
    said = {"keys": keys, "digest": digest, "commits": commits_of(store, run_id)}
    print("WHOLE " + json.dumps(said))


def train(store: str, address: str, run_id: str) -> Any:
    """Begin a run or resume it."""
    from partwise import ExecutionOptions, PickleSerde, RemoteCluster, train_models

    return train_models(
        rows_of_all(),
        "key",
        fit,
        run_id=run_id,
        store=store,
        serde=PickleSerde(),
        on_existing_artifacts="resume",
        execution=ExecutionOptions(n_shards=6, first_segment_s=0.5),
        cluster=RemoteCluster(address=address, allow_plaintext=True),
    )


def main() -> None:
    """Run what each line of stdin asks for, in a process of its own that has imported all of it.

    A line is a store, an address, a run's ID and a name; OUTPUT of that name gets what is printed,
    and in the end a line with the exit status.
    """
    import boto3  # noqa: F401
    import distributed  # noqa: F401
    import s3fs  # noqa: F401

    from partwise import RemoteCluster, train_models  # noqa: F401

    for line in sys.stdin:
        store, address, run_id, name = line.split()
        if os.fork() == 0:
            os.setsid()
            with open(OUTPUT.format(name), "w", buffering=1) as file:
                os.dup2(file.fileno(), 1)
                os.dup2(file.fileno(), 2)
                report(store, address, run_id)
                sys.exit()
        _, status = os.wait()
        with open(OUTPUT.format(name), "a") as file:
            file.write(f"\nEXIT {status}\n")


if __name__ == "__main__":
    main()
