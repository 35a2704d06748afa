"""`partwise scale`: another number of workers for a cluster that runs already."""

from partwise.errors import InputError
from partwise.flows.cli import output
from partwise.flows.cli.exit_codes import SUCCESS
from partwise.flows.cli.options import ClusterOptions
from partwise.formatting import counted

_CLUSTER = ClusterOptions()


def scale(
    n: int, /, *, timeout_s: float = 600.0, command: str = "", cluster: ClusterOptions = _CLUSTER
) -> int:
    """Bring a Dask cluster that runs already to a number of workers, and wait for them.

    Where they do not come in time, the cluster is brought back to what it was.

    Args:
        n: How many workers.
        timeout_s: How many seconds to wait for them.
        command: Brings the cluster to {n} workers, such as
            "kubectl scale --replicas={n} deployment/dask-worker". Not needed where the
            scheduler runs on this machine.
        cluster: The cluster: its --address.
    """
    if cluster.address is None:
        raise InputError("Which cluster? Give the scheduler's --address.")
    from partwise.blocks import RemoteCluster
    from partwise.flows.running.cluster_size import set_cluster_size
    from partwise.flows.scale_cluster import check_command

    if command:
        check_command(command)
    block = cluster.build()
    assert isinstance(block, RemoteCluster)  # noqa: S101 (what an address makes)
    scaled = set_cluster_size(block, n, timeout_s=timeout_s, command=command)
    output.print_line(
        f"{cluster.address} has {counted(scaled.after, 'worker')}; it had {scaled.before}"
    )
    return SUCCESS
