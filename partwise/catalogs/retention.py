"""Old runs of a store: which of them may go, and what keeps the others.

Those go that are neither among the newest of their kind, nor young, nor at work, nor held by a
version of a catalog, nor used by a run that stays, as one that cannot be read may do.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from fnmatch import fnmatchcase

from partwise.errors import InputError, PartwiseError
from partwise.formatting import counted
from partwise.runs.contents import READ_THREADS, list_runs
from partwise.runs.documents import RUNS, is_run_id, run_path
from partwise.runs.garbage import Garbage, collect_garbage
from partwise.runs.holds import holders_of
from partwise.runs.kinds import RunKind
from partwise.runs.removal import Removal, Uses, all_uses, measure, remove_run
from partwise.runs.run import Run
from partwise.store.lease import held_claim
from partwise.store.store import Store

_SHOWN = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class OldRun:
    """A run that is old enough to go."""

    run_id: str
    kind: RunKind | None
    """None: it cannot be read."""
    at: datetime | None
    """When it ended, or, where it has no end, began."""
    kept_by: str = ""
    """Why it stays; empty: it goes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunGarbage:
    """Files of a run that stays to which nothing refers."""

    run_id: str
    garbage: Garbage | None
    """None: it cannot be told now."""
    why: str = ""


def old_runs(
    store: Store,
    *,
    keep: int,
    before: datetime,
    pattern: str = "*",
    freed: Collection[str] = (),
) -> list[OldRun]:
    """Return the runs that are old enough to go, the oldest first; each says what keeps it.

    Args:
        store: The store.
        keep: How many of the newest runs of each kind stay in any case, of those of the pattern.
        before: Only those go that ended before.
        pattern: Only those go whose ID is of this pattern, such as "nightly-*".
        freed: Paths of holds that do not count: of versions of catalogs that go too.
    """
    if keep < 1:
        raise InputError(f"keep is {keep}; the newest run of each kind stays: give 1 or more.")
    there = list_runs(store)
    names = [each for each in there if fnmatchcase(each, pattern)]
    removed = [each for each in store.list_folder(RUNS) if fnmatchcase(each, pattern)]
    removed = [each for each in removed if is_run_id(each) and each not in set(there)]
    with ThreadPoolExecutor(READ_THREADS) as threads:
        found = list(threads.map(lambda name: _look(store, name), names))
        halves = [each for each in threads.map(lambda n: _half_removed(store, n), removed) if each]
    readable = [each for each in found if each.at is not None]
    readable.sort(key=lambda each: (each.at, each.run_id))
    by_kind: dict[RunKind | None, list[OldRun]] = {}
    for each in readable:
        by_kind.setdefault(each.kind, []).append(each)
    young = {each.run_id for runs in by_kind.values() for each in runs[-keep:]}
    old = [each for each in readable if each.run_id not in young and each.at and each.at < before]
    unread = [each for each in found if each.at is None]
    with ThreadPoolExecutor(READ_THREADS) as threads:
        held = threads.map(lambda each: _held_by(store, each, freed), old)
        reasons = {each.run_id: why for each, why in zip(old, held, strict=True)}
    _keep_used(reasons, all_uses(store))
    kept = [
        OldRun(run_id=each.run_id, kind=each.kind, at=each.at, kept_by=reasons[each.run_id])
        for each in old
    ]
    return [*unread, *halves, *kept]


def _half_removed(store: Store, run_id: str) -> OldRun | None:
    """Return a run whose removal was interrupted: it goes, however old it is."""
    try:
        run = Run.find(run_id, store)
        if run.is_removed and measure(store, run_id).files:
            return OldRun(run_id=run_id, kind=run.kind, at=run.document.created_at)
    except PartwiseError:
        pass  # Nothing is left of it, or it was never begun.
    return None


def _look(store: Store, run_id: str) -> OldRun:
    try:
        run = Run.open(run_id, store)
        at = run.document.created_at
        if run.summary is not None:
            at = run.summary.finished_at
        elif run.generation:
            at = run.read_generation_document().started_at
        return OldRun(run_id=run_id, kind=run.kind, at=at)
    except PartwiseError as error:
        return OldRun(run_id=run_id, kind=None, at=None, kept_by=f"it cannot be read: {error}")


def _held_by(store: Store, run: OldRun, freed: Collection[str]) -> str:
    """Return why a run stays by itself; empty: nothing keeps it."""
    if held_claim(store, run_path(run.run_id)):
        return "a process works on it"
    try:
        holders = holders_of(store, run.run_id, freed)
    except PartwiseError as error:
        return str(error)
    return f"{_some(holders)} {'draws' if len(holders) == 1 else 'draw'} on it" if holders else ""


def _keep_used(reasons: dict[str, str], uses: Uses) -> None:
    """Write down of each run that goes whether one that stays uses it, until that keeps no more."""
    while True:
        going = {run_id for run_id, why in reasons.items() if not why}
        used = {run_id: why for run_id in going if (why := _used_by(run_id, uses, going))}
        if not used:
            return
        reasons |= used


def _used_by(run_id: str, uses: Uses, going: Collection[str]) -> str:
    """Return which runs that stay keep one; empty: none does."""
    if names := sorted({use.run_id for use in uses.of.get(run_id, ())}.difference(going)):
        return f"{_some(names)} {'uses' if len(names) == 1 else 'use'} it"
    if unread := sorted(set(uses.unread).difference(going)):
        return f"{_some(unread)} cannot be read, and may use it"
    return ""


def _some(names: Sequence[str]) -> str:
    more = f" and {counted(len(names) - _SHOWN, 'more')}" if len(names) > _SHOWN else ""
    return f"{', '.join(names[:_SHOWN])}{more}"


def in_order_of_removal(store: Store, runs: Sequence[OldRun]) -> list[str]:
    """Return the runs that go: those that use others before these, so that none is left without."""
    uses = all_uses(store)
    waiting = {each.run_id for each in runs if not each.kept_by}
    # Of what they use nothing is known: it may be any of the others.
    ordered = sorted(waiting.intersection(uses.unread))
    waiting.difference_update(ordered)
    while waiting:
        free = {
            name for name in waiting if not waiting & {use.run_id for use in uses.of.get(name, ())}
        }
        # Runs that use each other, which only a call can say: any order will do.
        ordered += sorted(free or waiting)
        waiting -= free or waiting
    return ordered


def remove_old(
    store: Store,
    run_id: str,
    looked_at: Removal,
    *,
    going: Iterable[str],
    uses: Callable[[], Uses],
) -> Removal | str:
    """Remove a run; where something began to need it meanwhile, return why it stays.

    `looked_at` is what `measure` returned when it was decided; `going` are the runs that have
    gone or go after it; `uses` returns which runs use which by now.
    """
    try:
        # What is left of a removal that was interrupted is of use to nobody.
        if not Run.find(run_id, store).is_removed:
            reasons = dict.fromkeys((run_id, *going), "")
            _keep_used(reasons, uses())
            if reasons[run_id]:
                return reasons[run_id]
        return remove_run(store, run_id, looked_at)
    except PartwiseError as error:
        return str(error)


def collect_rest(store: Store, run_ids: Sequence[str], *, dry_run: bool) -> list[RunGarbage]:
    """Collect the garbage of runs that stay; of one at work, or damaged, it is said why not."""

    def collect(run_id: str) -> RunGarbage:
        try:
            return RunGarbage(
                run_id=run_id, garbage=collect_garbage(store, run_id, dry_run=dry_run)
            )
        except PartwiseError as error:
            return RunGarbage(run_id=run_id, garbage=None, why=str(error))

    return [collect(each) for each in run_ids]
