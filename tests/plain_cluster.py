"""A Dask cluster that others connect to by its address, in plaintext: what RemoteCluster is for."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import distributed

from partwise.blocks.cluster_start import started


@contextmanager
def plain_cluster(
    workers: int, first: str = "", host: str = "127.0.0.1"
) -> Iterator[distributed.Client]:
    """Give a client of a cluster with our settings, but without TLS.

    `first` is code that each worker begins with.
    """

    def start(options: dict[str, Any]) -> distributed.LocalCluster:
        options |= {"protocol": "tcp://", "security": None, "host": host}
        options["preload"] = [*options["preload"], *([first] if first else [])]
        return distributed.LocalCluster(n_workers=workers, memory_limit=0, **options)

    with started(start, "") as client:
        yield client
