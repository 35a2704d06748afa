"""A promotion that dies or stands still anywhere, while others work on the runs it draws on.

Whatever happens in between: each version that is there reads the very bytes that were promoted,
and repeating the promotion makes one version.
"""

import contextlib
import itertools
from collections.abc import Callable, Iterator
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from partwise.catalogs.catalog import Catalog
from partwise.catalogs.garbage import collect_catalog_garbage
from partwise.catalogs.verification import verify_catalog
from partwise.errors import (
    CatalogConflictError,
    CatalogNotFoundError,
    InputError,
    IntegrityError,
    PartwiseError,
    RunBusyError,
    RunNotFoundError,
)
from partwise.runs.garbage import collect_garbage
from partwise.runs.removal import remove_run
from partwise.runs.run import Run
from partwise.store.store import Store
from tests.one_catalog import all_words, newest, promote, said, train, train_and_promote
from tests.thoroughness import THOROUGH
from tests.two_drivers import Clockwork, WatchedStore, copies, points, silent_owners

FIRST = {"a": 1.0, "b": 2.0, "c": 3.0}
SECOND = {"b": 20.0, "d": 4.0}
OTHER = {"a": 7.0, "b": 8.0}
PROMOTED = {1: said(FIRST), 2: said({**FIRST, **SECOND})}
REFUSED = (CatalogConflictError, IntegrityError, RunBusyError, RunNotFoundError)


def gc(store: Store) -> None:
    for run_id in ("first", "second"):
        with contextlib.suppress(RunNotFoundError, RunBusyError):
            collect_garbage(store, run_id, dry_run=False, grace_hours=0)


def overwrite(store: Store) -> None:
    for run_id in ("first", "second"):
        train(store, run_id, OTHER)
    gc(store)


def resume(store: Store) -> None:
    train(store, "second", {**SECOND, "e": 5.0}, "resume")
    gc(store)


def remove(store: Store) -> None:
    for run_id in ("first", "second"):
        # Refused where a version draws on it, or may be about to.
        with contextlib.suppress(InputError, RunBusyError, RunNotFoundError):
            remove_run(store, run_id)


def tidy(store: Store) -> None:
    with contextlib.suppress(CatalogNotFoundError):
        collect_catalog_garbage(store, "sales", keep=1, older_than=timedelta(0), dry_run=False)
    gc(store)


def promote_too(store: Store) -> None:
    """Another promotion of the same base, of the same rule: both make one version."""
    with contextlib.suppress(*REFUSED):
        promote(store, "second", base=Catalog.open("sales@1", store))


MEANWHILE: dict[str, Callable[[Store], None]] = {
    "gc": gc,
    "overwrite and gc": overwrite,
    "resume and gc": resume,
    "rm": remove,
    "catalog gc": tidy,
    "the same promotion": promote_too,
}


def before(store: Store) -> None:
    train_and_promote(store, "first", FIRST)
    train(store, "second", SECOND)


def check(store: Store) -> None:
    """See that all versions that are there are as they were promoted."""
    found = all_words(store)
    for number, models in found.items():
        assert models == PROMOTED[number], number
    assert found, "the first version is gone"
    assert verify_catalog("sales", store).damages == []
    # And whoever comes next makes the one version, or finds it, where its run is still there.
    try:
        shown = Run.open("second", store)
    except RunNotFoundError:
        assert 2 not in found
        return
    if 2 not in found and shown.generation == 1:
        promote(store, "second", base=newest(store))
        assert all_words(store)[2] == PROMOTED[2]
    if 2 in found:
        gc(store)
        remove(store)
        assert all_words(store)[2] == PROMOTED[2]


class Killed(BaseException):
    """The death of the process, which nothing may catch."""


def killed_everywhere(new_store: Callable[[], Store], cases: Iterator[str], every: int) -> int:
    """Kill a promotion before each operation on the store, and have others work after that."""
    count, prepare = Clockwork(), copies(new_store, before)
    promote(_watched(prepare(), count), "second")
    tried = 0
    for number in range(1, count.count + 2, every):
        store, case = prepare(), next(cases)

        def die() -> None:
            clockwork.stop_at += 1  # noqa: B023 (and each operation after it as well)
            raise Killed

        clockwork = Clockwork(number, die)
        try:
            promote(_watched(store, clockwork), "second")
        except Killed:
            tried += 1
        MEANWHILE[case](store)
        try:
            check(store)
        except (AssertionError, PartwiseError) as error:
            raise AssertionError(f"{case}, {number}: before {clockwork.stopped_at}") from error
    return tried


def _watched(store: Store, clockwork: Clockwork) -> WatchedStore:
    names = ("url", "endpoint_url", "region", "profile")
    return WatchedStore(**{name: getattr(store, name) for name in names}, clockwork=clockwork)


def stores_of(store: Store) -> Callable[[], Store]:
    numbers = itertools.count()
    values = {name: getattr(store, name) for name in ("endpoint_url", "region", "profile")}
    return lambda: Store(url=f"{store.url}/{next(numbers)}", **values)


def test_one_that_is_killed_leaves_what_was_there_and_can_be_repeated(local_store) -> None:
    cases = itertools.cycle(MEANWHILE)
    assert killed_everywhere(stores_of(local_store), cases, every=2) > 7


@pytest.mark.slow
@pytest.mark.parametrize("case", MEANWHILE)
def test_so_it_does_before_each_operation(local_store, case) -> None:
    assert killed_everywhere(stores_of(local_store), itertools.repeat(case), every=1) > 15


@pytest.mark.slow
def test_so_it_does_in_a_bucket(s3_store) -> None:
    cases = itertools.cycle(MEANWHILE)
    assert killed_everywhere(stores_of(s3_store), cases, every=1 if THOROUGH else 2) > 7


def stopped_everywhere(new_store: Callable[[], Store], cases: Iterator[str], every: int) -> None:
    """Stop a promotion before its operations on the store, and have others work meanwhile."""
    happened: dict[str, str] = {}

    def first(store: Store) -> None:
        with contextlib.suppress(*REFUSED):
            promote(store, "second")

    def second(store: Store) -> None:
        happened[store.url] = case = next(cases)
        MEANWHILE[case](store)

    def whole(store: Store) -> None:
        try:
            check(store)
        except (AssertionError, PartwiseError) as error:
            raise AssertionError(happened[store.url]) from error

    tally = points(copies(new_store, before), first, second, whole, every=every)
    assert tally.lost == []
    assert tally.tried > 5


@pytest.mark.parametrize("case", ["gc", "rm"])
def test_one_that_stood_still_makes_no_version_whose_models_are_gone(local_store, case) -> None:
    stopped_everywhere(stores_of(local_store), itertools.repeat(case), every=8)


@pytest.mark.slow
@pytest.mark.parametrize("case", MEANWHILE)
def test_nor_does_it_at_any_operation(local_store, case) -> None:
    stopped_everywhere(stores_of(local_store), itertools.repeat(case), every=1 if THOROUGH else 2)


@pytest.mark.slow
def test_nor_does_it_in_a_bucket(s3_store) -> None:
    """Each second operation is met there, and each of the others' work, though not all pairs."""
    turns = map(itertools.repeat, MEANWHILE) if THOROUGH else [itertools.cycle(MEANWHILE)]
    stores = stores_of(s3_store)
    for cases in turns:
        stopped_everywhere(stores, cases, every=2)


@pytest.mark.parametrize("case", ["gc", "rm"])
def test_nor_does_a_collection_or_removal_that_stood_still(local_store, case) -> None:
    """Who is about to delete what a promotion has found and held meanwhile deletes nothing."""

    def twice(store: Store) -> None:
        before(store)
        train(store, "second", OTHER)
        train(store, "second", SECOND)

    def second(store: Store) -> None:
        with contextlib.suppress(*REFUSED, InputError):
            promote(store, "second")

    def whole(store: Store) -> None:
        assert {n: found == PROMOTED[n] for n, found in all_words(store).items()}.get(1)
        assert all(found == PROMOTED[n] for n, found in all_words(store).items())

    def first(store: Store) -> None:
        with contextlib.suppress(InputError, RunNotFoundError):
            MEANWHILE_ONE[case](store)

    tally = points(copies(stores_of(local_store), twice), first, second, whole, every=11)
    assert tally.lost == []
    assert tally.tried > 5


MEANWHILE_ONE: dict[str, Callable[[Store], object]] = {
    "gc": lambda store: collect_garbage(store, "second", dry_run=False, grace_hours=0),
    "rm": lambda store: remove_run(store, "second"),
}

ACTIONS = ["train first", "train second", "gc", "rm", "catalog gc", "promote first"]
ACTIONS += ["promote second", "rollback", "pin", "retire", "die"]


def live_through(store: Store, actions: list[tuple[str, int]]) -> None:
    """Do one thing after another, and look at all versions after each."""
    promoted: dict[int, dict[str, str]] = {}
    for action, number in actions:
        name = action.rpartition(" ")[2]
        with contextlib.suppress(*REFUSED, InputError, CatalogNotFoundError):
            match action.partition(" ")[0]:
                case "train":
                    keys = "abcd"[number % 3 :][:2]
                    train(store, name, {key: float(number) for key in keys})
                case "gc":
                    gc(store)
                case "rm":
                    remove(store)
                case "catalog":
                    tidy(store)
                case "promote":
                    promote(store, name)
                case "die":
                    clockwork = Clockwork()
                    clockwork.stop_at, clockwork.meanwhile = 1 + number * 3, _die(clockwork)
                    with contextlib.suppress(Killed):
                        promote(_watched(store, clockwork), "first")
                case "rollback":
                    there = all_words(store)
                    Catalog.open("sales", store).rollback(sorted(there)[number % len(there)])
                case "pin" | "retire":
                    catalog = Catalog.open("sales", store)
                    keys = catalog.table["key.key"].to_pylist()[:1]
                    getattr(catalog, action)(keys)
        found = all_words(store)
        for version, models in found.items():
            # What it was when it was first seen, it stays.
            assert promoted.setdefault(version, models) == models
        assert sorted(found) == sorted(found.keys() & promoted.keys())


def _die(clockwork: Clockwork) -> Callable[[], None]:
    def die() -> None:
        assert clockwork.stop_at is not None
        clockwork.stop_at += 1
        raise Killed

    return die


lives = st.lists(st.tuples(st.sampled_from(ACTIONS), st.integers(0, 20)), min_size=6, max_size=14)


@given(lives)
@settings(max_examples=400 if THOROUGH else 12)
def test_whatever_happens_versions_stay_what_they_were(tmp_path_factory, actions) -> None:
    with silent_owners():
        live_through(Store.parse(tmp_path_factory.mktemp("store")), actions)
