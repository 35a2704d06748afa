"""Which runs of older nights go, and what keeps others: without any cluster."""

from dataclasses import replace
from datetime import date

import pytest

from partwise.errors import InputError, RunIdError
from partwise.planning.nights import STAGES, Night, judged_night, night_of, remove_old_nights
from partwise.runs import removal
from partwise.runs.contents import list_runs
from partwise.store.lease import Lease
from partwise.store.store import Store
from tests.one_catalog import promote, train
from tests.run_maker import RunMaker

NIGHTS = [Night(catalog="sales", day=date(2026, 11, number)) for number in (1, 2, 3)]
FIRST, SECOND, THIRD = ({stage: night.run_id(stage) for stage in STAGES} for night in NIGHTS)
VALUES = {"a": 1.0}


def infer(store: Store, run_id: str, *models: str) -> None:
    maker = RunMaker(store, run_id, kind="infer")
    maker.identity = replace(maker.identity, models=models)
    maker.begin()
    maker.commit(("a", "DONE", 1.0))
    maker.end(1)


@pytest.fixture
def store(local_store: Store) -> Store:
    """Three nights, of the last of which one runs: each trained and inferred by that."""
    for night in (FIRST, SECOND):
        train(local_store, night["train"], VALUES)
        infer(local_store, night["infer"], f"run://{night['train']}")
    train(local_store, THIRD["train"], VALUES)
    return local_store


def test_a_catalog_of_which_names_of_runs_are_too_long_is_refused() -> None:
    assert night_of("c" * 44, "2026-11-01").run_id("evaluate").endswith("-evaluate")
    for length in (45, 47, 64):
        with pytest.raises(RunIdError, match=f"has {length} characters.*a name of at most 44"):
            night_of("c" * length, "2026-11-01")
    with pytest.raises(InputError, match="The catalog name 'a b' is not a safe name"):
        night_of("a b", "2026-11-01")


def test_a_run_that_is_named_after_no_day_is_none_of_a_night(store: Store) -> None:
    train(store, "sales-2026-02-30-train", VALUES)
    assert judged_night(NIGHTS[2], 1, store) == NIGHTS[1]
    assert len(remove(store)[0]) == 4
    assert "sales-2026-02-30-train" in list_runs(store)


def remove(store: Store) -> tuple[list[str], dict[str, str]]:
    removed, kept = remove_old_nights(NIGHTS[2], 1, store)
    assert not {*removed} & {*list_runs(store)}
    assert {*kept} <= {*list_runs(store)}
    return removed, kept


def test_those_that_use_others_go_before_them(store) -> None:
    removed, kept = remove(store)
    assert (sorted(removed), kept) == (
        sorted([FIRST["train"], FIRST["infer"], SECOND["train"], SECOND["infer"]]),
        {},
    )
    assert removed.index(FIRST["infer"]) < removed.index(FIRST["train"])
    assert remove_old_nights(NIGHTS[2], 1, store) == ([], {})


def test_what_another_run_uses_stays_and_is_named(store) -> None:
    infer(store, "ours", f"run://{FIRST['train']}")
    promote(store, SECOND["train"])
    removed, kept = remove(store)
    assert kept == {
        FIRST["train"]: "ours uses it",
        SECOND["train"]: "catalog://sales@1 draws on it",
    }
    assert sorted(removed) == [FIRST["infer"], SECOND["infer"]]


@pytest.mark.parametrize("name", ["run.json", "generations/0001.json"])
def test_a_run_that_cannot_be_read_keeps_all_that_it_may_use(store, name) -> None:
    infer(store, "ours")
    store.delete(f"runs/ours/{name}")
    store.create(f"runs/ours/{name}", b'{"format_version": 99}')
    removed, kept = remove(store)
    assert removed == []
    assert kept[FIRST["infer"]] == "ours cannot be read, and may use it"
    assert len(kept) == 4


def test_what_is_worked_on_stays_with_what_it_uses(store) -> None:
    with Lease.acquire(store, f"runs/{FIRST['infer']}"):
        _, kept = remove(store)
    assert kept.pop(FIRST["train"]) == f"{FIRST['infer']} uses it"
    assert [*kept] == [FIRST["infer"]]
    assert "is worked on by process" in kept[FIRST["infer"]]


def test_a_removal_that_was_interrupted_is_finished(store, monkeypatch) -> None:
    given = removal.announce

    def announce(lease, store, run_id, step):
        if not step.remove:
            raise KeyboardInterrupt
        given(lease, store, run_id, step)

    with monkeypatch.context() as patched:
        patched.setattr(removal, "announce", announce)
        with pytest.raises(KeyboardInterrupt):
            remove(store)
    removed, kept = remove(store)
    assert (len(removed), kept) == (4, {})
