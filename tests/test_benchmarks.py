"""Benchmarks start: none of them is in another's way, and what they import is there."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

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
    assert text.startswith("# Results of `make bench-quick ROWS='slope'`\n")
    assert text.count("| No-op slope | ") == 3
    # On a busy machine the row's time may end before the others have had their turn.
    assert re.search(r"^\| \*\*partwise, few in few shards\*\* \| \d+\.\d\d \|", text, re.MULTILINE)


@pytest.mark.parametrize("name", [name for name in BENCHMARKS if name not in ELSEWHERE])
def test_a_benchmark_says_how_it_is_used(name) -> None:
    ended = subprocess.run(
        [sys.executable, f"benchmarks/{name}", "--help"],
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert "usage:" in ended.stdout
