"""Plan of a study: all that is decided of its run before a trial begins."""

from dataclasses import dataclass

from partwise.choices import OnExisting
from partwise.engine.options import ExecutionOptions
from partwise.environments.resolved_environment import ResolvedEnvironment
from partwise.runs.claim import Identity, Intent
from partwise.sources.descriptions import Source
from partwise.studies.driver import Stopping
from partwise.studies.gang_trials import GangPlan
from partwise.studies.search import SearchSpec
from partwise.studies.work import TrialWork


@dataclass(frozen=True, kw_only=True)
class StudyPlan:
    """What a study is about to do: its identity, rows, work, search, and how it is executed."""

    identity: Identity
    source: Source
    work: TrialWork
    name: str
    """How messages name what a trial trains with."""
    intent: Intent
    seed: int
    on_existing: OnExisting
    options: ExecutionOptions
    search: SearchSpec
    stopping: Stopping
    max_concurrent: int | None
    """Trials that run at once, at most; None: as many as the cluster has room for."""
    gang: GangPlan | None = None
    """How a gang trains each trial; None: a child process does."""
    environment: ResolvedEnvironment | None = None
    """Packages that come before the workers' own; None: there are none."""
