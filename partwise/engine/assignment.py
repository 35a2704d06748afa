"""What the driver hands a worker, and what comes back: small frozen values only."""

from dataclasses import dataclass, field
from typing import Any

from partwise.engine.limits import Limits
from partwise.engine.options import ExecutionOptions
from partwise.engine.scaling import other_version, own_version
from partwise.environments.resolved_environment import ResolvedEnvironment
from partwise.formatting import counted
from partwise.processes.warm_server import NOTHING_LOADED, Preloaded
from partwise.runs.kinds import RunKind
from partwise.shuffle.plan import UnsortedShard
from partwise.shuffle.shared_folder import Medium, StagedFile
from partwise.store.store import Store
from partwise.tables.keys.partition_keys import KeyColumn


def work_file(token: str) -> str:
    """Return the name of the file that holds an execution's work."""
    return f"work-{token}.pkl"


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution:
    """What all shards of one execution of a run have in common."""

    token: str
    """Chosen by the driver at random; names this execution in events and to `request_stop`."""
    run_id: str
    kind: RunKind
    generation: int
    store: Store
    key_columns: tuple[KeyColumn, ...]
    seed: int
    reads: frozenset[str] | None = None
    """The columns that the work looks at; None: all of them."""
    compatible: tuple[int, ...]
    """Earlier generations whose DONE partitions may be kept."""
    keeps_done: bool = False
    """Whether these are kept whatever they were computed from."""
    options: ExecutionOptions
    limits: Limits
    work: StagedFile
    work_name: str = ""
    """Of executions with the same one, children use the same libraries; empty: nothing is known."""
    preloaded: Preloaded = NOTHING_LOADED
    """What children find loaded, since the work names it."""
    environment: ResolvedEnvironment | None = None
    """Packages that come before the workers' own; None: there are none."""
    all_rows: int = 0
    """Of all partitions, also of those that are not worked on."""
    all_partitions: int = 0
    compares_models: bool = False
    """Whether each of a partition's models is used; else the first, and others where that fails."""
    without_model: str | None = None
    """What answers for a partition without a model; None: nothing."""
    is_signed: bool = False
    """Whether segments of the ledger are signed, with keys that workers are given besides."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _execution_of, (own_version(), _by_name(self))


def _execution_of(version: str, values: dict[str, Any]) -> Execution:
    """Make what was pickled; a worker may be sent some in the moment after it has come."""
    if version != own_version():
        raise other_version("The process that sent this work", version)
    return Execution(**values)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardAssignment:
    """One shard, for one worker."""

    execution: Execution
    shard: UnsortedShard
    where: Medium
    """Where its part files and dictionaries lie."""
    only: frozenset[int] | None
    """The hashes of the keys that are worked on; None: of all."""
    params: StagedFile | None
    models: StagedFile | None
    """Where the trained models of this shard stand, as an Arrow table."""

    @property
    def number(self) -> int:
        """The shard's number."""
        return self.shard.number


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardReceipt:
    """What became of a shard; its rows are in the ledger."""

    shard: int
    partitions: int
    counts: dict[str, int]
    """Partitions by status, those of earlier executions included."""
    kept: int
    seconds: float
    complete: bool
    """Whether every partition of the shard has a committed row."""
    damaged: tuple[str, ...] = ()
    """A sentence for each segment of the ledger that could not be read."""

    def __str__(self) -> str:
        counts = ", ".join(f"{count:,} {name}" for name, count in sorted(self.counts.items()))
        kept = f", {self.kept:,} kept from before" if self.kept else ""
        return (
            f"shard {self.shard}: {counted(self.partitions, 'partition')} in {self.seconds:.1f} s "
            f"({counts or 'none finished'}{kept})"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureGroup:
    """Failures of one fingerprint."""

    fingerprint: str
    error_type: str
    message: str
    sample: str
    """The key of one of them, as `--key` takes it."""
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Remark:
    """What the log of a run says once, of all of its partitions that it is true of."""

    kind: str
    text: str
    """What is said of the first of them, behind its name."""
    sample: str
    """Its key, as `--key` takes it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardProgress:
    """What a worker tells the driver now and then: what came since it last did."""

    shard: int
    execution: str
    """Tells the executions of a shard apart: a new one begins with what is committed."""
    counts: dict[str, int] = field(default_factory=dict)
    kept: int = 0
    failures: tuple[FailureGroup, ...] = ()
    remarks: tuple[Remark, ...] = ()
    """Kinds that this execution has not reported before."""
    worker: str = ""
    """The address of who tells it."""
    doing: str = ""
    """What it is at, as a clause: "partition 7 runs"."""
    since_s: float = 0.0
    """For how long."""
    place: int = -1
    """The partition that runs, by its place among those of the shard that are worked on, in the
    order of their keys; -1: none does."""

    def to_message(self) -> dict[str, Any]:
        """Return the progress as plain values, as Dask's events want it."""
        failures, remarks = map(_by_name, self.failures), map(_by_name, self.remarks)
        return {**_by_name(self), "failures": list(failures), "remarks": list(remarks)}

    @classmethod
    def from_message(cls, message: dict[str, Any]) -> "ShardProgress":
        """Return the progress that a message holds."""
        failures = tuple(FailureGroup(**each) for each in message["failures"])
        remarks = tuple(Remark(**each) for each in message["remarks"])
        return cls(**{**message, "failures": failures, "remarks": remarks})


def _by_name(value: Execution | ShardProgress | FailureGroup | Remark) -> dict[str, Any]:
    """Return the fields of a value; `asdict`, which copies deeply, takes fifty times as long."""
    return {name: getattr(value, name) for name in value.__slots__}
