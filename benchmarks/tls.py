"""What TLS costs within a cluster that we start: one start and run beside one in plaintext.

    python benchmarks/tls.py [--partitions 20000] [--turns 5]

Both are by turns, with the same workers and settings; a no-op function over small partitions, so
that nearly all that is measured is our own work and the messages between processes. Then the bytes
that TLS is slow for: an array that one worker sends to another. Prints medians.
"""

import argparse
import logging
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import distributed
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from partwise.blocks import RemoteCluster
from partwise.blocks.cluster_start import started
from partwise.flows import map_partitions

WORKERS = 2
SENT_BYTES = 256 << 20


def do_nothing(data: Any, context: Any) -> None:
    """Stand for a function that costs nothing."""


@contextmanager
def cluster(tls: bool) -> Iterator[distributed.Client]:
    """Start a cluster with our settings, and with TLS or without."""

    def start(options: dict[str, Any]) -> distributed.LocalCluster:
        if not tls:
            options |= {"protocol": "tcp://", "security": None}
        return distributed.LocalCluster(n_workers=WORKERS, memory_limit=0, **options)

    with started(start, "") as client:
        yield client


@contextmanager
def connected(client: distributed.Client, folder: Path) -> Iterator[RemoteCluster]:
    """Give the cluster as flows take it; its certificate leaves memory for a folder of ours."""
    settings = client.security.get_connection_args("client").get("ssl_context")
    assert settings is not None or client.scheduler.address.startswith("tcp")
    files = {}
    if settings is not None:
        texts = {"ca": "tls_ca_file", "cert": "tls_client_cert", "key": "tls_client_key"}
        for name, attribute in texts.items():
            path = folder / f"{name}.pem"
            path.write_text(getattr(client.security, attribute))
            path.chmod(0o600)
            files[f"tls_{name}_file"] = str(path)
    yield RemoteCluster(address=client.scheduler.address, **files)


def send(client: distributed.Client) -> float:
    """Return how long it takes to send an array from one worker to the other, in seconds."""
    first, second = client.scheduler_info()["workers"]
    array = client.submit(np.ones, SENT_BYTES, np.uint8, workers=[first], pure=False)
    distributed.wait(array)
    began = time.perf_counter()
    client.submit(len, array, workers=[second], pure=False).result()
    return time.perf_counter() - began


def timed(function: Callable[[], Any]) -> float:
    """Return the seconds that a call took."""
    began = time.perf_counter()
    function()
    return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--partitions", type=int, default=20_000)
    parser.add_argument("--turns", type=int, default=5)
    arguments = parser.parse_args()
    logging.disable(logging.INFO)
    spent: dict[tuple[str, str], list[float]] = {}
    with tempfile.TemporaryDirectory() as directory:
        folder = Path(directory)
        keys = np.random.default_rng(0).permutation(np.repeat(np.arange(arguments.partitions), 20))
        pq.write_table(pa.table({"key": keys, "x": keys.astype(float)}), folder / "rows.parquet")
        # The first turn is not counted: imports, and perhaps a Prefect server, come with it.
        for turn in range(arguments.turns + 1):
            for name in ("tls", "plaintext"):
                began = time.perf_counter()
                with cluster(name == "tls") as client:
                    times = {"start of the cluster": time.perf_counter() - began}
                    with connected(client, folder) as remote:
                        times["a run"] = timed(
                            lambda remote=remote, name=name, turn=turn: map_partitions(
                                str(folder / "rows.parquet"),
                                "key",
                                do_nothing,
                                run_id=f"{name}-{turn}",
                                store=folder / "store",
                                cluster=remote,
                            )
                        )
                    times[f"{SENT_BYTES >> 20} MiB from worker to worker"] = send(client)
                for what, seconds in times.items() if turn else ():
                    spent.setdefault((what, name), []).append(seconds)
    for what in dict.fromkeys(what for what, _ in spent):
        tls, plain = (statistics.median(spent[what, name]) for name in ("tls", "plaintext"))
        print(f"{what:<32} TLS {tls:6.2f} s, plaintext {plain:6.2f} s: {tls - plain:+.2f} s")


if __name__ == "__main__":
    main()
