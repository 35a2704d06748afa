"""A store that is moved away, or unmounted, in the middle of a run: noticed, and not made again."""

import shutil
from pathlib import Path

import pytest

from partwise.errors import PartwiseError
from partwise.runs.run import Run
from partwise.store import local_objects
from partwise.store.store import Store
from tests.one_shard import RUN_ID, check, drive
from tests.two_drivers import Clockwork, WatchedStore, silent_owners

VALUES = {"a": 1.0, "b": 2.0, "c": 3.0}
CHANGED = {"a": 1.0, "b": 20.0, "c": 3.0}


@pytest.mark.parametrize("how", ["moved away", "unmounted", "run deleted"])
def test_a_store_that_goes_in_mid_run_is_not_made_anew(tmp_path: Path, how: str) -> None:
    refused = 0
    for number in range(1, 100, 3):
        root, aside = tmp_path / f"{number}", tmp_path / f"{number} aside"
        store = Store.parse(root)
        drive(store, VALUES)
        gone = root / "runs" / RUN_ID if how == "run deleted" else root
        in_use = []

        def go(
            root: Path = root, gone: Path = gone, aside: Path = aside, in_use: list[bool] = in_use
        ) -> None:
            in_use.append(str(root) in local_objects._held)
            gone.rename(aside)
            if how == "unmounted":
                gone.mkdir()

        clockwork = Clockwork(number, go)
        try:
            drive(WatchedStore(url=str(root), clockwork=clockwork), CHANGED)
        except PartwiseError:
            refused += 1
        if not in_use:
            break  # so many operations there are not
        if not in_use[0]:
            continue  # nothing had begun
        if how == "unmounted":
            assert list(root.iterdir()) == [], f"before {clockwork.stopped_at}"
            root.rmdir()
        elif how == "moved away":
            assert not root.exists(), f"before {clockwork.stopped_at}"
        else:
            # Single objects may be on their way, but what they are of does not come back.
            assert not (gone / "run.json").exists()
            shutil.rmtree(gone, ignore_errors=True)
        gone.parent.mkdir(exist_ok=True)
        aside.rename(gone)
        with silent_owners():
            check(drive(store, CHANGED), CHANGED)
        check(Run.open(RUN_ID, store), CHANGED)
    assert refused > 5


def test_a_user_that_ends_meanwhile_makes_no_store_a_moved_one(tmp_path, monkeypatch) -> None:
    """Another thread's claim ends just as this one compares directories."""
    store = Store.parse(tmp_path)
    store.create("x", b"x")
    identity = local_objects._identity
    user = local_objects.held_root(str(tmp_path))
    user.__enter__()

    def end_user(folder: str):
        monkeypatch.setattr(local_objects, "_identity", identity)
        user.__exit__(None, None, None)
        return identity(folder)

    monkeypatch.setattr(local_objects, "_identity", end_user)
    assert store.read("x") == b"x"
