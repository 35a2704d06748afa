"""Benchmarks start: none of them is in another's way, and what they import is there."""

import json
import os
import re
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from benchmarks.frame.measure import Measured, Result, Turn
from benchmarks.frame.results import about_machine, is_of, results_page
from benchmarks.frame.row import Contestant, Goal, Row

pytestmark = pytest.mark.slow

CHECKOUT = Path(__file__).resolve().parents[1]
BENCHMARKS = sorted(path.name for path in (CHECKOUT / "benchmarks").glob("*.py"))
# Of an environment of its own, which benchmarks/study.py is told.
ELSEWHERE = {"ray_study.py"}


def test_a_row_is_measured_and_written_down(tmp_path) -> None:
    page = tmp_path / "page.md"
    words = ["--quick", "--only", "slope", "--out", str(page)]
    command = [sys.executable, "-m", "benchmarks.bench", *words]
    subprocess.run(command, cwd=CHECKOUT, check=True, capture_output=True, timeout=300)
    text = page.read_text()
    assert text.startswith("# Results of `make bench-quick`\n")
    assert text.count("| No-op slope | ") == 3
    # On a busy machine the row's time may end before the others have had their turn.
    assert re.search(r"^\| \*\*partwise, few in few shards\*\* \| \d+\.\d\d \|", text, re.MULTILINE)


def result(title: str, seconds: float, busy: float = 0.0) -> Result:
    """A row of one contestant and one goal."""
    contestant = Contestant("partwise", ["x"])
    goal = Goal("s", 1.0, lambda found: found["partwise"]["seconds"])
    row = Row(title=title, work="Some work.", contestants=[contestant], goals=[goal])
    turn = Turn(seconds, {"seconds": seconds, "CPU seconds": 0.0})
    return Result(row, datetime.now(UTC), busy, [Measured(contestant, [turn])])


def test_rows_that_are_measured_again_take_their_own_places_and_no_others() -> None:
    about = about_machine(quick=False)
    page = results_page([result("Start", 2.0), result("Skew", 0.5)], "make bench", about, None, "")
    again = results_page([result("Start", 0.25, busy=0.5)], "make bench", about, None, page)
    assert [line for line in again.splitlines() if line.startswith("| S")] == [
        "| Skew | s: 1 | 0.5 | 0.50 | met |",
        "| Start | s: 1 | 0.25 | 0.25 | met |",
    ]
    sections = [text.split("\n## ") for text in (page, again)]
    assert [part[:4] for part in sections[1]][1:] == ["Goal", "Star", "Skew", "Vers"]
    assert sections[0][3] == sections[1][3]
    assert "not idle" not in sections[0][2]
    assert "others had 50% of the cores as it began: **the machine was not idle" in sections[1][2]
    assert is_of(again, about)
    assert not is_of(again.replace(f"{os.cpu_count()} cores", "96 cores"), about)


HELPS = """
import contextlib, io, json, runpy, sys
sys.path.insert(0, "benchmarks")
said = {}
for name in sys.argv[1:]:
    sys.argv, text = [name, "--help"], io.StringIO()
    with contextlib.redirect_stdout(text), contextlib.suppress(SystemExit):
        runpy.run_path(f"benchmarks/{name}", run_name="__main__")
    said[name] = text.getvalue()
print(json.dumps(said))
"""


def test_each_benchmark_says_how_it_is_used() -> None:
    # In one process, as the imports of each take seconds.
    names = [name for name in BENCHMARKS if name not in ELSEWHERE]
    command = [sys.executable, "-c", HELPS, *names]
    ended = subprocess.run(command, cwd=CHECKOUT, check=True, capture_output=True, timeout=300)
    said = json.loads(ended.stdout)
    assert len(said) > 10
    assert [name for name in names if not said[name].startswith(f"usage: {name} ")] == []
