"""What a night of `lifecycle` decides: which predictions it judges, whether it goes on, what stays.

A night's runs are named after the catalog and its day, so that a night that is called again finds
its own runs, and the next one those of the nights before.
"""

import re
from contextlib import suppress
from dataclasses import dataclass
from datetime import date, timedelta

import numpy as np

from partwise.catalogs.catalog import Catalog
from partwise.catalogs.evaluated import FAILED, NO_MODEL, VERDICTS, WORSE, Evaluated
from partwise.catalogs.retention import in_order_of_removal, named_runs, remove_all_old
from partwise.errors import GateError, InputError, PartwiseError, RunNotFoundError
from partwise.formatting import counted
from partwise.outcomes import RunStatus
from partwise.runs.documents import RUNS, check_stem
from partwise.runs.removal import measure
from partwise.runs.run import Run
from partwise.store.store import Store
from partwise.store.versions import check_name

STAGES = ("evaluate", "train", "compare", "infer")
_ATTENTION = (WORSE, FAILED, NO_MODEL)
"""Verdicts of which somebody is told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Night:
    """A night of a catalog."""

    catalog: str
    day: date

    def run_id(self, stage: str) -> str:
        """Return the name of one of its runs.

        Example:
            >>> Night(catalog="sales", day=date(2026, 11, 26)).run_id("infer")
            'sales-2026-11-26-infer'
        """
        return f"{self.catalog}-{self.day}-{stage}"


def night_of(catalog: str, day: str) -> Night:
    """Return the night of a day, which is ISO text.

    Raises:
        InputError: It is none, or the catalog's name is none of which those of runs can be made.
    """
    check_name(catalog, "catalog")
    try:
        night = Night(catalog=catalog, day=date.fromisoformat(day))
    except ValueError as error:
        raise InputError(f"day is {day!r}: give a date such as 2026-11-26.") from error
    check_stem("catalog", catalog, map(night.run_id, STAGES))
    return night


def judged_night(night: Night, labels_after_days: int, store: Store) -> Night | None:
    """Return the night whose predictions are judged; None: there is none yet.

    It is the newest one with predictions whose labels are there by now.
    """
    until = night.day - timedelta(labels_after_days)
    for earlier in reversed(_nights(night, store)):
        if earlier.day > until or earlier.day >= night.day:
            continue
        try:
            run = Run.open(earlier.run_id("infer"), store)
        except RunNotFoundError:
            continue
        if run.status in (RunStatus.SUCCESS, RunStatus.PARTIAL_FAILURE):
            return earlier
    return None


def _nights(night: Night, store: Store) -> list[Night]:
    """Return the nights of a catalog of which there is any run, the oldest first."""
    stages = "|".join(STAGES)
    name = re.compile(re.escape(night.catalog) + rf"-(\d{{4}}-\d\d-\d\d)-(?:{stages})")
    found = (name.fullmatch(each) for each in store.list_folder(RUNS))
    days = set()
    for match in filter(None, found):
        # A run that somebody has named after a day that there is not is none of a night.
        with suppress(ValueError):
            days.add(date.fromisoformat(match[1]))
    return [Night(catalog=night.catalog, day=day) for day in sorted(days)]


def is_first(night: Night, catalog: Catalog | None) -> bool:
    """Whether the catalog is this night's to make: also where it has made it, and was stopped."""
    if catalog is None:
        return True
    own = night.run_id("train")
    return catalog.version == 1 and {run.run_id for run in catalog.runs} == {own}


def check_gate(evaluated: Evaluated, max_worse_fraction: float) -> None:
    """Refuse to go on where so many keys got worse at once that the rows are more to blame.

    Raises:
        GateError: More than that share of the keys with enough labels got worse.
    """
    verdicts = evaluated.verdicts
    judged = int(np.isin(verdicts, (WORSE, "unknown", "kept")).sum())
    worse = int((verdicts == WORSE).sum())
    if worse > max_worse_fraction * judged:
        raise GateError(
            f"The night stops: {worse:,} of {counted(judged, 'key')} got worse, more than "
            f"max_worse_fraction={max_worse_fraction:g} allows, as the report of "
            f"{evaluated.run_id!r} shows. The champions of before stay in use. Where the rows are "
            "right, call the night again with a larger share."
        )


def describe_night(
    evaluated: Evaluated | None, trained: Run | None, version: str, inferred: Run
) -> str:
    """Return what a night came to, in a few sentences."""
    lines = []
    if evaluated is not None:
        verdicts = evaluated.verdicts
        counts = ((int(np.sum(verdicts == verdict)), VERDICTS[verdict]) for verdict in _ATTENTION)
        lines += [f"{counted(count, 'key')} {words}." for count, words in counts if count]
    if trained is not None:
        lines.append(f"{counted(trained.counts.get('DONE', 0), 'model')} trained.")
    done = inferred.counts.get("DONE", 0)
    lines.append(f"{counted(done, 'key')} inferred by {version}.")
    return " ".join(lines)


def needs_attention(evaluated: Evaluated | None) -> bool:
    """Whether a key fell below its level, or nobody knows: another model answered, or it failed."""
    return evaluated is not None and bool(np.isin(evaluated.verdicts, _ATTENTION).any())


def remove_old_nights(
    night: Night, keep_nights: int, store: Store
) -> tuple[list[str], dict[str, str]]:
    """Remove the runs of all nights but the newest ones, as `old_runs` says what may go.

    Returns:
        Those that went, and why others stay: a version of a catalog draws on them, a run that stays
        uses them, or one that cannot be read may do so, or something works on them.
    """
    old = [each for each in _nights(night, store) if each.day < night.day]
    names = [e.run_id(stage) for e in old[: max(0, len(old) - keep_nights + 1)] for stage in STAGES]
    if not names:
        return [], {}
    found = named_runs(store, set(names).intersection(store.list_folder(RUNS)))
    kept = {each.run_id: each.kept_by for each in found if each.kept_by}
    going = {}
    for run_id in in_order_of_removal(store, found):
        try:
            going[run_id] = measure(store, run_id)
        except PartwiseError as error:
            kept[run_id] = str(error)
    kept |= remove_all_old(store, going)
    return [run_id for run_id in going if run_id not in kept], kept
