"""The environment of a rank: torchrun's variables, Open MPI's, and those of AzureML's nodes.

torchrun's names and their meaning are those of https://pytorch.org/docs/stable/elastic/run.html.
AzureML's are those that scripts look at which were written for it: the address of the first node,
as jobs of its Batch service have it, and the number of the own one.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass

from partwise.engine.worker.machine_slots import thread_variables
from partwise.gangs.spec import GangSpec
from partwise.peers import interface_of

_GLOO_INTERFACE = "GLOO_SOCKET_IFNAME"

ROLE = "default"
"""torchrun's name for ranks that are all alike."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankPlace:
    """Where a rank stands in its gang."""

    rank: int
    local_rank: int
    local_world_size: int
    node_rank: int
    nodes: int
    gpus: tuple[str, ...] = ()
    """Those that it may use, as CUDA_VISIBLE_DEVICES names them."""
    hides_gpus: bool = False
    """Whether it is to see none."""


def gang_environment(spec: GangSpec) -> dict[str, str]:
    """Return the variables of all ranks of a gang, besides those that a worker has."""
    return {
        # What a program prints is to be seen at once, not when a buffer is full.
        "PYTHONUNBUFFERED": "1",
        # All ranks use as many, also where the worker's own variables say another number.
        **thread_variables(spec.threads, {}),
        **spec.environment,
    }


def rank_environment(
    spec: GangSpec, place: RankPlace, addresses: Sequence[tuple[str, int]], attempt: int
) -> dict[str, str]:
    """Return the variables of a rank alone, which come before those of its gang.

    `addresses` are host and port of each rank.
    """
    world_size, master = spec.world_size, addresses[0]
    variables = {
        "RANK": str(place.rank),
        "LOCAL_RANK": str(place.local_rank),
        "WORLD_SIZE": str(world_size),
        "LOCAL_WORLD_SIZE": str(place.local_world_size),
        "NODE_RANK": str(place.node_rank),
        "GROUP_RANK": str(place.node_rank),
        "GROUP_WORLD_SIZE": str(place.nodes),
        "ROLE_NAME": ROLE,
        "ROLE_RANK": str(place.rank),
        "ROLE_WORLD_SIZE": str(world_size),
        "MASTER_ADDR": master[0],
        "MASTER_PORT": str(master[1]),
        "TORCHELASTIC_RUN_ID": spec.token,
        "TORCHELASTIC_RESTART_COUNT": str(attempt - 1),
        "TORCHELASTIC_MAX_RESTARTS": str(spec.max_retries),
        "OMPI_COMM_WORLD_RANK": str(place.rank),
        "OMPI_COMM_WORLD_SIZE": str(world_size),
        "OMPI_COMM_WORLD_LOCAL_RANK": str(place.local_rank),
        "OMPI_COMM_WORLD_LOCAL_SIZE": str(place.local_world_size),
        "OMPI_COMM_WORLD_NODE_RANK": str(place.local_rank),
        # With a port where there are several nodes, and without one where there is a single one.
        "AZ_BATCH_MASTER_NODE": f"{master[0]}:{master[1]}",
        "AZ_BATCHAI_MPI_MASTER_NODE": master[0],
        "AZ_BATCHAI_JOB_MASTER_NODE_IP": master[0],
        "AZUREML_CR_NODE_RANK": str(place.node_rank),
        "AZUREML_NODE_COUNT": str(place.nodes),
        "AZUREML_RUN_ID": spec.run_id,
    }
    if place.gpus or place.hides_gpus:
        variables["CUDA_VISIBLE_DEVICES"] = ",".join(place.gpus)
    interface = interface_of(addresses[place.rank][0])
    if interface and not {_GLOO_INTERFACE} & (spec.environment.keys() | os.environ.keys()):
        # By itself gloo asks what the machine's own name stands for: on many that is a loopback
        # address, which other machines cannot reach.
        variables[_GLOO_INTERFACE] = interface
    return variables
