"""The environment of a rank: torchrun's variables, Open MPI's, and those of AzureML's nodes.

torchrun's names and their meaning are those of https://pytorch.org/docs/stable/elastic/run.html.
AzureML's are those that scripts look at which were written for it: the address of the first node,
as jobs of its Batch service have it, and the number of the own one.
"""

import os

from partwise.engine.worker.machine_slots import thread_variables
from partwise.gangs.rank_settings import RankSettings
from partwise.gangs.spec import GangSpec
from partwise.peers import interface_of

_GLOO_INTERFACE = "GLOO_SOCKET_IFNAME"

ROLE = "default"
"""torchrun's name for ranks that are all alike."""


def gang_environment(spec: GangSpec) -> dict[str, str]:
    """Return the variables of all ranks of a gang, besides those that a worker has."""
    return {
        # What a program prints is to be seen at once, not when a buffer is full.
        "PYTHONUNBUFFERED": "1",
        # All ranks use as many, also where the worker's own variables say another number.
        **thread_variables(spec.threads, {}),
    }


def rank_environment(spec: GangSpec, settings: RankSettings) -> dict[str, str]:
    """Return the variables of a rank alone, which come before those of its gang."""
    rank, world_size, node_rank = settings.rank, settings.world_size, settings.node_rank
    nodes = sum(node.ranks > 0 for node in spec.nodes)
    master = settings.addresses[0]
    variables = {
        "RANK": str(rank),
        "LOCAL_RANK": str(settings.local_rank),
        "WORLD_SIZE": str(world_size),
        "LOCAL_WORLD_SIZE": str(settings.local_world_size),
        "NODE_RANK": str(node_rank),
        "GROUP_RANK": str(node_rank),
        "GROUP_WORLD_SIZE": str(nodes),
        "ROLE_NAME": ROLE,
        "ROLE_RANK": str(rank),
        "ROLE_WORLD_SIZE": str(world_size),
        "MASTER_ADDR": master[0],
        "MASTER_PORT": str(master[1]),
        "TORCHELASTIC_RUN_ID": spec.token,
        "TORCHELASTIC_RESTART_COUNT": str(settings.attempt - 1),
        "TORCHELASTIC_MAX_RESTARTS": str(spec.options.max_retries),
        "OMPI_COMM_WORLD_RANK": str(rank),
        "OMPI_COMM_WORLD_SIZE": str(world_size),
        "OMPI_COMM_WORLD_LOCAL_RANK": str(settings.local_rank),
        "OMPI_COMM_WORLD_LOCAL_SIZE": str(settings.local_world_size),
        "OMPI_COMM_WORLD_NODE_RANK": str(settings.local_rank),
        # With a port where there are several nodes, and without one where there is a single one.
        "AZ_BATCH_MASTER_NODE": f"{master[0]}:{master[1]}",
        "AZ_BATCHAI_MPI_MASTER_NODE": master[0],
        "AZ_BATCHAI_JOB_MASTER_NODE_IP": master[0],
        "AZUREML_CR_NODE_RANK": str(node_rank),
        "AZUREML_NODE_COUNT": str(nodes),
        "AZUREML_RUN_ID": spec.run_id,
    }
    if settings.gpus or spec.nodes[node_rank].hides_gpus:
        variables["CUDA_VISIBLE_DEVICES"] = ",".join(settings.gpus)
    interface = interface_of(settings.addresses[rank][0])
    if interface and _GLOO_INTERFACE not in os.environ:
        # By itself gloo asks what the machine's own name stands for: on many that is a loopback
        # address, which other machines cannot reach.
        variables[_GLOO_INTERFACE] = interface
    return variables
