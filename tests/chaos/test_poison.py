"""A hundredth of the partitions do their worst: they fail, each for its reason, and no other."""

import time
from collections import Counter
from pathlib import Path

import pytest

from tests.chaos.conftest import Experiment
from tests.chaos.poison import run_poison

pytestmark = pytest.mark.slow

PARTITIONS = 1200


def test_only_poisoned_partitions_fail(experiment: Experiment, tmp_path: Path) -> None:
    chance = experiment.chance
    poisoned: Counter[str] = Counter()
    wrong: list[str] = []
    deadline = time.monotonic() + experiment.seconds
    rounds = 0
    while rounds == 0 or time.monotonic() < deadline:
        isolation = ("shared", "partition")[rounds % 2]
        seed = chance.randrange(1 << 30)
        counts = run_poison(seed, PARTITIONS, tmp_path / f"round-{rounds}", isolation)
        poisoned += counts.poisoned
        wrong += [*counts.wrong, *counts.left]
        rounds += 1
    experiment.tell(
        "G10",
        tried=poisoned.total(),
        lost=len(wrong),
        what=f"{len(poisoned)} kinds among {rounds * PARTITIONS:,} partitions"
        + "".join(f"; {each}" for each in wrong[:5]),
    )
