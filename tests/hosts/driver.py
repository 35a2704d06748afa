"""A script of a user's that does all there is, on one host or several, and prints digests."""

import hashlib
import json
import os
import sys
import time
from typing import Any

import numpy as np
import pyarrow as pa


def fit(data: Any, context: Any) -> Any:
    """Train a small model; it takes a moment."""
    import lightgbm

    time.sleep(float(os.environ.get("HOSTS_NAP_S", "0")))
    rows = lightgbm.Dataset(np.column_stack([data.to_numpy("x")]), data.to_numpy("y"))
    settings = {"objective": "regression", "verbose": -1, "num_threads": 1, "min_data_in_leaf": 2}
    return lightgbm.train(settings | {"seed": context.seed % 2**31}, rows, num_boost_round=3)


def predict(data: Any, model: Any, context: Any) -> dict[str, Any]:
    """Predict with a model of `fit`."""
    return {"guess": model.predict(np.column_stack([data.to_numpy("x")]))}


def count(data: Any, context: Any) -> dict[str, Any]:
    """Count a partition's rows."""
    return {"rows": [len(data)]}


def table_of(partitions: int) -> pa.Table:
    """The rows."""
    keys = np.repeat(np.arange(partitions), 12)
    x = np.random.default_rng(0).normal(size=len(keys))
    return pa.table({"key": keys, "x": x, "y": x * keys})


def sha256(text: str) -> str:
    """Hash a model's text."""
    return hashlib.sha256(text.encode()).hexdigest()


def main(store: str, address: str) -> None:
    """Train, resume, infer, map, and train one model on all rows."""
    import boto3
    from botocore.config import Config

    from partwise import (
        DistributedLightGBM,
        DistributedXGBoost,
        LocalCluster,
        RemoteCluster,
        ScalingConfig,
        map_partitions,
        run_inference,
        train_distributed,
        train_models,
    )

    cluster: Any = LocalCluster(workers=2)
    if address:
        # The server may still be starting.
        patient = Config(retries={"max_attempts": 30}, connect_timeout=5)
        boto3.client("s3", config=patient).create_bucket(Bucket=store.split("/")[2])
        cluster = RemoteCluster(address=address, allow_plaintext=True)
    given: dict[str, Any] = {"store": store, "cluster": cluster}
    rows, said = table_of(4), {}
    for _ in range(2):
        run = train_models(
            rows, "key", fit, run_id="trained", on_existing_artifacts="resume", **given
        )
        models = [run.model(key).model_to_string() for key in range(4)]
        said[f"train {len(said)}"] = sha256("".join(models))
    inferred = run_inference(rows, "key", predict, models="trained", run_id="inferred", **given)
    said["infer"] = str(inferred.counts)
    said["map"] = str(map_partitions(rows, "key", count, run_id="mapped", **given).counts)
    two = ScalingConfig(ranks=2)
    for trainer in (
        DistributedXGBoost(label="y", rounds=2),
        DistributedLightGBM(label="y", rounds=2),
    ):
        name = type(trainer).__name__
        gang = train_distributed(rows, trainer, run_id=name, scaling=two, **given)
        said[name] = gang.partitions["artifacts"].to_pylist()[0][0]["sha256"]
    print("SAID " + json.dumps(said))


if __name__ == "__main__":
    main(*sys.argv[1:])
