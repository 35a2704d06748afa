"""A script of a user's that does all there is, on one host or several, and prints digests."""

import hashlib
import json
import os
import shutil
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from tests.hosts.network import TLS_FILES

SCRIPT = """
import json, sys, torch
import pyarrow.parquet as pq
torch.distributed.init_process_group("gloo")
total = torch.tensor([torch.distributed.get_rank() + 1])
torch.distributed.all_reduce(total)
read = {"read": pq.read_table(sys.argv[1]).num_rows, "hello": len(open(sys.argv[2]).read())}
print(json.dumps({"metrics": {"sum": int(total)} | read}))
torch.distributed.destroy_process_group()
"""
"""Its processes meet on two hosts, and have read what the call gives them."""
MPI_SCRIPT = """
import json
from mpi4py import MPI
print(json.dumps({"metrics": {"sum": MPI.COMM_WORLD.allreduce(MPI.COMM_WORLD.rank + 1)}}))
"""


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


def packaged(data: Any, context: Any) -> dict[str, Any]:
    """Use a package that stands on no host."""
    import greeting  # type: ignore[import-not-found]

    return {"version": [greeting.__version__]}


def published(uri: str) -> str:
    """Hash the rows of a database table."""
    from contextlib import closing

    from partwise.sources.sql.databases import Database

    with Database(uri=uri).connect() as connection, closing(connection.cursor()) as cursor:
        cursor.execute("SELECT key, guess FROM guesses ORDER BY key, guess")
        return sha256(repr([(int(key), float(guess)) for key, guess in cursor.fetchall()]))


def table_of(partitions: int) -> pa.Table:
    """The rows."""
    keys = np.repeat(np.arange(partitions), 12)
    x = np.random.default_rng(0).normal(size=len(keys))
    return pa.table({"key": keys, "x": x, "y": x * keys})


def sha256(text: str) -> str:
    """Hash a model's text."""
    return hashlib.sha256(text.encode()).hexdigest()


def learned(rows: pa.Table, database: str, **given: Any) -> dict[str, str]:
    """Train and predict, and return digests of all that depends on numbers.

    Args:
        rows: To train on.
        database: The URI of one that predictions are published to.
        given: To each call.
    """
    from partwise import (
        DistributedLightGBM,
        DistributedXGBoost,
        LightGBMTrainer,
        ScalingConfig,
        Table,
        run_inference,
        train_distributed,
        train_models,
        tune_model,
    )

    run = train_models(rows, "key", fit, run_id="trained", **given)
    said = {"train": digest_of_models(run)}
    table = Table("guesses", database)
    run_inference(rows, "key", "trained", predict, run_id="told", output=table, **given)
    said["database"] = published(database)
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
    leaves = {"num_leaves": {"kind": "randint", "low": 2, "high": 5}}
    trainer = LightGBMTrainer(label="y")
    tuned = tune_model(rows, trainer, leaves, trials=2, run_id="tuned", **given)
    said["tune"] = sha256(tuned.model().model_to_string())
    return said


def digest_of_models(run: Any) -> str:
    """Hash the models of a run of `fit`."""
    return sha256("".join(run.model(key).model_to_string() for key in range(4)))


def counted(rows: pa.Table, wheels: str, **given: Any) -> dict[str, Any]:
    """Do all else there is, after `learned`, and return what it has to come to.

    Args:
        rows: Those of `learned`.
        wheels: Where the wheels of `packaged` are.
        given: To each call.
    """
    from partwise import (
        Environment,
        export_models,
        map_partitions,
        run_inference,
        run_script,
        train_models,
    )

    again = train_models(
        rows, "key", fit, run_id="trained", on_existing_artifacts="resume", **given
    )
    said: dict[str, Any] = {"kept": again.kept, "models": digest_of_models(again)}
    forecasts = "dataset://forecasts"
    kept = run_inference(rows, "key", "trained", predict, run_id="kept", output=forecasts, **given)
    said["infer"] = kept.counts
    read = map_partitions(f"{forecasts}@1", "key", count, run_id="read", **given)
    said["map"] = read.counts
    said["dataset"] = read.predictions().sort_by("key").to_pydict()
    package = Environment(packages=["greeting"], find_links=[wheels], no_index=True)
    own = map_partitions(rows, "key", packaged, run_id="own", environment=package, **given)
    said["environment"] = own.predictions().sort_by("key").to_pydict()
    exported = export_models("trained", "onnx", data=rows, run_id="exported", **given)
    said["export"] = exported.counts
    Path("script").mkdir()
    Path("script", "main.py").write_text(SCRIPT)
    Path("script", "mpi.py").write_text(MPI_SCRIPT)
    Path("hello.txt").write_text("hello")
    given |= {"source_directory": "script", "nodes": 2}
    inputs = {"rows": rows, "hello": "hello.txt"}
    words = ["{inputs.rows}", "{inputs.hello}"]
    script = run_script(
        "main.py", backend="gloo", inputs=inputs, arguments=words, run_id="script", **given
    )
    said["script"] = script.partitions.select(["sum", "read", "hello"]).to_pydict()
    if shutil.which("mpirun"):
        job = run_script("mpi.py", backend="mpi", run_id="mpi", **given)
        said["mpi"] = job.partitions["sum"].to_pylist()
    return said


def main(store: str, address: str, database: str, wheels: str) -> None:
    """Train, resume, infer, map, and train one model on all rows.

    Args:
        store: The artifact store.
        address: Of the scheduler; empty: a cluster of this host, and only what `learned` does.
        database: The URI of one that predictions are published to.
        wheels: Where the wheels of `packaged` are.
    """
    import boto3
    from botocore.config import Config

    from partwise import LocalCluster, RemoteCluster

    cluster: Any = LocalCluster(workers=2)
    if address:
        # The server may still be starting.
        patient = Config(retries={"max_attempts": 30}, connect_timeout=5)
        boto3.client("s3", config=patient).create_bucket(Bucket=store.split("/")[2])
        files = dict(zip(("tls_ca_file", "tls_cert_file", "tls_key_file"), TLS_FILES, strict=True))
        cluster = RemoteCluster(address=address, **files)
    given: dict[str, Any] = {"store": store, "cluster": cluster}
    rows = table_of(4)
    said: dict[str, Any] = {"learned": learned(rows, database, **given)}
    if address:
        said["counted"] = counted(rows, wheels, **given)
    print("SAID " + json.dumps(said))


if __name__ == "__main__":
    main(*sys.argv[1:])
