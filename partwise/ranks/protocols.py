"""What a gang gives its ranks: rows, a way to tell each other small things, and checkpoints."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal, Protocol

import pyarrow as pa

Backend = Literal["gloo", "nccl"]
"""What torch exchanges gradients by."""


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

        `equal`: all get the same number of rows, and what is left over is left out. `group`: a
        column whose equal neighbours stay on one rank. `whole`: every rank gets all rows.
        """


class Checkpoints(Protocol):
    """Where a gang keeps what it can go on from after a restart."""

    def save(
        self,
        write: Callable[[Path], object],
        *,
        step: int,
        every_steps: int | None = None,
        every_minutes: float | None = None,
    ) -> bool:
        """Keep what `write(a new folder)` writes, where that is due; rank 0 calls it."""

    def resume_from(self) -> Path | None:
        """Return a local folder with what this attempt goes on from; None: it starts afresh."""
