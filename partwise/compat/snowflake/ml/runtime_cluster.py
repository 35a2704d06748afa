"""What stands at `snowflake.ml.runtime_cluster`.

The classes here start the cores of this machine for each call, so that there is no cluster to
scale unless one is named.
"""

import socket
import warnings
from collections.abc import Mapping
from typing import Any

from partwise.engine.scaling import cluster_workers, cores_and_gpus
from partwise.errors import InputError

TIMEOUT_S = 720.0


def scale_cluster(
    expected_cluster_size: int,
    *,
    notebook_name: str | None = None,  # noqa: ARG001 (theirs, of which nothing follows here)
    is_async: bool = False,
    options: Mapping[str, Any] | None = None,
    cluster: Any = "",
) -> bool:
    """Bring a cluster to a number of workers; without one, warn that nothing is done.

    Args:
        expected_cluster_size: How many workers.
        notebook_name: Is not looked at.
        is_async: Has to be False.
        options: "rollback_after_seconds" of them is for how long to wait.
        cluster: Ours alone: a block, the name of one, or a scheduler's address.

    Raises:
        InputError: The cluster cannot be scaled, or is not to be waited for.
        ClusterError: The workers did not come in time.
    """
    if not cluster:
        warnings.warn(
            "scale_cluster did nothing: each call has the cores of this machine. To scale a "
            "cluster that runs, name it: scale_cluster(4, cluster=ADDRESS).",
            stacklevel=2,
        )
        return True
    if is_async:
        raise InputError("is_async is not taken: leave it out, the workers are waited for.")
    from partwise.flows import scale_cluster as own_scale_cluster

    timeout_s = (options or {}).get("rollback_after_seconds", TIMEOUT_S)
    own_scale_cluster(expected_cluster_size, cluster=cluster, timeout_s=timeout_s)
    return True


def get_nodes(cluster: Any = "") -> list[dict[str, Any]]:
    """Return name, CPUs and GPUs of each machine of a cluster; without one, of this machine."""
    if not cluster:
        cpus, gpus = cores_and_gpus()
        return [{"name": socket.gethostname(), "cpus": cpus, "gpus": len(gpus)}]
    from partwise.flows.running.connections import connect, open_cluster

    with connect(open_cluster(cluster)) as client:
        workers = cluster_workers(client)
    return [
        {
            "name": host,
            "cpus": sum(each.threads for each in workers if each.host == host),
            "gpus": sum(len(each.gpus) for each in workers if each.host == host),
        }
        for host in sorted({each.host for each in workers})
    ]


def get_cluster_size(cluster: Any = "") -> int:
    """Return how many machines `get_nodes` has."""
    return len(get_nodes(cluster))
