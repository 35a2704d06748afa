"""A script of a user's that begins runs of any kind, or resumes them, and prints a digest of each.

    python -m tests.chaos.kinds STORE KIND RUN [KIND RUN ...]

Kinds that use models take those of the run "trained" of the store. CHAOS_ADDRESS names the
scheduler of a cluster that stays; without it the script has a cluster of its own.
"""

import hashlib
import os
import sys
import time
from typing import Any

import numpy as np
import pyarrow as pa

PARTITIONS = 40
ADDRESS = os.environ.get("CHAOS_ADDRESS", "")
GANG_RETRIES = 10
"""Of a gang on a cluster that stays, of which connections are closed again and again."""


def nap() -> None:
    """Take the time that a partition takes."""
    time.sleep(float(os.environ.get("CHAOS_NAP_S", "0")))


def fit(data: Any, context: Any) -> Any:
    """Train a small model."""
    import lightgbm

    nap()
    x = np.column_stack([data.to_numpy("x")])
    rows = lightgbm.Dataset(x, data.to_numpy("y"), feature_name=["x"])
    settings = {"objective": "regression", "verbose": -1, "num_threads": 1, "min_data_in_leaf": 2}
    return lightgbm.train(settings | {"seed": context.seed % 2**31}, rows, num_boost_round=3)


def predict(data: Any, model: Any, context: Any) -> dict[str, Any]:
    """Predict with a model of `fit`."""
    nap()
    return {"guess": model.predict(np.column_stack([data.to_numpy("x")]))}


def double(data: Any, context: Any) -> dict[str, Any]:
    """Return rows of a partition."""
    nap()
    return {"doubled": 2 * data.to_numpy("x")}


def score(data: Any, context: Any) -> Any:
    """Judge the settings of a trial."""
    from partwise import Result

    nap()
    weight = context.params["weight"]
    return Result({"weight": weight}, metrics={"score": float(data.to_numpy("x").sum() * weight)})


def rows_of_all() -> pa.Table:
    """The rows."""
    keys = np.repeat(np.arange(PARTITIONS), 12)
    x = np.random.default_rng(0).normal(size=len(keys))
    return pa.table({"key": keys, "x": x, "y": x * (keys + 1)})


def begin(kind: str, **given: Any) -> Any:
    """Begin a run of a kind, or resume it."""
    import partwise as pw

    rows = rows_of_all()
    shards = pw.ExecutionOptions(n_shards=4, first_segment_s=0.2)
    match kind:
        case "train":
            return pw.train_models(rows, "key", fit, execution=shards, **given)
        case "infer":
            return pw.run_inference(rows, "key", "trained", predict, execution=shards, **given)
        case "map":
            return pw.map_partitions(rows, "key", double, execution=shards, **given)
        case "export":
            return pw.export_models("trained", "onnx", data=rows, execution=shards, **given)
        case "compare":
            models = ["trained", "trained-too"]
            return pw.compare_models(rows, "key", models, "y", execution=shards, **given)
        case "tune":
            weights = {"weight": {"kind": "uniform", "low": 0.0, "high": 1.0}}
            return pw.tune_model(
                rows, score, weights, trials=12, metric="score", serde="pickle", **given
            )
        case "gang":
            trainer = pw.DistributedLightGBM(label="y", rounds=400)
            gang = pw.GangOptions(max_retries=GANG_RETRIES if ADDRESS else 0, join_timeout_s=60)
            ranks = pw.ScalingConfig(ranks=2)
            return pw.train_distributed(rows, trainer, scaling=ranks, gang=gang, **given)
    raise ValueError(kind)


def digest(run: Any) -> str:
    """Hash what a run has made, without times and places."""
    found = hashlib.sha256()
    match run.kind:
        case "train":
            for key in range(PARTITIONS):
                found.update(run.model(key).model_to_string().encode())
        case "infer" | "map":
            found.update(str(run.predictions().sort_by("key").to_pydict()).encode())
        case "export":
            for key in range(PARTITIONS):
                found.update(run.artifact(key, "model.onnx"))
        case "train-distributed":
            found.update(run.model().model_to_string().encode())
        case "tune":
            # Which settings come next depends on which trial ends first.
            found.update(str(run.counts).encode())
        case "compare":
            errors = ["rmse/trained", "rmse/trained-too"]
            found.update(str(run.partitions.select(errors).to_pydict()).encode())
    return found.hexdigest()


if __name__ == "__main__":
    # Not above: each worker that is started runs this file again.
    from partwise import LocalCluster, PartwiseError, RemoteCluster

    store, *words = sys.argv[1:]
    stays = RemoteCluster(address=ADDRESS, shares_filesystem=True) if ADDRESS else None
    for kind, run_id in zip(words[::2], words[1::2], strict=True):
        try:
            done = begin(
                kind,
                run_id=run_id,
                store=store,
                on_existing_artifacts="resume",
                cluster=stays or LocalCluster(workers=2),
            )
        except PartwiseError as error:
            print("ENDED", error)
            sys.exit(3)
        if done.status.value != "SUCCESS":
            print("ENDED", done)
            sys.exit(3)
        print("DIGEST", digest(done))
