"""The runs of a store by their age, and those of one deployment, as their IDs tell.

nightly-2026-11-26 and nightly-2026-11-25 differ in numbers alone: the one is a night before the
other.
"""

import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import datetime

from partwise.errors import PartwiseError
from partwise.runs.contents import READ_THREADS, list_runs
from partwise.runs.documents import SummaryDocument
from partwise.runs.run import Run
from partwise.store.store import Store

_MADE_UP = re.compile(r".*-\d{8}-\d{6}-[0-9a-f]{4}([0-9a-f]{4})?")
"""An ID that nobody chose, which says nothing of where a run belongs; 0.1 gave it four digits."""


def last_work(run: Run) -> SummaryDocument | None:
    """Return how the complete generation ended by which readers see a run's newest partitions.

    A resume that found all done has left them as they were, and is passed over; one that has taken
    over what others had done, which were not complete, is not. None: none was complete.
    """
    shown = run.shown
    # As a rule: no other document has to be read.
    if shown is None or shown.executed != 0:
        return shown
    last, before = None, 0
    for end in run.complete_generations():
        if end.executed != 0 or end.generation > before + 1:
            last = end
        before = end.generation
    return last


def newest_runs(
    store: Store, fits: Callable[[Run], bool], is_meant: Callable[[str], bool]
) -> list[Run]:
    """Return the runs that have done a partition and fit, those that did so last first.

    `is_meant` chooses by the ID, before a run is opened. One that cannot be read is left out.
    """

    def ended(run_id: str) -> tuple[datetime, str, Run] | None:
        with suppress(PartwiseError):
            run = Run.open(run_id, store)
            last = last_work(run)
            if run.shown and last and run.shown.counts.get("DONE") and fits(run):
                return last.finished_at, run_id, run
        return None

    names = [each for each in list_runs(store) if is_meant(each)]
    with ThreadPoolExecutor(READ_THREADS) as threads:
        found = [each for each in threads.map(ended, names) if each is not None]
    return [run for *_, run in sorted(found, key=lambda each: each[:2], reverse=True)]


def earlier_runs(run: Run, most: int) -> list[Run]:
    """Return the runs of the same deployment, kind and key before one, the newest first.

    None where its ID has no numbers that could tell nights apart, or nobody chose it.
    """
    is_alike = alike(run.run_id)
    if is_alike is None:
        return []
    own = last_work(run)

    def fits(other: Run) -> bool:
        last = last_work(other)
        is_earlier = own is None or (last is not None and last.finished_at < own.finished_at)
        return is_earlier and (other.kind, other.key_columns) == (run.kind, run.key_columns)

    return newest_runs(run.store, fits, is_alike)[:most]


def alike(run_id: str) -> Callable[[str], bool] | None:
    """Return what tells the IDs that differ from one in their numbers alone.

    None: it has no numbers that could tell nights apart, or nobody chose it.

    Example:
        >>> is_alike = alike("nightly-2026-11-26")
        >>> is_alike("nightly-2026-11-25"), is_alike("nightly")
        (True, False)
    """
    texts = re.split(r"\d+", run_id)
    if len(texts) == 1 or _MADE_UP.fullmatch(run_id):
        return None
    pattern = re.compile(r"\d+".join(map(re.escape, texts)))
    return lambda other: other != run_id and pattern.fullmatch(other) is not None
