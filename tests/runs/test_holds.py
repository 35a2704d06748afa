"""Holds: what keeps files of a run that a newer generation replaced."""

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from partwise.catalogs.commit import commit_version
from partwise.catalogs.documents import Origin
from partwise.catalogs.garbage import collect_catalog_garbage
from partwise.catalogs.rows import champions_of
from partwise.errors import (
    InputError,
    IntegrityError,
    NewerFormatError,
    RunBusyError,
    RunFormatError,
    SignatureError,
)
from partwise.models.serdes import serde_name
from partwise.runs import holds
from partwise.runs.bundle import artifact_from_row
from partwise.runs.garbage import collect_garbage
from partwise.runs.holds import read_holds
from partwise.runs.removal import remove_run
from partwise.runs.run import Run
from partwise.runs.verification import set_aside, verify_run
from partwise.store import signing
from partwise.store.signing import KEYS_VARIABLE, STATE_VARIABLE, seal, unseal
from partwise.store.store import Store
from tests.one_catalog import Words, promote, said, train, train_and_promote, words
from tests.run_maker import RunMaker
from tests.two_drivers import silent_owners

FIRST = {"a": 1.0, "b": 2.0}
OTHER = {"a": 7.0, "b": 8.0}


def gc(store: Store) -> list[str]:
    return [path for path, _ in collect_garbage(store, "run", dry_run=False, grace_hours=0).files]


def overwritten(store: Store) -> Store:
    """Return a store whose run was overwritten after a catalog drew on it."""
    train_and_promote(store, "run", FIRST)
    train(store, "run", OTHER)
    return store


def test_what_a_version_draws_on_outlives_an_overwrite(store) -> None:
    held = overwritten(store)
    old = promote(held, "run").document.base
    assert gc(held) != []
    assert words(promote(held, "run")) == said(OTHER)
    assert words(type(promote(held, "run")).open(f"sales@{old}", held)) == said(FIRST)
    # With the ledger, the generation can be opened as a whole.
    shown = Run.open("run", held, generation=1)
    assert shown.model("a", Words()) == "a 1.0"
    assert verify_run("run", held).damages == []
    assert gc(held) == []
    # Once no version draws on it any more, it is garbage like any other.
    gone = collect_catalog_garbage(held, "sales", keep=1, older_than=timedelta(0), dry_run=False)
    assert {path.split("/")[0] for path, _ in gone} == {"catalogs", "runs"}
    deleted = gc(held)
    assert any("/bundles/" in path for path in deleted)
    assert "runs/run/generations/0001.ledger.parquet" in deleted
    assert words(promote(held, "run")) == said(OTHER)


def test_a_run_that_a_catalog_draws_on_is_not_removed(local_store) -> None:
    held = overwritten(local_store)
    with pytest.raises(InputError, match=r"run 'run' is drawn on by catalog://sales@1: retire"):
        remove_run(held, "run")
    train(held, "other", OTHER)
    for _ in range(3):
        promote(held, "other")
        promote(held, "run")
    with pytest.raises(InputError, match=r"@1, .+@5 and 1 more version: retire"):
        remove_run(held, "run")
    promote(held, "other")
    collect_catalog_garbage(held, "sales", keep=1, older_than=timedelta(0), dry_run=False)
    assert remove_run(held, "run").files > 4


def test_a_hold_without_a_version_counts_for_a_day(local_store, monkeypatch) -> None:
    held = overwritten(local_store)
    (hold,) = read_holds(held, "run").counting
    held.delete("catalogs/sales/versions/0001.json")
    assert read_holds(held, "run").counting == (hold,)
    assert not any("/bundles/" in path for path in gc(held))
    monkeypatch.setattr(holds, "UNUSED_FOR", timedelta(0))
    assert read_holds(held, "run").stale == (hold.path,)
    assert hold.path in gc(held)
    assert held.list("runs/run/held/") == []


def test_one_whose_number_another_version_took_does_not_count(local_store) -> None:
    held = overwritten(local_store)
    (hold,) = read_holds(held, "run").counting
    content = held.read(hold.document)
    # Of a damaged version nobody knows; it may be restored.
    held.write(hold.document, content.replace(hold.token.encode(), b"0" * 16))
    assert read_holds(held, "run").counting == (hold,)
    body = unseal(content)
    assert body is not None
    held.write(hold.document, seal(body.replace(hold.token.encode(), b"0" * 16)))
    assert read_holds(held, "run").stale == (hold.path,)


@pytest.mark.parametrize("content", [b"", b"{}", b"x" * 100])
def test_a_damaged_hold_has_nothing_deleted(local_store, content) -> None:
    train_and_promote(local_store, "run", FIRST)
    train(local_store, "run", OTHER)
    (path,) = local_store.list("runs/run/held/")
    whole = local_store.read(path)
    for wrong in (content, whole.replace(b"bundles/", b"bundlez/")):
        local_store.write(path, wrong)
        for refused in (gc, lambda store: remove_run(store, "run")):
            with pytest.raises(RunFormatError, match=r"held/.+delete it if no version"):
                refused(local_store)
        (damage,) = verify_run("run", local_store).damages
        assert "held/" in str(damage)
    local_store.delete(path)
    local_store.write(f"{path[:-5]}x.json", whole)
    with pytest.raises(RunFormatError, match="belongs elsewhere"):
        gc(local_store)


def test_a_hold_of_a_newer_release_has_nothing_deleted_and_is_no_damage(local_store) -> None:
    train_and_promote(local_store, "run", FIRST)
    (path,) = local_store.list("runs/run/held/")
    local_store.write(path, b'{"format_version": 99}')
    for refused in (gc, lambda store: verify_run("run", store)):
        with pytest.raises(NewerFormatError, match=r"held/.+install a newer partwise"):
            refused(local_store)


def test_with_keys_a_hold_has_to_be_signed(local_store, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv(STATE_VARIABLE, str(tmp_path / "state"))
    monkeypatch.setattr(signing, "_of_blocks", {})
    monkeypatch.setenv(KEYS_VARIABLE, f"ours:{'a1' * 32}")
    train_and_promote(local_store, "run", FIRST)
    assert len(read_holds(local_store, "run").counting) == 1
    monkeypatch.setenv(KEYS_VARIABLE, f"other:{'b2' * 32}")
    with pytest.raises(SignatureError, match="key 'ours'"):
        read_holds(local_store, "run")


def test_what_is_held_is_looked_at_and_stays_in_its_place(local_store) -> None:
    run = train(local_store, "run", FIRST)
    promote(local_store, "run")
    artifact = artifact_from_row(run.ledger["artifacts"][0][0].as_py())
    path = Path(local_store.url, "runs/run", artifact.bundle)
    whole = path.read_bytes()
    path.write_bytes(whole[: artifact.offset] + b"X" + whole[artifact.offset + 1 :])
    found = verify_run("run", local_store)
    with pytest.raises(InputError, match=r"stays in its place, since catalog://sales@1 draws"):
        set_aside(found, local_store)
    assert path.exists()
    path.unlink()
    texts = [str(damage) for damage in verify_run("run", local_store).damages]
    assert any("it is gone, and catalog://sales@1 draws on it" in text for text in texts)


def test_the_time_of_a_hold_is_the_later_of_two(local_store, monkeypatch) -> None:
    """A clock that is behind by days, of whoever promotes or of the store, has none count less."""
    train_and_promote(local_store, "run", FIRST)
    (hold,) = read_holds(local_store, "run").counting
    local_store.delete(hold.document)
    behind = hold.model_copy(update={"created_at": datetime.now(UTC) - timedelta(days=3)})
    local_store.write(hold.path, behind.to_bytes(hold.path, local_store))
    assert len(read_holds(local_store, "run").counting) == 1
    for created_at, counting in ((hold.created_at, 1), (behind.created_at, 0)):
        held = hold.model_copy(update={"created_at": created_at})
        local_store.write(hold.path, held.to_bytes(hold.path, local_store))
        long_ago = behind.created_at.timestamp()
        os.utime(Path(local_store.url, hold.path), (long_ago, long_ago))
        assert len(read_holds(local_store, "run").counting) == counting


def test_who_lost_the_run_before_its_hold_was_there_makes_no_version(
    local_store, monkeypatch
) -> None:
    train(local_store, "run", FIRST)
    create = holds.create_hold

    def overtaken(store: Store, hold: holds.Hold) -> None:
        monkeypatch.setattr(holds, "create_hold", create)
        with silent_owners():
            train(store, "run", OTHER)
            assert any("/bundles/" in path for path in gc(store))
        create(store, hold)

    monkeypatch.setattr(holds, "create_hold", overtaken)
    with pytest.raises(RunBusyError, match="was taken over"):
        promote(local_store, "run")
    assert local_store.list("catalogs/") == []
    assert local_store.list("runs/run/held/") == []
    assert words(promote(local_store, "run")) == said(OTHER)


def test_models_that_were_tidied_up_since_they_were_chosen_make_no_version(local_store) -> None:
    rows = champions_of(train(local_store, "run", FIRST))
    train(local_store, "run", OTHER)
    origin = Origin(action="promote")
    # While the bundles are there, those of before can be promoted.
    commit_version(local_store, "kept", base=None, champions=rows, origin=origin)
    collect_catalog_garbage(local_store, "kept", keep=1, older_than=timedelta(0), dry_run=False)
    local_store.delete_folder("catalogs/kept")
    local_store.delete_folder("runs/run/held")
    gc(local_store)
    with pytest.raises(IntegrityError, match="is gone: the run was overwritten and tidied up"):
        commit_version(local_store, "sales", base=None, champions=rows, origin=origin)
    assert local_store.list("catalogs/") == []


def test_a_run_that_never_was_complete_is_refused(local_store) -> None:
    maker = RunMaker(local_store, "run", "train", serde_name(Words()))
    maker.begin()
    maker.commit(("a", "DONE", 1.0), ("b", "DONE", 2.0))
    maker.die()
    with pytest.raises(InputError, match="was never complete: resume it first"):
        promote(local_store, "run")


def test_of_ledgers_those_that_describe_a_bundle_are_held() -> None:
    ledgers = [f"generations/{number:04d}.ledger.parquet" for number in (1, 3, 4, 9)]
    bundles = [f"bundles/00000-g{number:04d}{'ab' * 4}-001.zip" for number in (2, 3, 9)]
    assert holds.needed_files([*bundles, *ledgers]) == (*bundles, ledgers[1], ledgers[3])
    assert holds.needed_files(ledgers) == ()
