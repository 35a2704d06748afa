"""What a rank of a gang knows of itself, of the other ranks, and of its rows."""

import logging
import socket
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa

from partwise.errors import InputError


class Exchange(Protocol):
    """How the ranks of a gang tell each other small things, such as counts and categories."""

    def all_gather(self, content: bytes) -> list[bytes]:
        """Return what every rank has given, in the order of ranks; each has to call it."""


class Share(Protocol):
    """Consecutive rows of a source: those of one rank. They can be read any number of times."""

    schema: pa.Schema
    rows: int
    """How many rows this rank has; 0 where there are fewer row groups than ranks."""
    first_row: int
    """How many rows of the source stand before, at lower ranks."""
    total_rows: int
    """How many rows all ranks have."""

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Read the rows, from the first one again at each call."""


class RankRows(Protocol):
    """The rows of a source, before they are divided among ranks."""

    schema: pa.Schema

    def share(self, *, equal: bool = False, group: str = "", whole: bool = False) -> Share:
        """Divide the rows, and return this rank's; every rank has to call it alike.

        Args:
            equal: Whether all ranks get the same number of rows; what is left over is left out.
            group: A column whose equal neighbours stay on one rank, such as the query of a ranking.
            whole: Whether every rank gets all rows, such as those that a model is measured on.
        """


class Checkpoints(Protocol):
    """Where a gang keeps what it can go on from after a restart."""

    def save(self, write: Callable[[str], None], step: int) -> None:
        """Keep what `write(path of a new folder)` writes, as the newest checkpoint."""

    def latest(self) -> Path | None:
        """Return a local folder with the newest checkpoint; None where there is none."""


@dataclass(frozen=True, kw_only=True)
class RankContext:
    """The argument of a function that runs as one rank of a gang."""

    rank: int
    world_size: int
    local_rank: int = 0
    """Its number among the ranks of its node."""
    local_world_size: int = 1
    node_rank: int = 0
    """The number of its node, which is one Dask worker."""
    attempt: int = 1
    """1 at first, 2 after the first restart of the gang."""
    addresses: tuple[tuple[str, int], ...] = ()
    """Host and reserved port of each rank. The port is bound until `release_port`, but nothing
    listens there; rank 0's is MASTER_PORT."""
    threads: int = 1
    """Threads that this rank may use."""
    gpus: tuple[str, ...] = ()
    """The GPUs that this rank may use, as CUDA_VISIBLE_DEVICES names them."""
    run_id: str = ""
    seed: int = 0
    """The run's; the same on every rank."""
    hyperparameters: Mapping[str, Any] = field(default_factory=dict)
    model_directory: Path = Path()
    """A folder on this machine; what rank 0 leaves there is kept with the run."""
    sources: Mapping[str, RankRows] = field(default_factory=dict)
    exchange: Exchange | None = None
    checkpoints: Checkpoints | None = None
    logger: logging.Logger = field(default_factory=lambda: logging.getLogger("partwise.rank"))
    metrics: dict[str, float] = field(default_factory=dict)
    """What `report` was given last, by name."""
    files: dict[str, bytes] = field(default_factory=dict)
    """Artifacts beside the model: what rank 0 puts here is kept with the run."""
    row_counts: dict[str, int] = field(default_factory=dict)
    """How many rows this rank was given of each source that it asked for."""
    reserved: socket.socket | None = field(default=None, repr=False)
    """What holds this rank's port."""

    def share(
        self,
        name: str = "train",
        *,
        equal: bool = False,
        group: str = "",
        whole: bool = False,
    ) -> Share:
        """Return this rank's rows of a source; every rank has to call it alike.

        Args:
            name: The source's: "train", or a name in the call's `eval_data`.
            equal: Whether all ranks get the same number of rows; what is left over is left out.
            group: A column whose equal neighbours stay on one rank.
            whole: Whether every rank gets all rows.

        Raises:
            InputError: There is no such source.
        """
        if name not in self.sources:
            known = ", ".join(sorted(self.sources)) or "none"
            raise InputError(f"The gang has no rows named {name!r}; there are: {known}.")
        share = self.sources[name].share(equal=equal, group=group, whole=whole)
        self.row_counts[name] = share.rows
        return share

    def rows(self, name: str = "train", *, equal: bool = False) -> Iterator[pa.RecordBatch]:
        """Read this rank's rows of a source, as `share` divides them."""
        return self.share(name, equal=equal).batches()

    def all_gather(self, content: bytes) -> list[bytes]:
        """Return what every rank has given, in the order of ranks; each has to call it."""
        return [content] if self.exchange is None else self.exchange.all_gather(content)

    def barrier(self) -> None:
        """Wait until every rank has come here."""
        self.all_gather(b"")

    def release_port(self) -> tuple[str, int]:
        """Give up this rank's reserved port, for what binds it next, and return its address."""
        if self.reserved is not None:
            self.reserved.close()
        return self.addresses[self.rank]

    def report(self, **metrics: float) -> None:
        """Set metrics of this rank; the newest value of each stands in the ledger."""
        self.metrics.update({name: float(value) for name, value in metrics.items()})


_current: RankContext | None = None


def get_context() -> RankContext:
    """Return the context of the rank that this process is.

    Raises:
        RuntimeError: This process is not a rank of a gang.

    Example:
        >>> get_context().rank  # doctest: +SKIP
        0
    """
    if _current is None:
        raise RuntimeError("get_context() works only in a function that runs as a rank of a gang.")
    return _current


def set_context(context: RankContext | None) -> None:
    """Set what `get_context` returns in this process."""
    global _current
    _current = context
