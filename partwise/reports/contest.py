"""What a comparison of candidates came to, for people: who won, who lost, and where by most."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from partwise.catalogs.contest import Contest
from partwise.formatting import counted, number
from partwise.reports.comparison import Better, metric_change
from partwise.reports.comparison_page import MetricPicture, picture_of
from partwise.runs.metrics import median
from partwise.runs.run import Run

SURE = 0.999
"""What counts as beyond luck in a report; a rule says its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateLine:
    """A candidate over all keys."""

    name: str
    won: int
    """Keys of which it is the best."""
    valued: int
    """Keys on which it has a value."""
    median: str
    failed: int
    lost_rows: int
    lost_keys: int
    """On how many keys it lost rows."""
    seen: int
    """Keys whose very rows it was trained on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Duel:
    """A candidate against the first one."""

    picture: MetricPicture
    surely_better: int
    """Keys on which it is better beyond luck."""
    surely_worse: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ContestReport:
    """A comparison in words and pictures."""

    metric: str
    candidates: tuple[CandidateLine, ...]
    undecided: int
    """Keys that nobody won."""
    rows: int
    """That count, over all keys."""
    unlabelled: int
    duels: tuple[Duel, ...]
    warnings: tuple[str, ...]


def describe_contest(run: Run, key_of: Callable[[int], str]) -> ContestReport | None:
    """Describe what a run of compare_models found; None: it is no such run, or has nothing yet."""
    if run.kind != "compare" or not run.ledger.num_rows:
        return None
    contest = Contest.of(run)
    lines = tuple(_line(contest, place) for place in range(len(contest.references)))
    return ContestReport(
        metric=contest.metric,
        candidates=lines,
        undecided=int((contest.winners < 0).sum()),
        rows=int(contest.rows.sum()),
        unlabelled=int(contest.unlabelled.sum()),
        duels=tuple(_duel(contest, place, key_of) for place in range(1, len(lines))),
        warnings=tuple(_warnings(contest, lines)),
    )


def _line(contest: Contest, place: int) -> CandidateLine:
    values = contest.values[:, place]
    values = values[np.isfinite(values)]
    return CandidateLine(
        name=contest.candidates[place],
        won=int((contest.winners == place).sum()),
        valued=len(values),
        median=number(median(values)) if len(values) else "",
        failed=int(contest.failed[:, place].sum()),
        lost_rows=int(contest.lost[:, place].sum()),
        lost_keys=int((contest.lost[:, place] > 0).sum()),
        seen=int(contest.seen[:, place].sum()),
    )


def _duel(contest: Contest, place: int, key_of: Callable[[int], str]) -> Duel:
    first, second = contest.values[:, 0], contest.values[:, place]
    both = np.flatnonzero(np.isfinite(first) & np.isfinite(second))
    better: Better = "higher" if contest.maximized else "lower"
    sure = contest.confidences[:, place, 0]
    return Duel(
        picture=picture_of(
            metric_change(contest.metric, first, second, better),
            key_of,
            both,
            first[both],
            second[both],
            (contest.candidates[0], contest.candidates[place]),
        ),
        surely_better=int((sure >= SURE).sum()),
        surely_worse=int((sure <= 1 - SURE).sum()),
    )


def _warnings(contest: Contest, lines: tuple[CandidateLine, ...]) -> list[str]:
    found = [
        f"{line.name} was trained on the very rows of {counted(line.seen, 'key')}, on which it "
        "cannot win."
        for line in lines
        if line.seen
    ]
    found += [
        f"{line.name} gave no finite number for {counted(line.lost_rows, 'row')} of "
        f"{counted(line.lost_keys, 'key')}: these rows count for nobody."
        for line in lines
        if line.lost_rows
    ]
    if unlabelled := int(contest.unlabelled.sum()):
        found.append(f"{counted(unlabelled, 'row')} without a label did not count.")
    return found
