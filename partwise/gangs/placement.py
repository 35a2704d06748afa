"""Which ranks of a gang run on which Dask workers."""

import importlib
import os
from collections import defaultdict
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from distributed import Client

from partwise.errors import ClusterError, InputError
from partwise.gangs.spec import Node

SCHEDULER_S = 30.0
"""For so long the scheduler's answer is waited for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerPlace:
    """A Dask worker, as a place for ranks."""

    address: str
    host: str
    name: str
    threads: int
    gpus: tuple[str, ...] = ()
    """Its own, as CUDA_VISIBLE_DEVICES names them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Where the ranks of a gang run, and what each may use."""

    nodes: tuple[Node, ...]
    threads: int
    """Threads of each rank."""
    gpus: int
    """GPUs of each rank."""


def look_at_workers(client: Client, *, gpus: bool = False) -> list[WorkerPlace]:
    """Return the workers of a cluster: those of a host side by side.

    Args:
        client: Connected to the cluster.
        gpus: Whether the workers are asked for their GPUs, which takes a moment.
    """
    known = known_workers(client)
    seen = client.run(visible_gpus, on_error="ignore") if gpus else {}
    places = [
        WorkerPlace(
            address=address,
            host=str(worker["host"]),
            name=str(worker["name"]),
            threads=int(worker["nthreads"]),
            gpus=tuple(seen.get(address, ())),
        )
        for address, worker in known.items()
    ]
    places.sort(key=lambda place: (place.host, place.name.zfill(12), place.address))
    return divide_gpus(places) if gpus else places


def known_workers(client: Client) -> dict[str, dict[str, Any]]:
    """Return what the scheduler says of each worker, by address."""
    # `client.scheduler_info()` shares a cache whose refresh leaves out the workers.
    scheduler: Any = client.scheduler
    identity = client.sync(scheduler.identity, n_workers=-1, callback_timeout=SCHEDULER_S)
    workers: dict[str, dict[str, Any]] = identity["workers"]
    return workers


def visible_gpus() -> list[str]:
    """Return the GPUs that this process may use, in the order in which it would; on a worker."""
    listed = os.environ.get("CUDA_VISIBLE_DEVICES")
    if listed is not None:
        return [name.strip() for name in listed.split(",") if name.strip() not in ("", "-1")]
    with suppress(Exception):
        pynvml: Any = importlib.import_module("pynvml")
        pynvml.nvmlInit()
        return [str(number) for number in range(pynvml.nvmlDeviceGetCount())]
    return []


def divide_gpus(places: Sequence[WorkerPlace]) -> list[WorkerPlace]:
    """Give each GPU of a host to one of the workers that see it, by turns.

    dask-cuda shows each worker all GPUs, another one first: that one becomes its own.
    """
    own: dict[str, list[str]] = {place.address: [] for place in places}
    taken: dict[str, set[str]] = defaultdict(set)
    while True:
        before = sum(map(len, own.values()))
        for place in places:
            free = [name for name in place.gpus if name not in taken[place.host]]
            if free:
                taken[place.host].add(free[0])
                own[place.address].append(free[0])
        if sum(map(len, own.values())) == before:
            return [replace(place, gpus=tuple(own[place.address])) for place in places]


def place_ranks(
    workers: Sequence[WorkerPlace], ranks: int = -1, threads: int = -1, gpus: int = 0
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
    for name, value in (("ranks", ranks), ("threads per rank", threads)):
        if value != -1 and value < 1:
            raise InputError(f"{name} is {value}; it must be 1 or more, or -1 for all there is.")
    if gpus < -1:
        raise InputError(f"GPUs per rank is {gpus}; it must be 0 or more, or -1 for all there is.")
    if not workers:
        raise ClusterError("The Dask cluster has no worker; start some, or wait until they come.")
    count = ranks
    if count == -1:
        is_plain = threads == -1 and gpus <= 0
        count = len(workers) if is_plain else _room(workers, max(1, threads), max(0, gpus))
    if gpus == -1:
        most = max(len(worker.gpus) for worker in workers)
        fits = (g for g in range(most, 0, -1) if _room(workers, max(1, threads), g) >= count)
        gpus = next(fits, 0)
    if threads == -1:
        most = max(worker.threads for worker in workers)
        threads = next((t for t in range(most, 1, -1) if _room(workers, t, gpus) >= count), 1)
    room = _room(workers, threads, gpus)
    if room < max(1, count):
        each = f"{threads} threads and {gpus} GPUs" if gpus else f"{threads} threads"
        raise InputError(
            f"{max(1, count)} ranks of {each} were asked for, and the {len(workers)} workers of "
            f"the cluster have room for {room}; ask for fewer or smaller ranks, or start more "
            "workers."
        )
    return Placement(nodes=_spread(workers, count, threads, gpus), threads=threads, gpus=gpus)


def replace_lost(
    nodes: Sequence[Node], lost: Collection[str], workers: Sequence[WorkerPlace]
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


def _room_on(worker: WorkerPlace, threads: int, gpus: int) -> int:
    room = worker.threads // threads
    return min(room, len(worker.gpus) // gpus) if gpus else room


def _room(workers: Sequence[WorkerPlace], threads: int, gpus: int) -> int:
    """Return for how many ranks of a size there is room."""
    return sum(_room_on(worker, threads, gpus) for worker in workers)


def _spread(
    workers: Sequence[WorkerPlace], count: int, threads: int, gpus: int
) -> tuple[Node, ...]:
    """Give each rank to the worker that has fewest of them, so that they share memory evenly."""
    counts = [0] * len(workers)
    rooms = [_room_on(worker, threads, gpus) for worker in workers]
    for _ in range(count):
        free = [place for place, room in enumerate(rooms) if counts[place] < room]
        counts[min(free, key=counts.__getitem__)] += 1
    nodes = []
    first_rank = 0
    for worker, ranks in zip(workers, counts, strict=True):
        if ranks:
            nodes.append(
                Node(
                    worker=worker.address,
                    first_rank=first_rank,
                    ranks=ranks,
                    gpus=worker.gpus[: ranks * gpus],
                )
            )
            first_rank += ranks
    return tuple(nodes)
