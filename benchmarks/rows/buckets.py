"""Models in a bucket: how many requests and how long, beside one object for each model.

The bucket is moto's on this machine. A proxy before it counts requests, and answers each of them
30 ms late, as a bucket within the same region does.
"""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.frame.contest import take_part
from benchmarks.frame.row import OUT, Contestant, Goal, Place, Row, ratio

LATE_S = 0.03
WORKERS = 2
BUCKET = "models"
US, NAIVE = "partwise", "an object for each model"


def row(place: Place) -> Row:
    """Write models to a bucket, and read them all."""
    models = place.size(10_000, 200)

    def prepare() -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        pq.write_table(pa.table({"key": range(models)}), place.folder / "rows.parquet")

    return Row(
        title="Buckets",
        work=f"{models:,} models of a few bytes to a bucket, and from it to predict a row each; "
        f"each answer is {LATE_S * 1e3:.0f} ms late. Beside it {WORKERS} workers with boto3, a "
        "request after the other.",
        contestants=[
            Contestant(US, place.ours(__name__, "partwise", place.folder, OUT), "two runs"),
            Contestant(NAIVE, place.ours(__name__, "naive", place.folder, OUT), "objects", turns=1),
        ],
        goals=[
            Goal(f"{figure}, {US} / {NAIVE}", 1 / 20, ratio(US, NAIVE, figure))
            for figure in ("requests", "calls s")
        ],
        shown="requests",
        turns=place.size(3, 1),
        limit_s=place.size(1800, 60),
        prepare=prepare,
    )


@contextmanager
def late_bucket(late_s: float = LATE_S) -> Iterator[Any]:
    """Give a proxy before a bucket of this machine, which the environment names from here on."""
    import boto3

    from tests.fault_proxy import fault_proxy

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        _await_port(port)
        os.environ |= {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x"}
        os.environ["AWS_DEFAULT_REGION"] = "us-east-1"
        with fault_proxy(f"http://127.0.0.1:{port}", late_s=late_s) as proxy:
            os.environ["AWS_ENDPOINT_URL_S3"] = proxy.url
            boto3.client("s3").create_bucket(Bucket=BUCKET)
            proxy.seen.clear()
            yield proxy
    finally:
        server.kill()
        server.wait()


def _await_port(port: int) -> None:
    for _ in range(600):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise TimeoutError("the S3 server does not answer")


def by_partwise(folder: Path, _: Path) -> Mapping[str, float]:
    """Train models of no work, and use them."""
    from partwise import LocalCluster, PickleSerde, run_inference, train_models

    rows = str(folder / "rows.parquet")
    common: Any = {"store": f"s3://{BUCKET}", "serde": PickleSerde()}
    with late_bucket() as proxy:
        began = time.perf_counter()
        cluster = LocalCluster(workers=WORKERS)
        train_models(rows, "key", train, run_id="trained", cluster=cluster, **common)
        used = run_inference(rows, "key", "trained", predict, cluster=cluster, **common)
        seconds = time.perf_counter() - began
        return {"calls s": seconds, "requests": len(proxy.seen), "models": used.counts["DONE"]}


def train(data: Any, context: Any) -> Any:  # noqa: ARG001 (what every function takes)
    """Return a model of no work."""
    return {"key": int(data.to_numpy("key")[0])}


def predict(data: Any, model: Any, context: Any) -> Any:  # noqa: ARG001
    """Use it."""
    import numpy as np

    return np.full(data.num_rows, model["key"])


def by_objects(folder: Path, _: Path) -> Mapping[str, float]:
    """Write and read an object for each."""
    import pickle

    import boto3
    import pyarrow.parquet as pq

    keys = pq.read_table(folder / "rows.parquet")["key"].to_pylist()
    with late_bucket() as proxy:
        began = time.perf_counter()
        client = boto3.client("s3")

        def write(key: int) -> None:
            client.put_object(Bucket=BUCKET, Key=f"{key}.pkl", Body=pickle.dumps({"key": key}))

        def read(key: int) -> None:
            body = client.get_object(Bucket=BUCKET, Key=f"{key}.pkl")["Body"].read()
            assert pickle.loads(body) == {"key": key}

        with ThreadPoolExecutor(WORKERS) as pool:
            for work in (write, read):
                list(pool.map(work, keys))
        seconds = time.perf_counter() - began
        return {"calls s": seconds, "requests": len(proxy.seen), "models": len(keys)}


if __name__ == "__main__":
    take_part({"partwise": by_partwise, "naive": by_objects})
