"""`partwise store gc`: which old runs go, what keeps others, and that a dry run says the same."""

import io
import json
import logging
import shutil
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from partwise.catalogs import retention
from partwise.catalogs.catalog import Catalog
from partwise.catalogs.retention import in_order_of_removal, old_runs
from partwise.errors import InputError
from partwise.flows import tidy_store
from partwise.flows.cli.main import main
from partwise.planning.tidying import Tidying, plan_tidying, tidy
from partwise.runs import removal
from partwise.runs.contents import list_runs
from partwise.runs.run import Run
from partwise.store.lease import Lease
from partwise.store.store import Store
from tests.one_catalog import promote, train, words
from tests.run_maker import RunMaker

LATER = datetime.now(UTC) + timedelta(days=1)
"""All runs of a test are older."""
VALUES = {"a": 1.0, "b": 2.0}


def begin_inference(store: Store, run_id: str, used: str) -> RunMaker:
    """Begin an inference run by the models of another one, which is at work then."""
    maker = RunMaker(store, run_id, kind="infer")
    maker.identity = replace(maker.identity, models=(f"run://{used}",))
    maker.begin()
    maker.commit(("a", "DONE", 1.0))
    return maker


def infer(store: Store, run_id: str, used: str) -> None:
    """Make an inference run by the models of another one."""
    begin_inference(store, run_id, used).end(1)


def make_nights(store: Store) -> Store:
    """Make nights, of which the newest ones of their kinds are t-4 and i-2, and a catalog."""
    for name in ("t-1", "t-2", "t-3"):
        train(store, name, VALUES)
    infer(store, "i-1", "t-1")
    infer(store, "i-2", "t-2")
    promote(store, "t-3")
    train(store, "t-4", VALUES)
    return store


@pytest.fixture
def store(local_store: Store) -> Store:
    return make_nights(local_store)


def why(store: Store, **how) -> dict[str, str]:
    return {
        run.run_id: run.kept_by for run in old_runs(store, **{"keep": 1, "before": LATER} | how)
    }


def test_what_the_newest_use_stays_and_what_a_catalog_draws_on(store) -> None:
    expected = {
        "t-1": "",
        "t-2": "i-2 uses it",
        "t-3": "catalog://sales@1 draws on it",
        "i-1": "",
    }
    assert why(store) == expected
    # Those that use the models of another go before it.
    assert in_order_of_removal(store, old_runs(store, keep=1, before=LATER)) == ["i-1", "t-1"]
    # One that stays keeps what it uses.
    assert why(store, pattern="t-*")["t-1"] == "i-1 uses it"
    with Lease.acquire(store, "runs/i-1"):
        assert why(store)["i-1"] == "a process works on it"
        assert why(store)["t-1"] == "i-1 uses it"
    assert why(store, keep=3) == {"t-1": "i-1 uses it"}
    assert why(store, before=LATER - timedelta(days=2)) == {}


def test_a_run_that_cannot_be_read_stays_and_is_named(store) -> None:
    path = "runs/t-1/run.json"
    store.delete(path)
    store.create(path, b"{}")
    assert why(store)["t-1"].startswith("it cannot be read: ")


def damage(store: Store, path: str) -> None:
    store.delete(path)
    store.create(path, b'{"format_version": 99}')


@pytest.mark.parametrize("name", ["run.json", "generations/0001.json"])
def test_a_run_that_cannot_be_read_keeps_what_it_may_use(store, name) -> None:
    damage(store, f"runs/i-2/{name}")
    assert why(store)["t-2"] == "i-2 cannot be read, and may use it"


def test_of_many_that_keep_a_run_some_are_named(store) -> None:
    for number in range(5):
        infer(store, f"more-{number}", "t-1")
        damage(store, f"runs/more-{number}/run.json")
    assert why(store)["t-2"] == "i-2 uses it"
    assert why(store)["t-1"] == "more-0, more-1, more-2 and 2 more cannot be read, and may use it"


def test_one_that_goes_keeps_nothing_and_goes_first(store) -> None:
    infer(store, "a-0", "t-2")
    infer(store, "i-3", "t-4")
    damage(store, "runs/i-1/generations/0001.json")
    planned = plan_tidying(store, keep=1, before=LATER)
    assert [*planned.sizes] == ["i-1", "a-0", "i-2", "t-1", "t-2"]
    assert tidy(store, planned, dry_run=False).runs == planned.sizes
    assert list_runs(store) == ["i-3", "t-3", "t-4"]


class TestMeanwhile:
    """What somebody begins to use, or does anew, after it was decided what goes."""

    @pytest.fixture
    def planned(self, store) -> Tidying:
        planned = plan_tidying(store, keep=1, before=LATER)
        assert [*planned.sizes] == ["i-1", "t-1"]
        return planned

    def test_a_run_that_a_new_one_uses_stays(self, store, planned) -> None:
        maker = begin_inference(store, "i-3", "t-1")
        done = tidy(store, planned, dry_run=False)
        assert (done.kept["t-1"], [*done.runs]) == ("i-3 uses it", ["i-1"])
        assert maker.end(1).counts == {"DONE": 1}
        assert Run.open("t-1", store).counts == {"DONE": 2}

    def test_a_run_that_a_resumed_one_uses_stays(self, store, planned) -> None:
        maker = begin_inference(store, "i-1", "t-1")
        done = tidy(store, planned, dry_run=False)
        maker.leave()
        assert "is worked on by process" in done.kept["i-1"]
        assert (done.kept["t-1"], done.runs) == ("i-1 uses it", {})

    def test_a_run_that_was_resumed_and_has_ended_stays(self, store, planned) -> None:
        infer(store, "i-1", "t-1")
        done = tidy(store, planned, dry_run=False)
        assert "was begun again since it was looked at" in done.kept["i-1"]
        assert (done.kept["t-1"], done.runs) == ("i-1 uses it", {})

    def test_a_run_that_cannot_be_read_any_more_keeps_all(self, store, planned) -> None:
        damage(store, "runs/i-2/run.json")
        done = tidy(store, planned, dry_run=False)
        assert done.kept["i-1"] == "i-2 cannot be read, and may use it"
        assert (done.kept["t-1"], done.runs) == ("i-1 uses it", {})


@pytest.fixture(scope="module")
def many_nights(tmp_path_factory) -> tuple[Path, Tidying]:
    folder = tmp_path_factory.mktemp("nights")
    store = make_nights(Store.parse(folder))
    for name, used in (("a-1", "t-1"), ("a-2", "t-2"), ("i-3", "t-4")):
        infer(store, name, used)
    planned = plan_tidying(store, keep=1, before=LATER)
    assert {*planned.going} == {"t-1", "t-2", "i-1", "i-2", "a-1", "a-2"}
    return folder, planned


@given(
    place=st.integers(0, 4),
    acts=st.sampled_from(["use", "resume"]),
    wanted=st.sampled_from(["t-1", "t-2", "i-1", "a-1", "i-2"]),
)
@settings(max_examples=5)
def test_what_is_wanted_at_any_moment_before_its_removal_stays_with_what_it_uses(
    many_nights, tmp_path_factory, place, acts, wanted
) -> None:
    folder = tmp_path_factory.mktemp("wanted") / "store"
    source, planned = many_nights
    shutil.copytree(source, folder)
    store = Store.parse(folder)
    used = {"i-1": "t-1", "a-1": "t-1", "i-2": "t-2", "a-2": "t-2"}
    stay: set[str] = set()
    looked_at = 0

    def begin_before(store: Store, run_id: str, *given: Any, **more: Any) -> Any:
        nonlocal looked_at
        if looked_at == place and wanted in list_runs(store):
            stay.update({wanted, used.get(wanted, wanted)})
            if acts == "use":
                infer(store, "new", wanted)
            elif wanted in used:
                infer(store, wanted, used[wanted])
            else:
                train(store, wanted, VALUES, "resume")
        looked_at += 1
        return remove_old(store, run_id, *given, **more)

    remove_old = retention._remove_old
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(retention, "_remove_old", begin_before)
        # What was seen is never fresh enough.
        patched.setattr(retention, "time", SimpleNamespace(monotonic=lambda: 0.0))
        kept = retention.remove_all_old(store, planned.going)
    assert stay <= {*kept}
    assert {*kept} == {*planned.going} & {*list_runs(store)}


def test_a_removal_that_was_interrupted_is_finished(store, monkeypatch) -> None:
    given = removal.announce

    def announce(lease, store, run_id, step):
        if not step.remove:
            raise KeyboardInterrupt
        given(lease, store, run_id, step)

    monkeypatch.setattr(removal, "announce", announce)
    with pytest.raises(KeyboardInterrupt):
        removal.remove_run(store, "t-1")
    monkeypatch.undo()
    assert "t-1" not in list_runs(store)
    young = datetime.now(UTC) - timedelta(days=30)
    assert why(store, before=young) == {"t-1": ""}
    # A run that used it keeps nothing of what is left.
    planned = plan_tidying(store, keep=1, before=young)
    assert planned.sizes["t-1"] > 1000
    assert [*tidy(store, planned, dry_run=False).runs] == ["t-1"]
    assert why(store, before=young) == {}


class TestCommand:
    WORDS = ("store", "gc", "--keep-last", "1", "--older-than", "2999-01-01")

    def test_a_dry_run_says_what_then_happens(self, store, capsys) -> None:
        train(store, "t-4", VALUES | {"a": 5.0})
        given = [*self.WORDS, "--store", store.url]
        assert main([*given, "--dry-run"]) == 0
        out = capsys.readouterr().out
        assert "stays  t-2: i-2 uses it" in out
        assert "stays  t-3: catalog://sales@1 draws on it" in out
        assert " t-1 (train, 20" in out
        assert "2 runs would be deleted, " in out
        assert "of other runs, " in out.splitlines()[-1]
        assert out.splitlines()[-1].endswith("once readers have had their day")
        assert list_runs(store) == ["i-1", "i-2", "t-1", "t-2", "t-3", "t-4"]
        assert main([*given, "--dry-run", "--json"]) == 0
        records = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        assert [
            each["run_id"] for each in records if each.get("size_bytes") and "run_id" in each
        ] == [
            "i-1",
            "t-1",
        ]
        assert any(each.get("waits_for_grace") for each in records)
        assert not any(each["deleted"] for each in records)
        assert main([*given, "--yes"]) == 0
        assert "2 runs deleted, " in capsys.readouterr().out
        assert list_runs(store) == ["i-2", "t-2", "t-3", "t-4"]
        assert words(Catalog.open("sales", store)) == {"a": "a 1.0", "b": "b 2.0"}
        # For the second time there is nothing left to do, and nothing to ask.
        assert main(given) == 0
        assert "0 runs deleted, " in capsys.readouterr().out

    def test_old_versions_of_a_catalog_go_and_with_them_the_runs_they_drew_on(
        self, store, capsys
    ) -> None:
        promote(store, "t-4")
        given = [*self.WORDS, "--store", store.url]
        assert main([*given, "--dry-run", "--json"]) == 0
        records = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        assert "t-3" in [each.get("run_id") for each in records if "kept_by" not in each]
        assert Catalog.open("sales@1", store).version == 1
        assert main([*given, "--yes"]) == 0
        assert list_runs(store) == ["i-2", "t-2", "t-4"]
        assert words(Catalog.open("sales", store)) == {"a": "a 1.0", "b": "b 2.0"}

    def test_the_flow_does_the_same(self, store, caplog) -> None:
        given = {"keep_last": 1, "older_than_days": 0, "store": store.url}
        planned = tidy_store(**given, dry_run=True)
        assert [*planned.runs] == ["i-1", "t-1"]
        assert {*list_runs(store)} >= {*planned.runs}
        caplog.set_level(logging.INFO, logger="prefect.flow_runs")
        done = tidy_store(**given)
        assert done.runs == planned.runs
        assert list_runs(store) == ["i-2", "t-2", "t-3", "t-4"]
        assert "t-2 stays: i-2 uses it" in caplog.text
        assert "2 runs deleted, " in caplog.text

    @pytest.mark.parametrize("age", ["400000d", "0931-01-01", "99999999999999d"])
    def test_nothing_is_old_enough_for_an_age_of_a_thousand_years(self, store, age, capsys) -> None:
        new = "shards/key/29990101T000000-1/0.part"
        store.write(new, b"rows")
        given = ["store", "gc", "--keep-last", "1", "--older-than", age, "--store", store.url]
        assert main([*given, "--yes"]) == 0
        assert "0 runs deleted, " in capsys.readouterr().out
        assert store.exists(new)
        with pytest.raises(InputError, match="older_than_days"):
            tidy_store(older_than_days=1e12, store=store.url)

    def test_what_died_of_datasets_and_old_rows_go_and_a_damaged_dataset_is_named(
        self, store, capsys
    ) -> None:
        dead = "datasets/sales/parts/dead/0.parquet"
        old, new = (
            f"shards/key/{each}-1/0.part" for each in ("20260101T000000", "29990101T000000")
        )
        for path in (dead, old.replace("key", "old"), new):
            store.write(path, b"rows")
        store.write("datasets/broken/versions/1.json", b"{")
        given = ["store", "gc", "--keep-last", "9", "--older-than", "0d", "--store", store.url]
        assert main([*given, "--dry-run"]) == 0
        said = capsys.readouterr().out
        assert (
            "2 files of registrations that died, and of rows on their way to workers would" in said
        )
        assert "not looked into: dataset broken: " in said
        assert main([*given, "--dry-run", "--json"]) == 0
        *_, unread, environments = map(json.loads, capsys.readouterr().out.splitlines())
        assert (unread["dataset"], unread["status"]) == ("broken", "UNREADABLE")
        assert environments == {"environments": 0, "deleted": False}
        assert main([*given, "--yes"]) == 0
        assert "0 environments of this machine deleted" in capsys.readouterr().out
        assert not store.exists(dead)
        assert list(store.list("shards/")) == [new]

    def test_it_wants_a_yes_and_an_age(self, store, capsys, monkeypatch) -> None:
        monkeypatch.setattr("sys.stdin", io.StringIO())
        assert main([*self.WORDS, "--store", store.url]) == 2
        assert "Deleting these 2 runs cannot be undone: say --yes." in capsys.readouterr().err
        assert main(["store", "gc", "--older-than", "old", "--store", store.url]) == 2
        assert "--older-than 'old' is not a moment" in capsys.readouterr().err
        assert main(["store", "gc", "--dry-run", "--store", store.url]) == 0
        assert "0 runs would be deleted" in capsys.readouterr().out
        assert Run.open("t-1", store).counts == {"DONE": 2}
