"""How many partitions, or ranks of a gang, work on a cluster at once, and what each may use.

A *slot* is where one of them works: a thread of a Dask worker, with the CPUs and GPUs of its own.
Dask counts a worker's threads only, so that CPUs are counted so: as a worker has threads, one each,
or, where each worker of a machine has GPUs of its own, its share of the machine's cores, since such
workers have one thread for each GPU and not for each core.
"""

import math
import os
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import metadata
from typing import TYPE_CHECKING, Annotated

from pydantic import ConfigDict, Field, model_validator
from pydantic.json_schema import SkipJsonSchema

from partwise.cluster_calls import ask_workers, known_workers
from partwise.errors import ClusterError, InputError
from partwise.form_schema import FormSettings
from partwise.formatting import counted
from partwise.ranks.context import visible_gpus

if TYPE_CHECKING:
    from distributed import Client

ALL = -1
"""Stands for all there is."""


class ScalingConfig(FormSettings):
    """How many ranks work on one model, and what each may use.

    Example:
        >>> ScalingConfig(ranks=2, cpus=4).ranks
        2
    """

    model_config = ConfigDict(title="Scaling")

    ranks: int = Field(
        kw_only=False,
        default=ALL,
        ge=ALL,
        description="Processes that work on the model together. -1: one for each GPU, or where "
        "there is none, for each worker of the cluster; with CPUs of a rank, as many as there "
        "are CPUs for. LightGBM and XGBoost on few rows and one machine: one process with all of "
        "its threads, which has the same model sooner.",
    )
    cpus: int = Field(
        title="CPUs of a rank",
        default=ALL,
        ge=ALL,
        description="Threads that each of them uses. -1: all there are, in equal parts.",
    )
    gpus: Annotated[int, Field(ge=0)] | SkipJsonSchema[None] = Field(
        title="GPUs of a rank",
        default=None,
        description="GPUs that each of them uses. Default: those there are, in equal parts.",
    )

    @model_validator(mode="after")
    def _is_not_zero(self) -> "ScalingConfig":
        for name in ("ranks", "cpus"):
            if getattr(self, name) == 0:
                raise ValueError(f"{name} is 0: give a number from 1, or -1 for all there is")
        return self


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterWorker:
    """A Dask worker, as far as it matters how much can be done there."""

    address: str
    host: str
    name: str = ""
    threads: int
    cores: int = 1
    """Of its machine, as far as its process may use them."""
    gpus: tuple[str, ...] = ()
    """Its own, as CUDA_VISIBLE_DEVICES names them."""
    status: str = "running"
    """As Dask names it."""

    @property
    def is_closing(self) -> bool:
        """Whether it takes no task any more."""
        return self.status.startswith("clos")


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """Where one partition or one rank works."""

    worker: str
    """The address of the worker whose child process it is."""
    host: str
    threads: int
    gpus: tuple[str, ...] = ()
    others: tuple[str, ...] = ()
    """Addresses of other workers of the host that lend it threads or GPUs."""


@dataclass(slots=True)
class _Left:
    """What is left of a worker while slots are made."""

    address: str
    threads: int
    cpus: int
    gpus: list[str] = field(default_factory=list)


def slots_of(workers: Iterable[ClusterWorker], cpus: int, gpus: int = 0) -> list[Slot]:
    """Divide the workers of a cluster into as many slots as there is room for.

    A slot is made of one worker where that has enough, and else of several workers of one host.

    Slots come by host, and by worker; those of one worker stand together.
    """
    slots: list[Slot] = []
    for host, members in _by_host(workers).items():
        left = _unused(members)
        of_host: list[Slot] = []
        for worker in left:
            while worker.threads and worker.cpus >= cpus and len(worker.gpus) >= gpus:
                of_host.append(_take(host, [worker], cpus, gpus))
        while True:
            homes = [worker for worker in left if worker.threads and (worker.cpus or worker.gpus)]
            enough = sum(worker.cpus for worker in left) >= cpus
            if not homes or not enough or sum(len(worker.gpus) for worker in left) < gpus:
                break
            home = max(homes, key=lambda worker: (len(worker.gpus) if gpus else 0, worker.cpus))
            others = [worker for worker in left if worker is not home]
            of_host.append(_take(host, [home, *others], cpus, gpus))
        places = {worker.address: place for place, worker in enumerate(members)}
        slots += sorted(of_host, key=lambda slot: places[slot.worker])
    return slots


def partition_slots(
    workers: Sequence[ClusterWorker], cpus: int, gpus: float | None = None
) -> list[Slot]:
    """Return where partitions work.

    `gpus` None: what the worker sees. Below 1: several have the same one.

    Raises:
        InputError: No machine of the cluster has so much.
    """
    whole = math.ceil(gpus or 0)
    times = sharing(gpus)
    shared = [
        replace(worker, gpus=tuple(name for name in worker.gpus for _ in range(times)))
        for worker in workers
    ]
    slots = slots_of(shared, cpus, whole)
    if not slots and workers:
        _refuse(workers, "A partition", cpus, whole)
    return slots


def sharing(gpus: float | None) -> int:
    """Return how many partitions share a GPU, of which each has this part.

    Example:
        >>> sharing(0.25), sharing(0.3), sharing(2), sharing(None)
        (4, 3, 1, 1)
    """
    # 1 / 0.1 may be a little less than 10.
    return int(1 / gpus + 1e-9) if gpus is not None and 0 < gpus < 1 else 1


def rank_slots(workers: Sequence[ClusterWorker], config: ScalingConfig) -> list[Slot]:
    """Return where the ranks of a gang work, one slot each, in the order of ranks.

    All ranks have equally many threads and GPUs. Where there is room for more ranks than asked for,
    each worker gets one before any gets two.

    Raises:
        InputError: The cluster has not so much.
        ClusterError: It has no worker.
    """
    if not workers:
        raise ClusterError("The Dask cluster has no worker; start some, or wait until they come.")
    asked = config.ranks
    gpus = _gpus_of_each(workers, config)
    if config.cpus != ALL:
        cpus = config.cpus
        slots = slots_of(workers, cpus, gpus)
    else:
        by_worker = len(slots_of(workers, 1, gpus)) if gpus else len(workers)
        wanted = max(1, by_worker) if asked == ALL else asked
        of_hosts = cpus_of_hosts(workers)
        # The most that leaves room for all of them: 1 where there is not even that.
        most = min(sum(of_hosts) // wanted, max(of_hosts))
        cpus = next((n for n in range(most, 1, -1) if len(slots_of(workers, n, gpus)) >= wanted), 1)
        slots = _by_turns(slots_of(workers, cpus, gpus), wanted)
    if not slots:
        _refuse(workers, "A rank", cpus, gpus)
    if asked == ALL:
        return slots
    if len(slots) < asked:
        raise InputError(
            f"{asked} ranks with {_amount(cpus, gpus)} each are asked for (ranks), and the "
            f"cluster has room for {len(slots)}: ask for fewer or smaller ones, or start more "
            "workers."
        )
    return _by_turns(slots, asked)


def cluster_workers(client: "Client") -> list[ClusterWorker]:
    """Ask the scheduler and the workers of a cluster what they have.

    Those of a host stand side by side.

    Raises:
        ClusterError: A worker has another version of partwise.
    """
    seen = ask_workers(client, what_is_here)
    ours = own_version()
    workers = []
    for address, worker in known_workers(client).items():
        answer = seen.get(address)
        if answer is None:
            # It hangs, or came a moment ago: nothing is planned for it, though it may be used.
            continue
        version, cores, gpus = (ours, 1, ()) if isinstance(answer, Exception) else answer
        if version != ours:
            raise other_version(f"The Dask worker {address}", version)
        workers.append(
            ClusterWorker(
                address=address,
                host=str(worker["host"]),
                name=str(worker["name"]),
                threads=int(worker["nthreads"]),
                cores=cores,
                gpus=tuple(gpus),
                status=str(worker.get("status", "running")),
            )
        )
    return divide_gpus(sorted(workers, key=_order))


def other_version(who: str, version: str) -> ClusterError:
    """Return the error of somebody who has another version of partwise than this process.

    Values are pickled without the names of their fields: another version would take one for
    another.
    """
    return ClusterError(
        f"{who} has partwise {version}, and this process {own_version()}: install the same version "
        "wherever a run is carried out, and start the workers again."
    )


def divide_gpus(workers: Sequence[ClusterWorker]) -> list[ClusterWorker]:
    """Give each GPU of a host to one of the workers that see it, by turns.

    Workers of dask-cuda all see all GPUs, each another one first, which becomes its own.
    """
    own: dict[str, list[str]] = {worker.address: [] for worker in workers}
    taken: set[tuple[str, str]] = set()
    while True:
        before = len(taken)
        for worker in workers:
            name = next((name for name in worker.gpus if (worker.host, name) not in taken), None)
            if name is not None:
                taken.add((worker.host, name))
                own[worker.address].append(name)
        if len(taken) == before:
            return [replace(worker, gpus=tuple(own[worker.address])) for worker in workers]


def what_is_here() -> tuple[str, int, tuple[str, ...]]:
    """Return the version of partwise, and `cores_and_gpus`; called on a worker."""
    return own_version(), *cores_and_gpus()


@cache
def own_version() -> str:
    """Return the version of partwise in this process."""
    try:
        return metadata.version("partwise")
    except metadata.PackageNotFoundError:
        return "of which nothing says the version"


def cores_and_gpus() -> tuple[int, tuple[str, ...]]:
    """Return how many cores this process may use, and which GPUs it sees."""
    from dask.system import CPU_COUNT

    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        from distributed.diagnostics import nvml

        return CPU_COUNT, tuple(str(number) for number in range(nvml.device_get_count()))
    return CPU_COUNT, visible_gpus(visible)


def _by_host(workers: Iterable[ClusterWorker]) -> dict[str, list[ClusterWorker]]:
    hosts: dict[str, list[ClusterWorker]] = defaultdict(list)
    for worker in sorted(workers, key=_order):
        hosts[worker.host].append(worker)
    return hosts


def _order(worker: ClusterWorker) -> tuple[str, str, str]:
    # Names of workers are numbers as a rule, of which 10 comes behind 9.
    return worker.host, worker.name.zfill(12), worker.address


def _unused(workers: Sequence[ClusterWorker]) -> list[_Left]:
    """Return what the workers of a host have."""
    # Of several workers that see the one GPU of their machine, none is there for it alone.
    has_each = all(worker.gpus for worker in workers)
    share = max(worker.cores for worker in workers) // len(workers) if has_each else 0
    return [
        _Left(
            address=worker.address,
            threads=worker.threads,
            cpus=max(worker.threads, share),
            gpus=list(worker.gpus),
        )
        for worker in workers
    ]


def cpus_of_hosts(workers: Iterable[ClusterWorker]) -> list[int]:
    """Return how many CPUs each host has, of which slots are made: none has some of two hosts."""
    by_host = _by_host(workers).values()
    return [sum(worker.cpus for worker in _unused(members)) for members in by_host]


def _take(host: str, workers: Sequence[_Left], cpus: int, gpus: int) -> Slot:
    """Make a slot of the first worker, and of the others as far as that has not enough."""
    home = workers[0]
    home.threads -= 1
    devices: list[str] = []
    others = []
    missing = cpus
    for worker in workers:
        from_cpus = min(worker.cpus, missing)
        from_gpus = worker.gpus[: gpus - len(devices)]
        if worker is not home and (from_cpus or from_gpus):
            others.append(worker.address)
            # Whoever lends has so many threads less to begin slots of its own with.
            worker.threads = max(0, worker.threads - max(1, min(from_cpus, worker.threads)))
        worker.cpus -= from_cpus
        missing -= from_cpus
        del worker.gpus[: len(from_gpus)]
        devices += from_gpus
    return Slot(
        worker=home.address, host=host, threads=cpus, gpus=tuple(devices), others=tuple(others)
    )


def _gpus_of_each(workers: Sequence[ClusterWorker], config: ScalingConfig) -> int:
    """Return how many GPUs each rank gets."""
    if config.gpus is not None:
        return config.gpus
    there = sum(len(worker.gpus) for worker in workers)
    if not there or config.ranks == ALL:
        return min(1, there)
    cpus = max(1, config.cpus)
    for gpus in range(there // config.ranks, 0, -1):
        if len(slots_of(workers, cpus, gpus)) >= config.ranks:
            return gpus
    raise InputError(
        f"{config.ranks} ranks are asked for (ranks), and the cluster has "
        f"{counted(there, 'GPU')}: ask for fewer ranks, or for gpus=0."
    )


def _by_turns(slots: list[Slot], count: int) -> list[Slot]:
    """Return so many slots, of each worker one before any has two: they share memory evenly."""
    turns: dict[str, int] = defaultdict(int)
    ranked = []
    for place, slot in enumerate(slots):
        ranked.append((turns[slot.worker], place))
        turns[slot.worker] += 1
    return [slots[place] for place in sorted(place for _, place in sorted(ranked)[:count])]


def _refuse(workers: Sequence[ClusterWorker], who: str, cpus: int, gpus: int) -> None:
    """Say which of both no machine has enough of."""
    most_cpus = max(cpus_of_hosts(workers))
    by_host = _by_host(workers).values()
    most_gpus = max(sum(len(worker.gpus) for worker in members) for members in by_host)
    if cpus > most_cpus:
        asked, there, name = counted(cpus, "CPU"), counted(most_cpus, "CPU"), "cpus"
    elif gpus > most_gpus:
        asked, there, name = counted(gpus, "GPU"), counted(most_gpus, "GPU"), "gpus"
    else:
        raise InputError(
            f"{who} is to have {_amount(cpus, gpus)} (cpus, gpus), and no machine of the cluster "
            f"has both: the most are {_amount(most_cpus, most_gpus)}, on different machines."
        )
    raise InputError(
        f"{who} is to have {asked} ({name}), and the largest machine of the cluster has {there}: "
        "ask for fewer, or take another cluster."
    )


def _amount(cpus: int, gpus: int) -> str:
    return counted(cpus, "CPU") + (f" and {counted(gpus, 'GPU')}" if gpus else "")
