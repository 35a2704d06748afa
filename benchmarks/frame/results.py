"""Write what was found: goals met or missed, a table and a plot of each row, the machine."""

import json
import os
import platform
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path

import psutil

from benchmarks.frame.measure import Measured, Result
from benchmarks.frame.row import ROOT, Figures, Goal

BAR = 40
"""The longest bar of a plot, in letters. Text can be read anywhere, and git compares it."""

BUSY = 0.25
"""From this load of each core on, figures are not for comparison."""

PACKAGES = (
    *("prefect", "dask", "distributed", "lightgbm", "xgboost", "numpy", "pandas", "pyarrow"),
    *("joblib", "polars", "onnxruntime", "torch", "optuna"),
    *("ray", "pyspark", "statsforecast", "mlforecast"),
)
LIST = (
    "import importlib.metadata as m, json;"
    "print(json.dumps({d.metadata['Name'].lower(): d.version for d in m.distributions()}))"
)


def results_page(
    results: Sequence[Result], command: str, machine: Sequence[str], peers: Path | None
) -> str:
    """Return the page, as Markdown.

    Args:
        results: Of each row.
        command: What measured them.
        machine: What `machine_now` said before the first row.
        peers: The Python of the others.
    """
    parts = [
        [f"# Results of `{command}`", "", *machine],
        ["## Goals", "", *_goals(results)],
        *(list(_row(result)) for result in results),
        ["## Versions", "", *_versions(peers)],
    ]
    return "\n\n".join("\n".join(part) for part in parts) + "\n"


def machine_now(*, quick: bool) -> Sequence[str]:
    """Return lines about the machine, how busy it is, and how figures are to be read."""
    load, cores = os.getloadavg()[0], os.cpu_count() or 1
    memory = psutil.virtual_memory()
    busy = ": **the machine was not idle, so compare these figures with nothing**"
    lines = [
        f"- {datetime.now(UTC):%d %B %Y, %H:%M} UTC, commit {_commit()}",
        (
            f"- {cores} cores ({_processor()}), {memory.total / 2**30:.0f} GiB of memory of which "
            f"{memory.available / 2**30:.0f} were free; {platform.system()} {platform.release()}, "
            f"Python {platform.python_version()}"
        ),
        f"- load {load:.2f} as it began{busy * (load > BUSY * cores)}",
        "",
        (
            "Seconds are those of whole processes, from start to end, imports included; each is "
            "the median of the turns, which contestants take one after the other. CPU is that of "
            "a process and of those that it waited for."
        ),
    ]
    if quick:
        lines += ["", "Goals are those of full sizes: with less of all, what is fixed weighs more."]
    return lines


def _commit() -> str:
    words = ["git", "describe", "--always", "--dirty", "--exclude", "*"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())


def _goals(results: Sequence[Result]) -> Iterator[str]:
    yield "| row | goal, at most | found | found / goal | |"
    yield "|---|---|---|---|---|"
    for result in results:
        figures = {each.contestant.name: each.medians for each in result.measured if each.turns}
        title = result.row.title
        for goal in result.row.goals:
            yield f"| {title} | {goal.text}: {goal.most:.4g} | {_verdict(goal, figures)} |"


def _verdict(goal: Goal, figures: Figures) -> str:
    try:
        found = goal.found(figures)
    except KeyError:
        return "| | not measured"
    met = "met" if found <= goal.most else "**missed**"
    return f"{found:.4g} | {found / goal.most:.2f} | {met}"


def _row(result: Result) -> Iterator[str]:
    row = result.row
    yield f"## {row.title}"
    yield ""
    yield f"{row.work} Load {result.load:.2f} as it began."
    yield ""
    if result.why_not:
        yield f"Not measured: {result.why_not}."
        return
    yield "| | seconds | turns | CPU | keeps | more |"
    yield "|---|---|---|---|---|---|"
    for each in result.measured:
        yield _line(each)
    plot = list(_plot(result))
    if plot:
        yield ""
        yield "```text"
        yield from plot
        yield "```"


def _line(each: Measured) -> str:
    name, keeps = each.contestant.name, each.contestant.keeps
    if name.startswith("partwise"):
        name = f"**{name}**"
    if not each.turns:
        return f"| {name} | | | | {keeps} | not there: {each.why_not} |"
    medians = each.medians
    turns = ", ".join(f"{turn.seconds:.2f}" for turn in each.turns)
    more = [f"{key} {value:,.4g}" for key, value in medians.items() if "seconds" not in key]
    more += [f"a turn failed: {each.why_not}"] * bool(each.why_not)
    return (
        f"| {name} | {medians['seconds']:.2f} | {turns} | {medians['CPU seconds']:.2f} | {keeps} "
        f"| {'; '.join(more)} |"
    )


def _plot(result: Result) -> Iterator[str]:
    figures = {
        each.contestant.name: each.medians[result.row.shown]
        for each in result.measured
        if result.row.shown in each.medians
    }
    largest = max(figures.values(), default=0.0)
    if largest <= 0:
        return
    width = max(map(len, figures))
    yield result.row.shown
    for name, value in sorted(figures.items(), key=lambda pair: pair[1]):
        yield f"{name:<{width}}  {'█' * max(1, round(BAR * value / largest))} {value:,.4g}"


def _versions(peers: Path | None) -> Iterator[str]:
    own = {each.metadata["Name"].lower(): each.version for each in metadata.distributions()}
    theirs = _listed(peers) if peers else {}
    yield "| | our environment | that of the peers |"
    yield "|---|---|---|"
    for name in PACKAGES:
        if name in own or name in theirs:
            yield f"| {name} | {own.get(name, '')} | {theirs.get(name, '')} |"


def _listed(python: Path) -> Mapping[str, str]:
    done = subprocess.run([python, "-c", LIST], capture_output=True, text=True, check=True)
    found: dict[str, str] = json.loads(done.stdout)
    return found
