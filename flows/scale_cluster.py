"""The flow that brings a cluster which runs already to another number of workers."""

import shlex
import sys
from typing import Annotated, Any

from pydantic import Field, PlainValidator
from pydantic.json_schema import SkipJsonSchema

from partwise.blocks import RemoteCluster
from partwise.errors import InputError
from partwise.flows.orchestration.block_parameters import ClusterParameter
from partwise.flows.orchestration.plain_flow import plain_flow
from partwise.flows.running.connections import open_cluster
from partwise.formatting import counted
from partwise.tasks.steps import run_logger


def check_command(command: str) -> None:
    """Refuse a command that does not say how many workers, or that no shell would take."""
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise InputError(f"The command {command!r} cannot be read: {error}.") from error
    if not any("{n}" in word for word in words):
        raise InputError(
            f"The command {command!r} does not say how many workers: write {{n}} in the place of "
            "the number."
        )


def _is_of_dask(cluster: Any) -> bool:
    # Who has made one has imported this, which takes half a second.
    found = sys.modules.get("distributed.deploy.cluster")
    return found is not None and isinstance(cluster, found.Cluster)


def _of_dask(cluster: Any) -> Any:
    if not _is_of_dask(cluster):
        raise ValueError("Input should be a cluster object of Dask's")
    return cluster


@plain_flow("scale-cluster")
def scale_cluster(
    n: Annotated[int, Field(ge=0)],
    *,
    cluster: ClusterParameter | SkipJsonSchema[Annotated[Any, PlainValidator(_of_dask)]],
    timeout_s: Annotated[float, Field(gt=0)] = 600.0,
    command: str = "",
) -> int:
    """Bring a cluster that runs already to a number of workers, and wait for them.

    Where they do not come in time, or this is cancelled, the cluster is brought back to what it
    was. Workers that go are idle ones where Dask may choose; what a busy one had begun is done
    again by another, and no partition twice.

    Example:
        >>> scale_cluster(8, cluster="tcp://127.0.0.1:8786")  # doctest: +SKIP
        8

    Args:
        n: How many workers the cluster is to have.
        cluster: A RemoteCluster block, the name of one that is saved, such as remote-cluster/big,
            or a scheduler's address. From Python also a cluster object of Dask's, such as
            KubeCluster.from_name("big").
        timeout_s: How many seconds to wait for the workers.
        command: A command that brings the cluster to {n} workers, run here, without a shell, such
            as "kubectl scale --replicas={n} deployment/dask-worker". Empty: the scheduler has
            to run on this machine, where `dask worker` processes of one thread each are started.

    Returns:
        How many workers the cluster has.

    Raises:
        InputError: The cluster cannot be scaled from here.
        ClusterError: It did not come to so many workers in time; says to how many it was brought
            back.
    """
    # Here: all else imports Dask, and asks a cluster.
    if command:
        check_command(command)
    opened: Any = cluster if _is_of_dask(cluster) else open_cluster(cluster)
    if not (isinstance(opened, RemoteCluster) or _is_of_dask(opened)):
        raise InputError(
            f"A {type(opened).__name__} is started for each run, with as many workers as its "
            "settings say: name a cluster that runs already."
        )
    from partwise.flows.running.cluster_size import set_cluster_size

    scaled = set_cluster_size(opened, n, timeout_s=timeout_s, command=command)
    workers = counted(scaled.after, "worker")
    run_logger().info("The cluster has %s; it had %d.", workers, scaled.before)
    return scaled.after
