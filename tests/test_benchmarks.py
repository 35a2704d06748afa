"""Benchmarks start: none of them is in another's way, and what they import is there."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

CHECKOUT = Path(__file__).resolve().parents[1]
BENCHMARKS = sorted(path.name for path in (CHECKOUT / "benchmarks").glob("*.py"))
# Of an environment of its own, which benchmarks/study.py is told.
ELSEWHERE = {"ray_study.py"}


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
