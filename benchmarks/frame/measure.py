"""Run contestants by turns, each in a process of its own."""

import json
import os
import re
import resource
import statistics
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import IO

import psutil

from benchmarks.frame.processes import end
from benchmarks.frame.row import OUT, ROOT, Contestant, NotThereError, Row

LOOK_S = 2.0
"""For so long it is looked how busy the machine is."""


@dataclass(frozen=True)
class Turn:
    """What one process took."""

    seconds: float
    figures: Mapping[str, float]


@dataclass(frozen=True)
class Measured:
    """A contestant's turns, or why there are none or fewer."""

    contestant: Contestant
    turns: Sequence[Turn]
    why_not: str = ""

    @property
    def medians(self) -> Mapping[str, float]:
        """The median of each figure."""
        figures = [turn.figures for turn in self.turns]
        names = dict.fromkeys(name for each in figures for name in each)
        return {
            name: statistics.median(each[name] for each in figures if name in each)
            for name in names
        }


@dataclass(frozen=True)
class Result:
    """A row's figures, and how busy the machine was before them."""

    row: Row
    since: datetime
    busy: float
    """The part of the cores that others had just before, from 0 to 1."""
    measured: Sequence[Measured]
    why_not: str = ""


def measure(row: Row) -> Result:
    """Run a row's contestants by turns, within its limit."""
    # Not by the load, which for a minute is that of the row before.
    since, busy = datetime.now(UTC), psutil.cpu_percent(interval=LOOK_S) / 100
    try:
        row.prepare()
    except NotThereError as error:
        return Result(row, since, busy, [], str(error))
    end = time.monotonic() + row.limit_s
    turns: dict[str, list[Turn]] = {each.name: [] for each in row.contestants}
    failed: dict[str, str] = {}
    for number in range(row.turns):
        for each in _order(row.contestants, number):
            if each.name in failed or number >= (each.turns or row.turns):
                continue
            try:
                turns[each.name].append(run_once(each, end - time.monotonic()))
            except NotThereError as error:
                failed[each.name] = str(error)
    measured = [
        Measured(each, turns[each.name], failed.get(each.name, "")) for each in row.contestants
    ]
    return Result(row, since, busy, measured)


def prepare_by(words: Sequence[str], limit_s: float) -> None:
    """Make what contestants read in a process of its own.

    Raises:
        NotThereError: It failed, or did not end in time.
    """
    run_once(Contestant("what comes before", words), limit_s)


def _order(contestants: Sequence[Contestant], turn: int) -> Sequence[Contestant]:
    # Both ways round, as the machine has other work too, which comes and goes.
    return contestants[::-1] if turn % 2 else contestants


def run_once(contestant: Contestant, seconds: float) -> Turn:
    """Run a contestant to its end.

    Raises:
        NotThereError: It cannot be started, fails, or does not end in time.
    """
    if not contestant.words:
        raise NotThereError("there is no environment of the peers: make .venv-peers/stamp")
    if seconds <= 0:
        raise NotThereError("the row's time was over")
    with tempfile.TemporaryDirectory() as name:
        out = Path(name, "out")
        out.mkdir()
        words = [str(out) if word == OUT else word for word in contestant.words]
        with tempfile.TemporaryFile() as said, tempfile.TemporaryFile() as errors:
            before, began = _cpu_s(), time.perf_counter()
            process = subprocess.Popen(
                words,
                cwd=out,
                env=_environment(name) | dict(contestant.environment),
                stdout=said,
                stderr=errors,
            )
            try:
                process.wait(seconds)
            except subprocess.TimeoutExpired:
                end(process)
                raise NotThereError(f"did not end within {seconds:.0f} s") from None
            wall, cpu = time.perf_counter() - began, _cpu_s() - before
            if process.returncode:
                raise NotThereError(f"ended with {process.returncode}: {_reason(errors)}")
            figures = {"seconds": wall, "CPU seconds": cpu}
            return Turn(wall, figures | _own_figures(_lines(said)))


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _environment(scratch: str) -> dict[str, str]:
    # Threads would be more than the cores that each contestant fills with processes.
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    ours = {"PYTHONPATH": str(ROOT), "PREFECT_LOGGING_LEVEL": "ERROR", "TMPDIR": scratch}
    # No run tells a server of itself, unless its contestant starts one. And Python may keep what it
    # has compiled, or each of these processes would compile all that it imports.
    left_out = ("PREFECT_API_URL", "PYTHONDONTWRITEBYTECODE")
    given = {name: value for name, value in os.environ.items() if name not in left_out}
    return given | threads | ours


def _lines(file: IO[bytes]) -> Sequence[str]:
    file.seek(0)
    text = file.read().decode(errors="replace")
    return [line for line in text.splitlines() if line.strip()]


def _reason(errors: IO[bytes]) -> str:
    """Return the last error that was printed, or else the last line."""
    lines = _lines(errors)
    starts = [n for n, line in enumerate(lines) if re.match(r"[\w.]+(Error|Exception)\b", line)]
    last = lines[starts[-1] :] if starts else lines[-1:]
    return " ".join(" ".join(last).split()).replace("|", "/")[:300] or "nothing was said"


def _own_figures(lines: Sequence[str]) -> dict[str, float]:
    try:
        found = json.loads(lines[-1]) if lines else {}
    except ValueError:
        return {}
    if not isinstance(found, dict):
        return {}
    return {name: float(value) for name, value in found.items() if isinstance(value, int | float)}
