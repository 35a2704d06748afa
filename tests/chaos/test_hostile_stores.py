"""Stores that somebody else wrote, before every reader and command."""

import time
from pathlib import Path

import pytest

from tests.chaos.conftest import Experiment, tried_by
from tests.security.hostile_stores import (
    MOST_MEMORY,
    SUBJECTS,
    hostile_cases,
    try_case,
)

pytestmark = pytest.mark.slow
LONG = 1000


@tried_by("security/test_hostile_stores.py")
def test_stores_of_others(experiment: Experiment, tmp_path: Path) -> None:
    deadline = time.monotonic() + experiment.seconds
    tried = refused = 0
    harmful, most = [], 0
    for case in hostile_cases(experiment.seed, LONG):
        if tried >= len(SUBJECTS) and time.monotonic() > deadline:
            break
        outcome = try_case(case, tmp_path / "case")
        tried, refused = tried + 1, refused + outcome.refused
        most = max(most, outcome.memory)
        harmful += [] if outcome.is_harmless else [outcome]
    assert most < MOST_MEMORY
    experiment.tell(
        "G18",
        tried=tried,
        lost=len(harmful),
        what=f"0 run, written outside or called; {refused:,} refusals, +{most >> 20} MiB at most"
        if not harmful
        else f"{harmful[0]}",
    )
