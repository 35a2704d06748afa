"""Networks that break between hosts, for a moment or for ever, while a run is at work on them."""

import itertools
import random
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.chaos.conftest import MINUTES, Experiment
from tests.hosts.cuts import FOR_EVER, MOMENTS, Cut, End, Trial, ground

pytestmark = [
    pytest.mark.slow,
    pytest.mark.usefixtures("ip"),
    pytest.mark.skipif(not MINUTES, reason="it takes minutes where the machine has other work"),
]

CUTS = {
    cut.name: cut
    for cut in (
        Cut(ends=("driver", "scheduler"), stated_s=45),
        Cut(ends=("scheduler", "one"), stated_s=120),
        Cut(ends=("one", "two"), stated_s=60),
        Cut(ends=("one", "store"), stated_s=120),
        Cut(ends=("driver", "store"), stated_s=240),
        Cut(ends=("one",), stated_s=120),
        Cut(ends=("scheduler",), stated_s=45),
    )
}
SECONDS = (2.0, 30.0, 120.0, FOR_EVER)
LANES = 4
"""Networks at once, where it is tried for long: most of a trial is waiting."""
SHORT = (
    Trial(cut=CUTS["driver-scheduler"], moment="after a third", seconds=FOR_EVER),
    Trial(cut=CUTS["scheduler-one"], moment="at the first", seconds=2.0),
)


def trials(chance: random.Random) -> Iterator[Trial]:
    """Give all there are, drawn in some order, again and again."""
    kinds = [
        Trial(cut=cut, moment=moment, seconds=seconds)
        for cut, moment, seconds in itertools.product(CUTS.values(), MOMENTS, SECONDS)
        # A host that has vanished does not come back.
        if len(cut.ends) > 1 or seconds == FOR_EVER
    ]
    while True:
        yield from chance.sample(kinds, len(kinds))


def play(experiment: Experiment, folder: Path) -> list[tuple[Trial, End]]:
    """Play trials on several networks for as long as there is time; the short ones at least."""
    deadline = time.monotonic() + experiment.seconds
    drawn, lock = itertools.chain(SHORT, trials(experiment.chance)), threading.Lock()
    found: list[tuple[Trial, End]] = []

    def play_some(lane: int) -> None:
        with ground(folder / str(lane)) as made:
            while True:
                with lock:
                    if len(taken) >= len(SHORT) and time.monotonic() > deadline:
                        return
                    taken.append(trial := next(drawn))
                found.append((trial, made.play(trial)))

    taken: list[Trial] = []
    lanes = LANES if experiment.seconds else 1
    with ThreadPoolExecutor(lanes) as pool:
        list(pool.map(play_some, range(lanes)))
    return found


def test_a_broken_network_loses_no_model(experiment: Experiment, tmp_path: Path) -> None:
    ends = defaultdict[tuple[str, float], list[tuple[Trial, End]]](list)
    for trial, end in play(experiment, tmp_path / "networks"):
        ends[trial.cut.name, trial.seconds].append((trial, end))
    # What was lost comes last: the table stops behind it.
    for (name, seconds), each in sorted(ends.items(), key=lambda one: any_wrong(one[1])):
        experiment.tell(
            "G21",
            tried=len(each),
            lost=any_wrong(each),
            what=f"{name} {'for ever' if seconds == FOR_EVER else f'{seconds:.0f} s'}: "
            + describe(each),
        )


def any_wrong(ends: list[tuple[Trial, End]]) -> int:
    """Return in how many trials something was wrong."""
    return sum(bool(end.wrong) for _, end in ends)


def describe(ends: list[tuple[Trial, End]]) -> str:
    """Say how they ended, at which moments, and what was wrong."""
    went_on = sum(not end.said for _, end in ends)
    moments = Counter(trial.moment for trial, _ in ends)
    worst, twice = max(end.took_s for _, end in ends), sum(end.twice for _, end in ends)
    wrong = [f"; {trial.moment}: {each}" for trial, end in ends for each in end.wrong]
    return (
        f"{went_on} went on, {len(ends) - went_on} ended with a sentence, the last after "
        f"{worst:.0f} s; {twice} models trained by two workers at once; "
        + ", ".join(f"{count} {moment}" for moment, count in sorted(moments.items()))
        + "".join(wrong)
    )
