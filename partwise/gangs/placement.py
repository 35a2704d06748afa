"""Which ranks of a gang run on which Dask workers."""

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TypeVar

from partwise.engine.scaling import (
    ALL,
    ClusterWorker,
    ScalingConfig,
    Slot,
    cpus_of_hosts,
    rank_slots,
    slots_of,
)
from partwise.errors import ClusterError, InputError
from partwise.gangs.spec import Node

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Where the ranks of a gang run, and what each may use."""

    nodes: tuple[Node, ...]
    threads: int
    """Threads of each rank."""
    gpus: int
    """GPUs of each rank."""
    why: str = ""
    """Why there are so many ranks, as a sentence, where nobody asked for so many."""


def place_ranks(workers: Sequence[ClusterWorker], config: ScalingConfig) -> Placement:
    """Place the ranks of one gang on workers, in their order."""
    slots = _on_ready(workers, lambda ready: rank_slots(ready, config))
    return _placement(slots, hides_gpus=config.gpus == 0)


def _on_ready(workers: Sequence[ClusterWorker], place: Callable[[Sequence[ClusterWorker]], T]) -> T:
    """Return what is placed on workers that take tasks now.

    Where these are too few, those that Dask has paused are taken too, which may go on in time; and
    never one that is closing.
    """
    staying = [worker for worker in workers if not worker.is_closing]
    ready = [worker for worker in staying if worker.status != "paused"]
    if len(ready) < len(staying):
        with suppress(InputError, ClusterError):
            return place(ready)
    return place(staying)


def place_gangs(
    workers: Sequence[ClusterWorker], config: ScalingConfig, at_most: int | None = None
) -> list[Placement]:
    """Place as many equal gangs beside each other as there is room for.

    Where `config` says neither, the CPUs are divided among the ranks of all gangs; where it does
    not say how many ranks, one gang has the whole cluster. `at_most` None: no limit.
    """
    if config.ranks == ALL:
        return [place_ranks(workers, config)]
    return _on_ready(workers, lambda ready: _place_gangs(ready, config, at_most))


def _place_gangs(
    workers: Sequence[ClusterWorker], config: ScalingConfig, at_most: int | None
) -> list[Placement]:
    hides = config.gpus == 0
    threads = {worker.address: worker.threads for worker in workers}
    # As many as there would be with the least that each rank is to have.
    least = slots_of(workers, max(1, config.cpus), config.gpus or 0)
    room = max(1, len(least) // config.ranks)
    for count in range(min(room, at_most or room), 1, -1):
        asked = config.model_copy(update={"ranks": count * config.ranks})
        try:
            slots = rank_slots(workers, asked)
        except InputError:
            continue
        # Those of a worker side by side, so that a gang is on few of them.
        slots = sorted(slots, key=lambda slot: (slot.host, slot.worker))
        parts = range(0, len(slots), config.ranks)
        placements = [_placement(slots[part : part + config.ranks], hides) for part in parts]
        held = Counter(node.worker for placed in placements for node in placed.nodes)
        # A node holds a thread of its worker: two gangs that share one would wait for each other.
        if all(held[worker] <= threads[worker] for worker in held):
            return placements
    return [place_ranks(workers, config)]


def _placement(slots: Sequence[Slot], hides_gpus: bool) -> Placement:
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
                hides_gpus=hides_gpus,
            )
        )
        first_rank += len(devices)
    return Placement(
        nodes=(*nodes, *_lent(slots, first_rank)),
        threads=slots[0].threads,
        gpus=len(slots[0].gpus),
    )


def place_nodes(
    workers: Sequence[ClusterWorker],
    nodes: int,
    process_count: int,
    threads: int = ALL,
    gpus: int = ALL,
) -> Placement:
    """Place nodes with equally many ranks on workers, one node on each.

    `threads` and `gpus` ALL: as many as so many ranks can have, also no GPUs.
    """
    return _on_ready(
        workers, lambda ready: _place_nodes(ready, nodes, process_count, threads, gpus)
    )


def _place_nodes(
    workers: Sequence[ClusterWorker], nodes: int, process_count: int, threads: int, gpus: int
) -> Placement:
    if not workers:
        raise ClusterError("The Dask cluster has no worker; start some, or wait until they come.")
    ranks = nodes * process_count

    def room(cpus: int, devices: int) -> list[Slot]:
        slots = slots_of(workers, process_count * cpus, process_count * devices)
        # The first slot of each worker, in the order of the workers.
        return list({slot.worker: slot for slot in reversed(slots)}.values())[::-1]

    there = sum(len(worker.gpus) for worker in workers)
    least = max(1, threads)
    # Asked for, and not what is left where there are too few.
    hides = gpus == 0
    if gpus == ALL:
        numbers = range(there // ranks, 0, -1)
        gpus = next((n for n in numbers if len(room(least, n)) >= nodes), 0)
    if threads == ALL:
        of_hosts = cpus_of_hosts(workers)
        most = min(sum(of_hosts) // ranks, max(of_hosts) // process_count)
        numbers = range(most, 1, -1)
        threads = next((n for n in numbers if len(room(n, gpus)) >= nodes), 1)
    slots = room(threads, gpus)[:nodes]
    if len(slots) < nodes:
        needs = f"{threads} CPUs" + (f" and {gpus} GPUs" if gpus else "")
        has = f"{sum(worker.threads for worker in workers)} CPUs and {there} GPUs"
        raise InputError(
            f"{ranks} processes with {needs} each are asked for: nodes={nodes}, "
            f"ranks_per_node={process_count}. The cluster has {len(workers)} workers with "
            f"{has}, which is room for {len(slots)} such nodes, one on a worker: ask for fewer "
            "or smaller ones, or start more workers."
        )
    placed = [
        Node(
            worker=slot.worker,
            first_rank=place * process_count,
            ranks=process_count,
            gpus=slot.gpus,
            hides_gpus=hides,
        )
        for place, slot in enumerate(slots)
    ]
    return Placement(nodes=(*placed, *_lent(slots, ranks)), threads=threads, gpus=gpus)


def _lent(slots: Sequence[Slot], first_rank: int) -> list[Node]:
    """Return nodes without ranks, for workers of which slots use threads or GPUs."""
    homes = {slot.worker for slot in slots}
    lent = dict.fromkeys(other for slot in slots for other in slot.others if other not in homes)
    return [Node(worker=worker, first_rank=first_rank, ranks=0) for worker in lent]


def replace_lost(
    nodes: Sequence[Node], lost: Collection[str], workers: Sequence[ClusterWorker]
) -> tuple[Node, ...] | None:
    """Return the nodes with others of these workers in the place of lost ones; None: too few."""
    used = {node.worker for node in nodes if node.worker not in lost}
    spare = [each for each in workers if each.address not in used and not each.is_closing]
    spare.sort(key=lambda worker: worker.status == "paused")
    replaced = []
    for node in nodes:
        if node.worker not in lost:
            replaced.append(node)
            continue
        fit = next((worker for worker in spare if len(worker.gpus) >= len(node.gpus)), None)
        if fit is None:
            return None
        spare.remove(fit)
        replaced.append(replace(node, worker=fit.address, gpus=fit.gpus[: len(node.gpus)]))
    return tuple(replaced)
