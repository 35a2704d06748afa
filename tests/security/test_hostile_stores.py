"""Stores that somebody else wrote: nothing runs, nothing is written or called, and a sentence."""

from pathlib import Path

import pytest

from tests.security.hostile_stores import SUBJECTS, Case, hostile_cases, try_case
from tests.thoroughness import THOROUGH

FOUND = (
    Case(seed=11, number=88, subject="manifest"),
    Case(seed=7, number=30, subject="index"),
    Case(seed=7, number=62, subject="index"),
    Case(seed=7, number=53, subject="ledger"),
    Case(seed=7, number=152, subject="manifest"),
    Case(seed=7, number=879, subject="raw"),
    Case(seed=7, number=770, subject="summary"),
    Case(seed=7, number=858, subject="sent"),
    Case(seed=7, number=954, subject="sent"),
)
"""A schema that was none, numbers for entries and files of an index, no shard, a part without a
path, a status that there is not, a path that is too long or has a NUL: each raised an error
that is not ours. Of a large manifest without members 18 copies were made.
"""


GENERATED = hostile_cases(seed=7, count=len(SUBJECTS))


@pytest.mark.parametrize(
    "case",
    [*FOUND, *(pytest.param(case, marks=pytest.mark.slow) for case in GENERATED)],
    ids=str,
)
def test_a_hostile_store_is_refused_in_a_sentence(case, tmp_path: Path) -> None:
    outcome = try_case(case, tmp_path / "case")
    assert outcome.is_harmless, outcome


@pytest.mark.slow
def test_more_of_them(tmp_path: Path) -> None:
    harmful = []
    for case in hostile_cases(seed=11, count=(10 if THOROUGH else 3) * len(SUBJECTS)):
        outcome = try_case(case, tmp_path / "case")
        harmful += [] if outcome.is_harmless else [outcome]
    assert harmful == []


@pytest.mark.slow
def test_the_command_line_of_a_new_process_too(tmp_path: Path) -> None:
    for case in [each for each in hostile_cases(13, len(SUBJECTS)) if each.subject == "call"]:
        outcome = try_case(case, tmp_path / "case", commands=True)
        assert outcome.is_harmless, outcome
