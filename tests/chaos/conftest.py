"""Experiments that break things at random, and the table of what was tried and what was lost.

`make chaos SEED=7 MINUTES=5` runs them longer than `make test-slow` does, and prints the table.
"""

import itertools
import os
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

SEED = int(os.environ.get("PARTWISE_CHAOS_SEED", "7"))
MINUTES = float(os.environ.get("PARTWISE_CHAOS_MINUTES", "0"))
"""0: as short as it can be and still be one try of each kind."""

GOALS = {
    "G1": "workers killed and frozen",
    "G2": "drivers killed, then a resume",
    "G3": "scheduler or Prefect server killed",
    "G4": "killed before each kind of write",
    "G5": "a bucket that fails",
    "G6": "answers of a bucket that are lost",
    "G7": "files changed, cut, exchanged",
    "G8": "processes that want one run",
    "G9": "disks full, read-only, gone",
    "G10": "functions that do their worst",
    "G11": "a partition that never ends",
    "G12": "cancelled beside frozen processes",
    "G13": "many partitions",
    "G14": "two drivers on one run",
    "G15": "garbage collections beside writers and readers",
    "G16": "clocks that are wrong",
    "G17": "runs of earlier formats",
    "G18": "stores that somebody else wrote",
    "G19": "guards of the code taken out",
    "G20": "secrets in errors, logs and documents",
    "G21": "networks that break",
    "G22": "nights of a catalog, killed or begun twice",
    "G23": "any process of a run of any kind killed",
    "G24": "connections to the scheduler closed",
}


@dataclass(frozen=True, kw_only=True)
class Line:
    """A line of the table: what was tried of a goal, and how often something was lost."""

    goal: str
    tried: int
    lost: int
    what: str


@dataclass
class Experiment:
    """What an experiment is given: its own chance, its time, and a place for what it found."""

    name: str
    seed: int = SEED
    lines: list[Line] = field(default_factory=list)

    @property
    def chance(self) -> random.Random:
        """Of this experiment: the same for the same seed, whatever else is run."""
        return random.Random(f"{self.seed} {self.name}")

    @property
    def seconds(self) -> float:
        """How long to go on trying, once each kind was tried; 0: not at all."""
        return MINUTES * 60 / TIMED

    def tries(self, least: int) -> Iterator[int]:
        """Give 1, 2 and so on: so many at least, and for as long as there is time."""
        deadline = time.monotonic() + self.seconds
        for number in itertools.count(1):
            if number > least and time.monotonic() > deadline:
                return
            yield number

    def tell(self, goal: str, *, tried: int, lost: int, what: str) -> None:
        """Add a line to the table, and fail where something was lost.

        Args:
            goal: Its number, such as "G2".
            tried: How often.
            lost: How often something went wrong that must not.
            what: A few words on what was tried, with figures.
        """
        self.lines.append(Line(goal=goal, tried=tried, lost=lost, what=what))
        assert tried > 0, f"{goal}: nothing was tried"
        assert lost == 0, f"{goal}: {lost} of {tried} were lost: {what}"


def tried_by(test: str) -> pytest.MarkDecorator:
    """Leave an experiment to a test that tries each kind of it as often, where no time is given."""
    return pytest.mark.skipif(not MINUTES, reason=f"{test} tries the same where there is no time")


TIMED = 15
"""How many experiments go on for as long as they are given."""
_FOUND: list[Line] = []


@pytest.fixture
def experiment(request: pytest.FixtureRequest) -> Iterator[Experiment]:
    """The experiment that the test is."""
    made = Experiment(name=request.node.nodeid)
    yield made
    _FOUND.extend(made.lines)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the table of what was tried."""
    if not MINUTES:
        return
    write = terminalreporter.write_line
    write("")
    write(f"seed {SEED}, {MINUTES:g} minutes for what goes on as long as it is given")
    write(f"{'goal':5} {'':46} {'tried':>7} {'lost':>5}  of that")
    order = list(GOALS)
    for line in sorted(_FOUND, key=lambda line: order.index(line.goal)):
        write(f"{line.goal:5} {GOALS[line.goal]:46} {line.tried:7,} {line.lost:5,}  {line.what}")
    for goal in sorted(set(GOALS) - {line.goal for line in _FOUND}, key=order.index):
        write(f"{goal:5} {GOALS[goal]:46} not tried: its experiment failed before, or was left out")
