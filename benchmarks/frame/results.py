"""Write what was found: goals met or missed, a table and a plot of each row, the machine."""

import functools
import json
import os
import platform
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from importlib import metadata
from pathlib import Path

import psutil

from benchmarks.frame.measure import Measured, Result
from benchmarks.frame.row import ROOT, Figures, Goal

BAR = 40
"""The longest bar of a plot, in letters. Text can be read anywhere, and git compares it."""

BUSY = 0.1
"""From this part of the cores on that others have, figures are not for comparison."""

_NO_PAGES = (":!benchmarks/RESULTS.md", ":!benchmarks/RESULTS-quick.md")
"""All files of the checkout but those that are written here."""

PACKAGES = (
    *("prefect", "dask", "distributed", "lightgbm", "xgboost", "numpy", "pandas", "pyarrow"),
    *("joblib", "polars", "onnxruntime", "torch", "optuna"),
    *("ray", "pyspark", "statsforecast", "mlforecast"),
)
LIST = (
    "import importlib.metadata as m, json;"
    "print(json.dumps({d.metadata['Name'].lower(): d.version for d in m.distributions()}))"
)


GOALS, VERSIONS = "Goals", "Versions"
"""The sections that are of all rows."""


def results_page(
    results: Sequence[Result], command: str, about: Sequence[str], peers: Path | None, earlier: str
) -> str:
    """Return the page, as Markdown.

    Args:
        results: Of the rows that were measured now.
        command: What measures all rows.
        about: What `about_machine` says.
        peers: The Python of the others.
        earlier: The page that was there, whose other rows stay; empty: there was none.
    """
    sections = _sections(earlier)
    goals = [line for line in sections.pop(GOALS, []) if line.startswith("| ")][1:]
    sections.pop(VERSIONS, None)
    for result in results:
        title = result.row.title
        goals = [line for line in goals if not line.startswith(f"| {title} |")]
        goals += _goals(result)
        sections[title] = list(_row(result))
    table = ["| row | goal, at most | found | found / goal | |", "|---|---|---|---|---|"]
    parts = [
        [f"# Results of `{command}`", "", *about],
        [f"## {GOALS}", "", *table, *goals],
        *([f"## {title}", "", *lines] for title, lines in sections.items()),
        [f"## {VERSIONS}", "", *_versions(peers)],
    ]
    return "\n\n".join("\n".join(part) for part in parts) + "\n"


def _sections(page: str) -> dict[str, list[str]]:
    """Return the lines of each section of a page, by its title."""
    _, *parts = page.split("\n## ")
    titles = ((part.partition("\n")[0], part.partition("\n")[2].strip()) for part in parts)
    return {title: text.splitlines() for title, text in titles}


def about_machine(*, quick: bool) -> Sequence[str]:
    """Return lines about the machine, and about how figures are to be read."""
    memory = psutil.virtual_memory().total / 2**30
    lines = [
        (
            f"{os.cpu_count()} cores ({_processor()}), {memory:.0f} GiB of memory; "
            f"{platform.system()} {platform.release()}, Python {platform.python_version()}."
        ),
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


def is_of(page: str, about: Sequence[str]) -> bool:
    """Whether a page is of the same machine, so that rows of both can stand side by side."""
    return about[0] in page.splitlines()


@functools.cache  # at the first row, since the page itself is a file of the checkout
def _commit() -> str:
    def git(*words: str) -> str:
        done = subprocess.run(
            ["git", *words], cwd=ROOT, capture_output=True, text=True, check=False
        )
        return done.stdout.strip()

    # With rows of another call in it, the page has changed, and what is measured has not.
    changed = git("status", "--porcelain", "--untracked-files=no", "--", ".", *_NO_PAGES)
    return (git("rev-parse", "--short", "HEAD") or "unknown") + ("-dirty" if changed else "")


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())


def _goals(result: Result) -> Iterator[str]:
    figures = {each.contestant.name: each.medians for each in result.measured if each.turns}
    for goal in result.row.goals:
        text = f"{goal.text}: {goal.most:.4g}"
        yield f"| {result.row.title} | {text} | {_verdict(goal, figures)} |"


def _verdict(goal: Goal, figures: Figures) -> str:
    try:
        found = goal.found(figures)
    except KeyError:
        return "| | not measured"
    met = "met" if found <= goal.most else "**missed**"
    times = f"{found / goal.most:.2f}" if goal.most else ""
    return f"{found:.4g} | {times} | {met}"


def _row(result: Result) -> Iterator[str]:
    busy = ": **the machine was not idle, so compare these figures with nothing**"
    yield result.row.work
    yield ""
    yield (
        f"{result.since:%d %B %Y, %H:%M} UTC, commit {_commit()}; others had {result.busy:.0%} of "
        f"the cores as it began{busy * (result.busy > BUSY)}."
    )
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
