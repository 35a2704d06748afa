"""Which ranks of a gang run on which Dask workers."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import groupby

from partwise.engine.scaling import ALL, ClusterWorker, ScalingConfig, rank_slots
from partwise.gangs.spec import Node


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Where the ranks of a gang run, and what each may use."""

    nodes: tuple[Node, ...]
    threads: int
    """Threads of each rank."""
    gpus: int
    """GPUs of each rank."""


def place_ranks(
    workers: Sequence[ClusterWorker], ranks: int = -1, threads: int = -1, gpus: int = 0
) -> Placement:
    """Place ranks on workers, in their order.

    Args:
        workers: Those of the cluster.
        ranks: How many; -1: one on each worker where neither threads nor GPUs are given, else as
            many as there is room for.
        threads: Of each rank; -1: as many as so many ranks can have.
        gpus: Of each rank; -1: as many as so many ranks can have.

    Raises:
        ClusterError: The cluster has no worker.
        InputError: It does not have room for so many.
    """
    config = ScalingConfig(
        num_workers=ranks, cpus_per_worker=threads, gpus_per_worker=None if gpus == ALL else gpus
    )
    slots = rank_slots(workers, config)
    nodes = []
    first_rank = 0
    for worker, of_worker in groupby(slots, key=lambda slot: slot.worker):
        devices = [slot.gpus for slot in of_worker]
        nodes.append(
            Node(
                worker=worker,
                first_rank=first_rank,
                ranks=len(devices),
                gpus=tuple(name for of_rank in devices for name in of_rank),
            )
        )
        first_rank += len(devices)
    homes = {node.worker for node in nodes}
    lent = dict.fromkeys(other for slot in slots for other in slot.others if other not in homes)
    nodes += [Node(worker=worker, first_rank=first_rank, ranks=0) for worker in lent]
    return Placement(nodes=tuple(nodes), threads=slots[0].threads, gpus=len(slots[0].gpus))


def replace_lost(
    nodes: Sequence[Node], lost: Collection[str], workers: Sequence[ClusterWorker]
) -> tuple[Node, ...] | None:
    """Return the nodes with other workers in the place of lost ones; None: there are too few.

    Args:
        nodes: Those of the gang.
        lost: Addresses of workers that are not to be used.
        workers: Those that are there.
    """
    used = {node.worker for node in nodes}
    spare = [worker for worker in workers if worker.address not in used | set(lost)]
    replaced = []
    for node in nodes:
        if node.worker not in lost:
            replaced.append(node)
            continue
        fit = next((worker for worker in spare if len(worker.gpus) >= len(node.gpus)), None)
        if fit is None:
            return None
        spare.remove(fit)
        replaced.append(
            Node(
                worker=fit.address,
                first_rank=node.first_rank,
                ranks=node.ranks,
                gpus=fit.gpus[: len(node.gpus)],
            )
        )
    return tuple(replaced)
