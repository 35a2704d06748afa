"""Plan of a gang: all that is decided of its run before a rank is started."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from partwise.choices import OnExisting
from partwise.engine.scaling import ClusterWorker
from partwise.environments.resolved_environment import ResolvedEnvironment
from partwise.gangs.options import GangOptions
from partwise.gangs.placement import Placement
from partwise.gangs.work import RankWork
from partwise.runs.claim import Identity, Intent
from partwise.sources.descriptions import Source

if TYPE_CHECKING:
    from distributed import Client


@dataclass(frozen=True, kw_only=True)
class GangPlan:
    """What a gang is about to do: its identity, rows, work, and how it is executed."""

    identity: Identity
    sources: Mapping[str, Source]
    """The rows by name: "train" and those of the eval sets, or inputs of a script that are rows."""
    work: RankWork
    name: str
    """How messages name what the ranks run."""
    intent: Intent
    seed: int
    on_existing: OnExisting
    place: Callable[[Sequence[ClusterWorker]], Placement]
    """Places the ranks on the workers of a cluster; raises InputError where it has no room."""
    options: GangOptions
    check_workers: "Callable[[Client, Sequence[str]], object] | None" = None
    """Looks, before the run is begun, whether the workers at these addresses have what the ranks
    need; raises InputError where one has not. None: they need nothing special."""
    warnings: tuple[str, ...] = ()
    """To be logged before a rank is started."""
    params: Mapping[str, Any] = field(default_factory=dict)
    resume_from: str = ""
    """A run, or a folder, with a checkpoint to begin with; empty: none."""
    buckets: tuple[str, ...] = ()
    """Buckets that ranks read from besides those of the rows."""
    environment: ResolvedEnvironment | None = None
    """Those that come before the workers' own in the ranks' processes."""
    shares_gpus: bool = False
    """Whether each rank sees all GPUs of its node."""
    modules: tuple[str, ...] = ()
    """What the ranks are sure to import."""
