"""One seed for all sources of chance, torch included when it is imported late."""

import random
import sys

import numpy as np
import pytest

from partwise.engine.child import seeding as seeding_module
from partwise.engine.child.seeding import Seeding

LATE = "imported_late_by_a_function"


@pytest.fixture
def seeding(monkeypatch):
    monkeypatch.setattr(seeding_module, "SEEDED_ON_IMPORT", LATE)
    python, numbers = random.getstate(), np.random.get_state()
    seeding = Seeding()
    yield seeding
    sys.meta_path.remove(seeding)
    sys.modules.pop(LATE, None)
    random.setstate(python)
    np.random.set_state(numbers)


def draw() -> tuple[float, float]:
    return random.random(), float(np.random.rand())


def test_the_same_seed_gives_the_same_numbers(seeding) -> None:
    seeding.seed_all(7)
    first = draw()
    seeding.seed_all(8)
    assert draw() != first
    seeding.seed_all(7)
    assert draw() == first


@pytest.fixture
def late(tmp_path, monkeypatch) -> str:
    code = "seeds = []\ndef manual_seed(seed):\n    seeds.append(seed)\n"
    (tmp_path / f"{LATE}.py").write_text(code)
    monkeypatch.syspath_prepend(str(tmp_path))
    return LATE


def test_a_library_is_seeded_when_a_function_imports_it(seeding, late) -> None:
    seeding.seed_all(7)
    module = __import__(late)
    assert module.seeds == [7]
    seeding.seed_all(8)
    assert module.seeds == [7, 8]


def test_a_module_of_that_name_without_seeds_is_left_alone(seeding, tmp_path, monkeypatch) -> None:
    (tmp_path / f"{LATE}.py").write_text("value = 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    seeding.seed_all(7)
    assert __import__(LATE).value == 1
    seeding.seed_all(8)


def test_other_imports_are_not_touched(seeding) -> None:
    assert seeding.find_spec("json", None) is None
