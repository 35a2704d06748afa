"""What a gang is asked to do, and how each of its ranks came to its end."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from partwise.engine.failures import Failure
from partwise.environments.resolved_environment import ResolvedEnvironment
from partwise.gangs.options import GangOptions
from partwise.outcomes import PartitionStatus
from partwise.runs.bundle import StoredArtifact
from partwise.shuffle.shared_folder import StagedFile
from partwise.store.store import Store
from partwise.tables.keys.partition_keys import KeyClass, KeyColumn

RANK_KEY = (KeyColumn(name="rank", key_class=KeyClass.INTEGER),)
"""The key columns of a gang's run: each rank is a partition of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """Ranks on one Dask worker."""

    worker: str
    """Its address."""
    first_rank: int
    ranks: int
    """0: it only holds a slot, whose threads or GPUs ranks of a neighbour use. Such nodes stand
    last."""
    gpus: tuple[str, ...] = ()
    """Those of its ranks, in order, as CUDA_VISIBLE_DEVICES names them."""
    hides_gpus: bool = False
    """Whether its ranks are to see none, as they are to have none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GangSpec:
    """What a gang is asked to do."""

    token: str
    """The execution's: it names topics, folders and marks."""
    run_id: str
    generation: int
    store: Store
    nodes: tuple[Node, ...]
    payload: StagedFile
    """What every rank calls: a `GangPayload`, as cloudpickle bytes."""
    shares_gpus: bool = False
    """Whether each rank sees all GPUs of its node, among which a script chooses by LOCAL_RANK, as
    it does under torchrun; else its own alone."""
    packages: ResolvedEnvironment | None = None
    """Those that come before the worker's own in the ranks' processes; None: only these are."""
    modules: tuple[str, ...] = ()
    """What the ranks are sure to import: they are forked from a process that has it loaded."""
    threads: int = 1
    """Threads of each rank."""
    gpus: int = 0
    """GPUs of each rank."""
    seed: int = 0
    options: GangOptions = field(default_factory=GangOptions)
    keeps_checkpoints: bool = True
    """Whether ranks keep checkpoints in the run, and go on from them."""
    resumable: tuple[int, ...] = ()
    """Earlier generations of the same function and rows: it goes on from their checkpoints."""
    resume_from: str = ""
    """Where it starts while it has no checkpoint of its own: a run of this store, or a folder; see
    `partwise.gangs.resume_point`, whose answer stands here for the ranks."""
    resume_sha256: str = ""
    """Of the document of the checkpoint that they go on from; "": no signing keys are configured.
    """
    is_signed: bool = False
    """Whether checkpoints are to be signed: the run's process was given signing keys."""

    @property
    def world_size(self) -> int:
        """How many ranks there are."""
        return sum(node.ranks for node in self.nodes)


@dataclass(frozen=True, slots=True, kw_only=True)
class RankEnd:
    """How one rank came to its end in the last attempt."""

    rank: int
    host: str
    attempt: int
    status: PartitionStatus
    """DONE, SKIPPED (rank 0 declined), FAILED (by itself), CANCELLED (ended from outside), or
    INTERNAL_ERROR (its worker was lost)."""
    exit_code: int | None = None
    """As `subprocess` gives it; None: it never ran, or its worker died."""
    failure: Failure | None = None
    seconds: float = 0.0
    peak_memory_bytes: int | None = None
    rows: int | None = None
    """How many rows of the source "train" it had; None where it did not read them."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    steps: tuple[tuple[int, float], ...] = ()
    """Of rank 0, where the driver watches a metric: steps with that at each."""
    artifacts: tuple[StoredArtifact, ...] = ()
    """Its log, and what rank 0 made: in bundles of the run, already in the store."""
    reason: str = ""
    """Why it was ended from outside (time limit, stop, another rank's failure), or declined."""
