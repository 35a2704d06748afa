"""Stores that are damaged, and two drivers that work on one run of theirs."""

import itertools
from collections.abc import Callable
from pathlib import Path

import pytest

from partwise.store.store import Store
from tests.chaos.conftest import Experiment, tried_by
from tests.corruption import corruption_trials
from tests.runs.test_two_drivers import CASES, stop_everywhere

pytestmark = pytest.mark.slow


@tried_by("runs/test_verification.py")
def test_damage_is_found_before_it_is_read(
    experiment: Experiment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # With a key and a memory of what was seen, what is missing at the end is found as well.
    monkeypatch.setenv("PARTWISE_SIGNING_KEYS", f"chaos:{'5e' * 32}")
    monkeypatch.setenv("PARTWISE_STATE", str(tmp_path / "state"))
    trials = corruption_trials(experiment.seed, 1_000, tmp_path / "trials")
    wrong = trials.wrong + trials.not_verified
    experiment.tell(
        "G7",
        tried=trials.count,
        lost=len(wrong),
        what=f"{trials.refused} refused by a sentence, {trials.harmless} changed no value"
        + "".join(f"; {each}" for each in wrong),
    )


def new_stores(folder: Path) -> Callable[[], Store]:
    numbers = itertools.count()
    return lambda: Store.parse(folder / str(next(numbers)))


@tried_by("runs/test_two_drivers.py")
def test_two_drivers_leave_one_whole_run(experiment: Experiment, tmp_path: Path) -> None:
    tallies = {case: stop_everywhere(new_stores(tmp_path / case), case, 1) for case in CASES}
    lost = [f"{case}: {point}" for case, tally in tallies.items() for point in tally.lost]
    experiment.tell(
        "G14",
        tried=sum(tally.tried for tally in tallies.values()),
        lost=len(lost),
        what=f"operations before which the first stood still, in {len(CASES)} cases"
        + "".join(f"; {each}" for each in lost),
    )
