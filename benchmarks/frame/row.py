"""What a row of the table is: who does the work, and how good is good enough."""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

Figures = Mapping[str, Mapping[str, float]]
"""The medians, by contestant and by figure. All have `seconds` and `CPU seconds`."""

ROOT = Path(__file__).resolve().parents[2]
OUT = "{out}"
"""Among the words of a command: an empty folder, which is deleted after the turn."""


@dataclass(frozen=True)
class Contestant:
    """A process that does the work; its last line may be figures of its own, as JSON."""

    name: str
    words: Sequence[str]
    keeps: str = ""
    """What is left of the work when it ends."""
    turns: int | None = None
    """Fewer than the others have: for what is slow, or repeats by itself."""
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Goal:
    """The most that a figure may be."""

    text: str
    most: float
    found: Callable[[Figures], float]
    """Raises a KeyError where a figure is not there."""


@dataclass(frozen=True)
class Row:
    """Some work, and those who do it by turns."""

    title: str
    work: str
    contestants: Sequence[Contestant]
    goals: Sequence[Goal] = ()
    shown: str = "seconds"
    """The figure that the plot has."""
    turns: int = 3
    limit_s: float = 900
    """Of all turns together; a contestant that runs into it is ended."""
    prepare: Callable[[], None] = field(default=lambda: None)
    """Makes what contestants read; its time is not part of theirs."""


class NotThereError(Exception):
    """A row, or some of its contestants, cannot be run here; says why."""


@dataclass(frozen=True)
class Place:
    """Where a row is measured, and at what size."""

    folder: Path
    """For the rows' data; each row has one of its own."""
    quick: bool
    peers: Path | None
    """The Python of the environment of the others."""

    def size(self, full: int, quick: int) -> int:
        """Return how much of something there is."""
        return quick if self.quick else full

    def ours(self, module: str, *words: object) -> Sequence[str]:
        """Return the command that runs a module in our environment."""
        return _words(sys.executable, module, *words)

    def theirs(self, module: str, *words: object) -> Sequence[str]:
        """Return the command that runs a module in the environment of the others."""
        return _words(self.peers or "", module, *words) if self.peers else ()


def _words(python: str | Path, module: str, *words: object) -> Sequence[str]:
    return [str(python), "-m", module, *map(str, words)]


def ratio(first: str, second: str, figure: str = "seconds") -> Callable[[Figures], float]:
    """Return what tells how many times a figure of one is that of another."""
    return lambda found: found[first][figure] / found[second][figure]
