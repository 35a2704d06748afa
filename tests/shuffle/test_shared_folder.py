"""Files that the driver makes for workers."""

from dataclasses import replace
from pathlib import Path

import pytest

from partwise.errors import IntegrityError
from partwise.shuffle.shared_folder import SharedFolder, fetch
from partwise.store.store import Store


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store.parse(tmp_path / "store")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "shared"
    folder.mkdir()
    return folder


def test_a_shared_disk_is_used_as_it_is(store, folder) -> None:
    shared_folder = SharedFolder(folder, store, "run", "token", shared=True)
    staged = shared_folder.write("work.pkl", b"work")
    assert Path(fetch(staged, store, "nowhere")).read_bytes() == b"work"
    assert store.list("") == []
    shared_folder.close()
    assert not folder.exists()


def test_else_files_go_by_way_of_the_store_and_are_read_once(store, folder, tmp_path) -> None:
    shared_folder = SharedFolder(folder, store, "run", "token", shared=False)
    staged = shared_folder.write("work.pkl", b"work")
    assert store.list("") == ["runs/run/scratch/token/work.pkl"]
    path = Path(fetch(staged, store, str(tmp_path)))
    assert path.read_bytes() == b"work"
    shared_folder.close()
    assert store.list("") == []
    assert fetch(staged, store, str(tmp_path)) == str(path)


def test_a_store_that_refuses_to_tidy_up_spoils_no_run(store, folder, tmp_path) -> None:
    shared_folder = SharedFolder(folder, store, "run", "token", shared=False)
    shared_folder.write("work.pkl", b"work")
    scratch = Path(store.url, "runs/run/scratch")
    scratch.rename(tmp_path / "elsewhere")
    scratch.symlink_to(tmp_path / "elsewhere")
    shared_folder.close()
    assert not folder.exists()


def test_what_somebody_put_in_its_place_is_never_used(store, folder, tmp_path) -> None:
    shared_folder = SharedFolder(folder, store, "run", "token", shared=False)
    staged = shared_folder.write("work.pkl", b"work")
    for theirs in (b"", b"Work", b"work "):
        store.write(staged.path, theirs)
        with pytest.raises(IntegrityError, match="not what this run's driver wrote"):
            fetch(staged, store, str(tmp_path))
        assert not (tmp_path / "work.pkl").exists()
    # Without a checksum nothing is taken either.
    with pytest.raises(IntegrityError):
        fetch(replace(staged, sha256=""), store, str(tmp_path))
