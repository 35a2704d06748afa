"""Old runs of a store: which of them may go, and what keeps the others.

Those go that are neither among the newest of their kind, nor young, nor at work, nor held by a
version of a catalog, nor used by a run that stays, as one that cannot be read may do.
"""

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import datetime
from fnmatch import fnmatchcase

from partwise.errors import InputError, PartwiseError
from partwise.formatting import some_of
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

    Those go whose ID is of the pattern, such as "nightly-*", and that ended `before`; the newest
    `keep` of each kind and this pattern stay in any case. `freed` are paths of holds that do not
    count: of versions of catalogs that go too.
    """
    if keep < 1:
        raise InputError(f"keep is {keep}; the newest run of each kind stays: give 1 or more.")
    names = [each for each in store.list_folder(RUNS) if fnmatchcase(each, pattern)]
    readable, others = _look_at(store, names)
    by_kind: dict[RunKind | None, list[OldRun]] = {}
    for each in readable:
        by_kind.setdefault(each.kind, []).append(each)
    young = {each.run_id for runs in by_kind.values() for each in runs[-keep:]}
    old = [each for each in readable if each.run_id not in young and each.at and each.at < before]
    return [*others, *_with_reasons(store, old, lambda each: _held_by(store, each, freed))]


def named_runs(store: Store, names: Iterable[str]) -> list[OldRun]:
    """Return runs that somebody chose, as `old_runs` does; of which nothing is left: none.

    Whether a process works on one its removal finds out, which waits for those out of sight.
    """
    readable, others = _look_at(store, names)
    return [*others, *_with_reasons(store, readable, lambda each: _drawn_on(store, each, ()))]


def _look_at(store: Store, names: Iterable[str]) -> tuple[list[OldRun], list[OldRun]]:
    """Return the runs that can be read, the oldest first, and what else is there of others."""
    there, chosen = set(list_runs(store)), sorted(filter(is_run_id, names))
    removed = [each for each in chosen if each not in there]
    with ThreadPoolExecutor(READ_THREADS) as threads:
        found = list(threads.map(lambda n: _look(store, n), filter(there.__contains__, chosen)))
        halves = [each for each in threads.map(lambda n: _half_removed(store, n), removed) if each]
    readable = [each for each in found if each.at is not None]
    readable.sort(key=lambda each: (each.at, each.run_id))
    return readable, [*(each for each in found if each.at is None), *halves]


def _with_reasons(
    store: Store, old: Sequence[OldRun], held_by: Callable[[OldRun], str]
) -> list[OldRun]:
    """Return runs with what keeps them, where anything does: by themselves, or others that stay."""
    with ThreadPoolExecutor(READ_THREADS) as threads:
        held = threads.map(held_by, old)
        reasons = {each.run_id: why for each, why in zip(old, held, strict=True)}
    _keep_used(reasons, all_uses(store))
    return [replace(each, kept_by=reasons[each.run_id]) for each in old]


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
    return _drawn_on(store, run, freed)


def _drawn_on(store: Store, run: OldRun, freed: Collection[str]) -> str:
    """Return which versions of catalogs keep a run; empty: none does."""
    try:
        holders = holders_of(store, run.run_id, freed)
    except PartwiseError as error:
        return str(error)
    verb = "draws" if len(holders) == 1 else "draw"
    return f"{some_of(holders, _SHOWN)} {verb} on it" if holders else ""


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
        return f"{some_of(names, _SHOWN)} {'uses' if len(names) == 1 else 'use'} it"
    if unread := sorted(set(uses.unread).difference(going)):
        return f"{some_of(unread, _SHOWN)} cannot be read, and may use it"
    return ""


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


class _FreshUses:
    """Which runs use which others, looked at again and again for a fifth of the time.

    Before each of a thousand removals, a look at all runs of a bucket would take hours.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._found: Uses | None = None
        self._stale_at = 0.0

    def read(self) -> Uses:
        """Return what is known, at most four times as old as a look takes."""
        began = time.monotonic()
        if self._found is None or began >= self._stale_at:
            self._found = all_uses(self._store)
            now = time.monotonic()
            self._stale_at = now + 4 * (now - began)
        return self._found


def remove_all_old(store: Store, planned: Mapping[str, Removal]) -> dict[str, str]:
    """Remove runs in the order given, each with what `measure` returned when it was decided.

    Returned are those that stay, since something began to need them meanwhile, and why.
    """
    kept: dict[str, str] = {}
    going, uses = set(planned), _FreshUses(store)
    for run_id, looked_at in planned.items():
        if why := _remove_old(store, run_id, looked_at, going, uses):
            kept[run_id] = why
            going.discard(run_id)
    return kept


def _remove_old(
    store: Store, run_id: str, looked_at: Removal, going: Iterable[str], uses: _FreshUses
) -> str:
    """Remove a run; where something began to need it meanwhile, return why it stays; else "".

    `looked_at` is what `measure` returned when it was decided; `going` are the runs that have
    gone or go after it; `uses` says which runs use which by now.
    """
    try:
        # What is left of a removal that was interrupted is of use to nobody.
        if not Run.find(run_id, store).is_removed:
            reasons = dict.fromkeys((run_id, *going), "")
            _keep_used(reasons, uses.read())
            if reasons[run_id]:
                return reasons[run_id]
        remove_run(store, run_id, looked_at)
    except PartwiseError as error:
        return str(error)
    return ""


def collect_rest(store: Store, run_ids: Sequence[str], *, dry_run: bool) -> list[RunGarbage]:
    """Collect the garbage of runs that stay; of one at work, or damaged, it is said why not."""
    found = []
    for run_id in run_ids:
        try:
            garbage = collect_garbage(store, run_id, dry_run=dry_run)
            found.append(RunGarbage(run_id=run_id, garbage=garbage))
        except PartwiseError as error:
            found.append(RunGarbage(run_id=run_id, garbage=None, why=str(error)))
    return found
