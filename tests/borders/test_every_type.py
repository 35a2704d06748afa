"""Every type of every library through every border, against Python's own values."""

from collections import Counter
from pathlib import Path

import pytest

from tests.borders.crossing import BORDERS, cross
from tests.borders.database_borders import postgresql_output
from tests.borders.type_borders import read
from tests.borders.types_table import Case, all_cases
from tests.thoroughness import THOROUGH

CASES = all_cases()
EACH = 1000 if THOROUGH else 100
"""Values of each type that cross all borders, where all types do."""
SAMPLED = (19, 80)
"""Of every so many types, so many values: a sample for every run of the tests."""


def crossed(cases: list[Case], count: int, folder: Path) -> Counter[str]:
    """See that values of some types are the same behind all borders, and count them."""
    draws: Counter[str] = Counter()
    wrong = []
    for place, case in enumerate(cases):
        own = folder / str(place)
        own.mkdir()
        found, lines = cross(case, count, own)
        draws[case.library] += found
        wrong += [f"{case.name}: {line}" for line in lines]
    assert not wrong, "\n".join(wrong)
    return draws


def test_a_sample_of_all_types_crosses_all_borders(tmp_path):
    step, count = SAMPLED
    assert crossed(CASES[::step], count, tmp_path).total() >= 2_000


@pytest.mark.slow
def test_many_values_of_all_types_cross_all_borders(tmp_path):
    draws = crossed(CASES, EACH, tmp_path)
    assert draws.total() >= 430 * EACH, draws
    assert set(draws) == {case.library for case in CASES}


@pytest.mark.slow
def test_values_of_all_types_are_the_same_in_postgresql(tmp_path, postgres_server):
    wrong = []
    for place, case in enumerate(case for case in CASES if case.library == "arrow"):
        own = tmp_path / str(place)
        own.mkdir()
        rows = read(case, case.drawn(80), own)
        found = postgresql_output(rows, postgres_server.uri, f"of_type_{place}")
        wrong += [f"{case.name}: {line}" for line in found]
    assert not wrong, "\n".join(wrong)


def test_each_type_stands_once_in_the_table():
    names = Counter(case.name for case in CASES)
    assert max(names.values()) == 1, names.most_common(1)
    assert len(names) * len(BORDERS) >= 3_500
