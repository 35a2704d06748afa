"""`make bench` writes a page of what it found, also of what could not be run."""

import importlib
import sys
from pathlib import Path

import pytest

from benchmarks.bench import ROWS
from benchmarks.frame.measure import measure
from benchmarks.frame.results import about_machine, results_page
from benchmarks.frame.row import OUT, Contestant, Goal, NotThereError, Place, Row, ratio

FIGURES = "print('a line'); print('{\"models\": 7, \"parts\": 2}')"


def contestant(name: str, code: str, **more) -> Contestant:
    return Contestant(name, [sys.executable, "-c", f"import sys; {code}", OUT], **more)


@pytest.fixture(autouse=True)
def others(monkeypatch):
    monkeypatch.setattr("psutil.cpu_percent", lambda interval: 95.0)


def lines_of(*rows: Row) -> list[str]:
    results = [measure(row) for row in rows]
    about = about_machine(quick=True)
    return results_page(results, "make bench", about, Path(sys.executable), "").splitlines()


def test_a_page_says_which_goals_are_met():
    row = Row(
        title="Words",
        work="Something is said.",
        contestants=[
            contestant("partwise", FIGURES, keeps="a run"),
            contestant("another", "open(sys.argv[1] + '/kept', 'x')", turns=1),
        ],
        goals=[
            Goal("models", 7, lambda found: found["partwise"]["models"]),
            Goal("parts", 1, lambda found: found["partwise"]["parts"]),
            Goal("words", 0, lambda found: 0.0),
            Goal("partwise / absent", 1, ratio("partwise", "absent")),
        ],
        shown="models",
        turns=2,
    )
    lines = lines_of(row)
    assert lines[0] == "# Results of `make bench`"
    assert any(
        "others had 95% of the cores as it began: **the machine was not idle" in line
        for line in lines
    )
    assert "| Words | models: 7 | 7 | 1.00 | met |" in lines
    assert "| Words | parts: 1 | 2 | 2.00 | **missed** |" in lines
    assert "| Words | words: 0 | 0 |  | met |" in lines
    assert "| Words | partwise / absent: 1 | | | not measured |" in lines
    (ours,) = (line for line in lines if line.startswith("| **partwise** |"))
    assert ours.endswith("| a run | models 7; parts 2 |")
    seconds, turns = (cell.strip() for cell in ours.split("|")[2:4])
    assert len(turns.split(", ")) == 2
    assert float(seconds) > 0
    (other,) = (line for line in lines if line.startswith("| another |"))
    assert "," not in other
    assert f"partwise  {'█' * 40} 7" in lines
    assert any(line.startswith("| numpy | ") for line in lines)


def test_what_cannot_be_run_says_why_and_stops_nothing():
    def not_there() -> None:
        raise NotThereError("no such data here")

    quick = contestant("partwise", FIGURES)
    row = Row(
        title="Words",
        work="Something is said.",
        contestants=[
            contestant("broken", "raise ValueError('one | two')"),
            Contestant("elsewhere", Place(Path(), quick=True, peers=None).theirs("json.tool")),
            quick,
            contestant("endless", "import time; time.sleep(60)"),
        ],
        turns=2,
        limit_s=1.5,
    )
    absent = Row(title="Data", work="Some.", contestants=[quick], prepare=not_there)
    lines = lines_of(absent, row)
    assert "Not measured: no such data here." in lines
    assert "| broken | | | |  | not there: ended with 1: ValueError: one / two |" in lines
    ends = ("no environment of the peers", "the row's time was over", "did not end within")
    for name, end in zip(("elsewhere", "**partwise**", "endless"), ends, strict=True):
        assert any(line.startswith(f"| {name} |") and end in line for line in lines)


@pytest.mark.parametrize("quick", [True, False])
@pytest.mark.parametrize("name", ROWS)
def test_each_row_names_its_contestants_once(name, quick, tmp_path):
    module = importlib.import_module(f"benchmarks.rows.{name}")
    row = module.row(Place(folder=tmp_path, quick=quick, peers=Path(sys.executable)))
    names = [each.name for each in row.contestants]
    assert len(set(names)) == len(names)
    assert any(name.startswith("partwise") for name in names)
    assert all(each.words for each in row.contestants)
