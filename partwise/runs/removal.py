"""Removing a run: all that it holds is deleted, and its ID can be begun again.

What stays is `run.json`, `lease/` and `generations/000N.removed`, some hundred bytes each, which
say that nothing up to generation N counts. Numbers of generations go on behind N. So no name that
is deleted is ever given again, and a process that was stopped in the middle of a removal, and goes
on when others have begun the run again, deletes nothing of theirs. Each part is announced like
those of a garbage collection (`partwise.runs.steps`), that the run is removed first of all.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Literal

from partwise.errors import PartwiseError, RunBusyError, RunNotFoundError
from partwise.runs.contents import READ_THREADS, list_runs, objects_below
from partwise.runs.documents import RUN_DOCUMENT, RUN_SCHEME, removed_number, run_path
from partwise.runs.holds import refuse_held
from partwise.runs.kinds import RunKind
from partwise.runs.run import Run
from partwise.runs.steps import AT_ONCE, Step, announce, finish_earlier_steps
from partwise.store.lease import Lease
from partwise.store.store import Store

_NAMES = (
    *("training_run_id", "export_run_id", "inference_run_id", "portfolio", "resume_from"),
    "only",
)
"""Arguments of calls that name another run; that of `only` may have keys of rows in place of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Removal:
    """What a removal deleted, or would."""

    files: int
    size_bytes: int
    generation: int
    """The newest of the run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """A run that uses another one, which would be missed when it is resumed or repeated."""

    run_id: str
    kind: RunKind
    how: Literal["its models", "named in its call"]
    is_at_work: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Uses:
    """Which runs of a store use which others."""

    of: Mapping[str, Sequence[Use]]
    """By the ID of a run those that use it."""
    unread: tuple[str, ...]
    """Runs of which nobody can read what they use: it may be any other."""


def measure(store: Store, run_id: str, freed: Collection[str] = ()) -> Removal:
    """Return what a removal would delete.

    `freed` are paths of holds that do not count, since what they are for goes first.

    Raises:
        RunNotFoundError: There is no such run, and nothing is left of one that was removed.
        InputError: A version of a catalog draws on it.
    """
    run = Run.find(run_id, store)
    if not run.is_removed:
        refuse_held(store, run_id, freed)
    paths = _files(store, run_id)
    if run.is_removed and not paths:
        raise RunNotFoundError(f"The run {run_id!r} in {store.url} was removed already.")
    with ThreadPoolExecutor(READ_THREADS) as threads:
        sizes = threads.map(lambda path: _size(store, path), paths)
        return Removal(files=len(paths), size_bytes=sum(sizes), generation=run.generation)


def remove_run(store: Store, run_id: str, looked_at: Removal | None = None) -> Removal:
    """Remove a run, or what an interrupted removal has left of it.

    `looked_at` is what `measure` returned when it was decided; None: it is decided now.

    Raises:
        RunNotFoundError: There is no such run, and nothing is left of one that was removed.
        InputError: A version of a catalog draws on it.
        RunBusyError: A process works on it, has done so since it was looked at, or took it over;
            nothing of what that needs is deleted.
    """
    looked_at = looked_at or measure(store, run_id)
    with Lease.acquire(store, run_path(run_id)) as lease:
        finish_earlier_steps(lease, store, run_id)
        found = measure(store, run_id)
        if found.generation != looked_at.generation:
            raise RunBusyError(
                f"The run {run_id!r} was begun again since it was looked at, as generation "
                f"{found.generation}: nothing of it was deleted."
            )
        run = Run.find(run_id, store)
        if not run.is_removed:
            announce(lease, store, run_id, Step(remove=run.generation))
        root = run_path(run_id) + "/"
        names = [path.removeprefix(root) for path in _files(store, run_id)]
        for start in range(0, len(names), AT_ONCE):
            announce(lease, store, run_id, Step(delete=tuple(names[start : start + AT_ONCE])))
    return found


def _files(store: Store, run_id: str) -> list[str]:
    """Return the paths of what a removal deletes."""
    root = run_path(run_id) + "/"
    # What a run was, its ID stays; the mark says that it is removed, and by the lease nobody else
    # is at work in it.
    return [
        path
        for path in objects_below(store, run_id)
        if path != root + RUN_DOCUMENT
        and not path.startswith(f"{root}lease/")
        and removed_number(path.removeprefix(f"{root}generations/")) is None
    ]


def _size(store: Store, path: str) -> int:
    try:
        return store.size(path)
    except FileNotFoundError:
        return 0  # deleted meanwhile


def all_uses(store: Store) -> Uses:
    """Return which runs of a store use which others, and those that cannot be read.

    Those use a run that have its models or exports, and those whose newest call names it: as
    inputs, as the run that they resume from, or as a portfolio.
    """

    def uses(name: str) -> dict[str, Use] | None:
        try:
            run = Run.open(name, store)
            models = {
                each.removeprefix(RUN_SCHEME)
                for each in run.document.models
                if each.startswith(RUN_SCHEME)
            }
            begun = run.read_generation_document() if run.generation else None
            named = set() if begun is None else _named(begun.written_call)
            is_at_work = run.summary is None
        except RunNotFoundError:
            return {}  # removed meanwhile
        except PartwiseError:
            return None
        return {
            used: Use(
                run_id=name,
                kind=run.kind,
                how="its models" if used in models else "named in its call",
                is_at_work=is_at_work,
            )
            for used in (models | named) - {name}
        }

    found: dict[str, list[Use]] = {}
    unread = []
    names = list_runs(store)
    with ThreadPoolExecutor(READ_THREADS) as threads:
        for name, each in zip(names, threads.map(uses, names), strict=True):
            if each is None:
                unread.append(name)
            for used, use in (each or {}).items():
                found.setdefault(used, []).append(use)
    return Uses(of=found, unread=tuple(unread))


def _named(call: Any) -> set[str]:
    """Return the runs that a call names, in any argument that names one, or as run://RUN."""
    found = set()
    for name, text in _texts("", call):
        if text.startswith(RUN_SCHEME):
            found.add(text.removeprefix(RUN_SCHEME).partition("/")[0].partition("@")[0])
        elif name in _NAMES:
            found.add(text)
    return found


def _texts(name: str, value: Any) -> Iterator[tuple[str, str]]:
    """Yield each text of a JSON value, with the name under which it stands."""
    if isinstance(value, str):
        yield name, value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            # A list of keys, which may be called as a run is.
            if key != "only" or isinstance(item, str):
                yield from _texts(key, item)
    elif isinstance(value, Sequence):
        for item in value:
            yield from _texts(name, item)
