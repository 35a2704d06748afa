"""What every rank of a gang calls, and how the driver sends it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from partwise.connector.rank_context import Exchange, RankContext, RankRows
from partwise.engine.works import Produced


class RankWork(Protocol):
    """What a rank does; a value that cloudpickle can send."""

    def __call__(self, context: RankContext, directory: str) -> Produced:
        """Work as one rank; files that are to be kept are written to `directory`."""


class RankSource(Protocol):
    """A source as the driver describes it to the ranks; a value that pickles."""

    def open(self, rank: int, world_size: int, exchange: Exchange, directory: str) -> RankRows:
        """Return the rows as this rank reads them; `directory` is on this machine's disk."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GangPayload:
    """What every rank gets: written once, as cloudpickle bytes that only ranks open."""

    work: RankWork
    sources: Mapping[str, RankSource] = field(default_factory=dict)
    hyperparameters: Mapping[str, Any] = field(default_factory=dict)
