"""A script of a user's that trains a model for each key; experiments kill what it starts."""

import os
import sys
import time

import numpy as np


def model_of(x, y, seed):
    """Train LightGBM."""
    import lightgbm

    rows = lightgbm.Dataset(np.column_stack([x]), y)
    settings = {"objective": "regression", "verbose": -1, "num_threads": 1, "min_data_in_leaf": 2}
    return lightgbm.train(settings | {"seed": seed % 2**31}, rows, num_boost_round=3)


def fit(data, context):
    """Train a model, slowly, and write down that it was called."""
    with open(os.environ["CHAOS_CALLS"], "a") as file:
        file.write(f"{context.key}\n")
    time.sleep(float(os.environ["CHAOS_NAP_S"]))
    return model_of(data.to_numpy("x"), data.to_numpy("y"), context.seed)


if __name__ == "__main__":
    # Not above: each worker that is started runs this file again.
    from partwise import ExecutionOptions, LocalCluster, RemoteCluster, train_models

    rows, store, run_id, address = sys.argv[1:]
    cluster = (
        RemoteCluster(address=address, shares_filesystem=True)
        if address
        else LocalCluster(workers=2)
    )
    run = train_models(
        rows,
        "key",
        fit,
        run_id=run_id,
        store=store,
        on_existing_artifacts="resume",
        execution=ExecutionOptions(
            n_shards=8,
            first_segment_s=0.2,
            silence_s=float(os.environ.get("CHAOS_SILENCE_S", "60")),
            max_retries=int(os.environ.get("CHAOS_RETRIES", "1")),
            max_shard_starts=3 + int(os.environ.get("CHAOS_RETRIES", "0")),
        ),
        cluster=cluster,
    )
    sys.exit(0 if run.status.value == "SUCCESS" else 1)
