"""Plan of a gang: all that is decided of its run before a rank is started."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from partwise.engine.scaling import ScalingConfig
from partwise.gangs.options import GangOptions
from partwise.gangs.work import RankWork
from partwise.runs.claim import Identity, Intent, OnExisting
from partwise.sources.descriptions import Source


@dataclass(frozen=True, kw_only=True)
class GangPlan:
    """What a gang is about to do: its identity, rows, work, and how it is executed."""

    identity: Identity
    sources: Mapping[str, Source]
    """The rows by name: "train", and those of the eval sets."""
    work: RankWork
    function: Any
    """The user's function or trainer."""
    intent: Intent
    seed: int
    on_existing: OnExisting
    scaling: ScalingConfig
    options: GangOptions
    hyperparameters: Mapping[str, Any] = field(default_factory=dict)
    resume_from: str = ""
    """A run, or a folder, with a checkpoint to begin with; empty: none."""
