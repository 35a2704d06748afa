"""A script of a user's that does all there is, on one host or several, and prints digests."""

import hashlib
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

SCRIPT = """
import json, torch
torch.distributed.init_process_group("gloo")
total = torch.tensor([torch.distributed.get_rank() + 1])
torch.distributed.all_reduce(total)
print(json.dumps({"metrics": {"sum": int(total)}}))
torch.distributed.destroy_process_group()
"""
"""Its processes meet on two hosts."""


def fit(data: Any, context: Any) -> Any:
    """Train a small model; it takes a moment."""
    import lightgbm

    time.sleep(float(os.environ.get("HOSTS_NAP_S", "0")))
    x = np.column_stack([data.to_numpy("x")])
    rows = lightgbm.Dataset(x, data.to_numpy("y"), feature_name=["x"])
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
        LightGBMTrainer,
        LocalCluster,
        RemoteCluster,
        ScalingConfig,
        export_models,
        map_partitions,
        run_inference,
        run_script,
        train_distributed,
        train_models,
        tune_model,
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
    inferred = run_inference(rows, "key", "trained", predict, run_id="inferred", **given)
    said["infer"] = str(inferred.counts)
    said["map"] = str(map_partitions(rows, "key", count, run_id="mapped", **given).counts)
    two = ScalingConfig(ranks=2)
    for trainer in (
        DistributedXGBoost(label="y", rounds=2),
        DistributedLightGBM(label="y", rounds=2),
    ):
        name = type(trainer).__name__
        gang = train_distributed(rows, trainer, run_id=name, scaling=two, **given)
        model = gang.model()
        is_xgboost = hasattr(model, "save_raw")
        said[name] = sha256(str(bytes(model.save_raw()) if is_xgboost else model.model_to_string()))
    exported = export_models("trained", "onnx", data=rows, run_id="exported", **given)
    said["export"] = str(exported.counts)
    leaves = {"num_leaves": {"kind": "randint", "low": 2, "high": 5}}
    trainer = LightGBMTrainer(label="y")
    tuned = tune_model(rows, trainer, leaves, trials=2, run_id="tuned", **given)
    said["tune"] = sha256(tuned.model().model_to_string())
    Path("script").mkdir()
    Path("script", "main.py").write_text(SCRIPT)
    script = run_script(
        "main.py", source_directory="script", nodes=2, backend="gloo", run_id="script", **given
    )
    said["script"] = str(script.partitions["sum"].to_pylist())
    print("SAID " + json.dumps(said))


if __name__ == "__main__":
    main(*sys.argv[1:])
