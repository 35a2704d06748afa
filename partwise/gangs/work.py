"""What every rank of a gang calls, and how the driver sends it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, runtime_checkable

from partwise.engine.outcome import Produced
from partwise.engine.works import check_metrics, produce_model
from partwise.models.serdes import ModelSerde
from partwise.outcomes import PartitionStatus, Result
from partwise.processes.starting import describe_exit
from partwise.ranks.context import RankContext
from partwise.ranks.protocols import Exchange, RankRows
from partwise.shuffle.shared_folder import SharedFolder


class RankEnded(Exception):  # noqa: N818 (a program ends in many ways)
    """The rank ends as a program did that it has run: what that wrote says why.

    Args:
        exit_code: Of the program, as `subprocess` gives it; not 0.
    """

    def __init__(self, exit_code: int) -> None:
        super().__init__(describe_exit(exit_code))
        self.exit_code = exit_code


class RankWork(Protocol):
    """What a rank does; a value that cloudpickle can send."""

    def __call__(self, context: RankContext, directory: str) -> Produced:
        """Work as one rank; files that are to be kept are written to `directory`."""


@runtime_checkable
class StagedWork(Protocol):
    """A work of which something has to lie where the ranks see it."""

    def staged(self, folder: SharedFolder) -> RankWork:
        """Return the work as it is sent to the ranks; called by the driver."""


class RankSource(Protocol):
    """A source as the driver describes it to the ranks; a value that pickles."""

    def open(self, rank: int, world_size: int, exchange: Exchange, directory: str) -> RankRows:
        """Return the rows as this rank reads them; `directory` is on this machine's disk."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GangPayload:
    """What every rank gets: written once, as cloudpickle bytes that only ranks open."""

    work: RankWork
    sources: Mapping[str, RankSource] = field(default_factory=dict)
    params: Mapping[str, Any] = field(default_factory=dict)
    watched: str = ""
    """The metric that the driver wants to hear of at each step of rank 0; empty: none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainRankWork:
    """Call a trainer or function on every rank, and write the model that rank 0 returns."""

    function: Callable[[RankContext], Any]
    serde: ModelSerde | None = None
    """None: the native serde of the model's type."""

    def __call__(self, context: RankContext, directory: str) -> Produced:
        """Train as one rank.

        Raises:
            SerdeError: The model's type has no native serde, and none was given.
        """
        outcome = self.function(context)
        result = outcome if isinstance(outcome, Result) else Result(outcome)
        # Files of the function's own are a model too, as libraries save it as a folder.
        has_files = any(context.model_directory.iterdir())
        if context.rank == 0 and not (result.model is None and has_files):
            produced = produce_model(outcome, self.serde, directory)
        else:
            metrics = check_metrics(result.metrics)
            produced = Produced(status=PartitionStatus.DONE, metrics=metrics)
        return replace(produced, files=dict(context.files) if context.rank == 0 else {})
