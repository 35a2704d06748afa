"""A driver that is stopped anywhere, and goes on when another has completed the run."""

import dataclasses
import itertools
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from partwise.reports.report import render_report
from partwise.runs.documents import REPORT_FILE, run_path
from partwise.runs.garbage import collect_garbage
from partwise.runs.run import Run
from partwise.store.store import Store
from tests.one_gang import Died, check_gang, drive_gang
from tests.one_script import check_script, drive_script, send
from tests.one_shard import check, drive
from tests.one_study import check_study, drive_study
from tests.thoroughness import THOROUGH
from tests.two_drivers import Tally, copies, points

FIRST = {"a": 1.0, "b": 2.0, "c": 3.0}
SECOND = {"a": 1.0, "b": 20.0, "c": 3.0, "d": 4.0}
TRIALS = 4


@dataclass(frozen=True, kw_only=True)
class Case:
    """Two drivers, by what they do on a store."""

    first: Callable[[Store], object]
    second: Callable[[Store], Run]
    """Also that of whoever comes next, and finds all done."""
    check: Callable[[Run], None]
    before: Callable[[Store], object] = lambda store: None


def partitions(values, code: str = "c1", on_existing="resume", **options) -> Callable[[Store], Run]:
    return lambda store: drive(store, values, code, on_existing, **options)


def of_partitions(values, code: str = "c1", *, gives_rows: bool = True, **parts) -> Case:
    return Case(
        second=partitions(values, code, gives_rows=gives_rows),
        check=lambda run: check(run, values, gives_rows=gives_rows),
        **parts,
    )


def of_a_gang(**parts) -> Case:
    return Case(second=drive_gang, check=check_gang, **parts)


def of_a_study(**parts) -> Case:
    def second(store: Store) -> Run:
        return drive_study(store, TRIALS)

    return Case(second=second, check=lambda run: check_study(run, TRIALS), **parts)


def of_a_script(**parts) -> Case:
    return Case(second=drive_script, check=check_script, first=collect, **parts)


def twice(store: Store) -> None:
    # Without rows: files of rows that were replaced are not kept in any case.
    drive(store, FIRST, "c1", gives_rows=False)
    drive(store, SECOND, "c2", gives_rows=False)


def half_a_gang(store: Store) -> None:
    with pytest.raises(Died):
        drive_gang(store, dies_after=2)


def two_gangs(store: Store) -> None:
    half_a_gang(store)
    drive_gang(store, "other")


def collect(store: Store) -> None:
    collect_garbage(store, store.list_folder("runs")[0], dry_run=False, grace_hours=0)


def two_scripts(store: Store) -> None:
    drive_script(store)
    drive_script(store, "second")


def half_a_study(store: Store) -> None:
    drive_study(store, TRIALS // 2)


CASES = {
    "both begin": of_partitions(FIRST, first=partitions(FIRST)),
    "both resume": of_partitions(SECOND, before=partitions(FIRST), first=partitions(SECOND)),
    # The second one keeps what the first one is about to set aside.
    "other code": of_partitions(SECOND, before=partitions(FIRST), first=partitions(SECOND, "c2")),
    "overwrites": of_partitions(
        SECOND, before=partitions(FIRST), first=partitions(SECOND, "c1", "overwrite")
    ),
    # The second one keeps what the first one is about to delete.
    "collects": of_partitions(FIRST, gives_rows=False, before=twice, first=collect),
    "gangs begin": of_a_gang(first=drive_gang),
    # Both go on from one checkpoint, which the first one is about to replace by its own.
    "gangs resume": of_a_gang(before=half_a_gang, first=drive_gang),
    "gang overwrites": of_a_gang(
        before=half_a_gang, first=lambda store: drive_gang(store, "c", "overwrite")
    ),
    "gang collected": of_a_gang(before=two_gangs, first=collect),
    # The second one sends once more what the first one is about to delete.
    "script collected": of_a_script(before=two_scripts),
    "sent and collected": of_a_script(before=lambda store: send(store, "first")),
    "studies begin": of_a_study(first=lambda store: drive_study(store, TRIALS)),
    "studies resume": of_a_study(
        before=half_a_study, first=lambda store: drive_study(store, TRIALS)
    ),
    "study overwrites": of_a_study(
        before=half_a_study, first=lambda store: drive_study(store, TRIALS, "c", "overwrite")
    ),
}


def stop_everywhere(new_store: Callable[[], Store], name: str, every: int) -> Tally:
    """Stop a driver before each n-th operation, while a second one completes the run."""
    case = CASES[name]
    done: dict[str, Run] = {}

    def second(store: Store) -> None:
        done[store.url] = case.second(store)

    def whole(store: Store) -> None:
        theirs = done[store.url]
        same = Run.open(theirs.run_id, store, generation=theirs.generation)
        assert same.ledger.equals(theirs.ledger), "the ledger changed"
        case.check(same)
        run = Run.open(theirs.run_id, store)
        # The first one may have got the lease in its turn, when the second one was done.
        assert run.generation >= theirs.generation
        report = store.read(run_path(run.run_id, REPORT_FILE)).decode()
        assert report == render_report(run), "the report is of another generation"
        if run.generation == theirs.generation:
            case.check(run)
        # And whoever comes next finds all done.
        case.check(case.second(store))

    prepare = copies(new_store, case.before)
    return points(prepare, case.first, second, whole, every=every)


IN_A_BUCKET = tuple(CASES) if THOROUGH else ("both begin", "collects", "gang overwrites")
"""Where a point costs two seconds: a beginning, a deletion, and what replaces files."""

EVERY = {
    **dict.fromkeys(("both begin", "both resume", "other code", "overwrites", "collects"), 23),
    **dict.fromkeys(("gangs resume", "studies resume"), 23),
    "gang collected": 3,
    **dict.fromkeys(("script collected", "sent and collected"), 5),
}
"""Of the operations each n-th, where time is short; a collection has few."""


@pytest.mark.parametrize("case", EVERY)
def test_a_driver_that_was_given_up_harms_nothing(tmp_path, case) -> None:
    numbers = itertools.count()
    tally = stop_everywhere(lambda: Store.parse(tmp_path / f"{next(numbers)}"), case, EVERY[case])
    assert tally.lost == []
    assert tally.refused > 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "case"),
    [*[("local", case) for case in CASES], *[("s3", case) for case in IN_A_BUCKET]],
)
def test_nor_does_it_in_a_bucket_or_at_more_operations(request, case, kind) -> None:
    store = request.getfixturevalue(f"{kind}_store")
    numbers = itertools.count()

    def new_store() -> Store:
        return dataclasses.replace(store, url=f"{store.url}/{next(numbers)}")

    # A point takes a second in a bucket; `make chaos` tries them all in a folder.
    every = (2 if THOROUGH else 5) if store.protocol == "file" else (10 if THOROUGH else 30)
    tally = stop_everywhere(new_store, case, every)
    assert tally.lost == []
    assert tally.tried > 5
