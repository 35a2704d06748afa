"""What another user puts into a scratch folder to which others can write: it is used by nobody."""

import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from partwise.environments.cache import (
    BuiltDocument,
    environments_folder,
    read_document,
    write_document,
)
from partwise.errors import InputError
from partwise.shuffle.shard_cache import SCRATCH_VARIABLE, SHARDS, own_folder, scratch_folder

NOBODY = 65534
BUILT = BuiltDocument(
    name="statsmodels",
    python="/tmp/theirs/bin/python",
    site_packages="/tmp/theirs/lib",
    packages={},
    size_bytes=1,
    built_at="2026-11-25T00:00:00+00:00",
    seconds=1.0,
)


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "scratch"
    folder.mkdir()
    folder.chmod(0o1777)
    monkeypatch.setenv(SCRATCH_VARIABLE, str(folder))
    return folder


needs_root = pytest.mark.skipif(os.getuid() != 0, reason="files of other users are made by root")


@needs_root
@pytest.mark.parametrize("name", ["environments", SHARDS, "studies"])
def test_a_folder_that_another_user_made_is_refused(scratch: Path, name: str) -> None:
    (scratch / name).mkdir(mode=0o755)
    os.chown(scratch / name, NOBODY, NOBODY)
    with pytest.raises(InputError, match=re.escape(f"{scratch}/{name}' was made by another user")):
        own_folder(name)


@needs_root
@pytest.mark.parametrize("theirs", ["the entry", "its document"])
def test_an_environment_that_another_user_made_is_refused(scratch: Path, theirs: str) -> None:
    entry = environments_folder() / "1234"
    (entry / "env" / "lib" / "python3.11" / "site-packages").mkdir(parents=True)
    (entry / "env" / "bin").mkdir()
    (entry / "env" / "bin" / "python").touch()
    write_document(entry, BUILT)
    assert read_document(entry) == BUILT
    os.chown(entry if theirs == "the entry" else entry / "complete.json", NOBODY, NOBODY)
    with pytest.raises(InputError, match=r"was made by another user.*\(owner 65534, mode"):
        read_document(entry)


def test_an_entry_that_is_a_link_is_refused(scratch: Path, tmp_path: Path) -> None:
    (tmp_path / "theirs").mkdir()
    write_document(tmp_path / "theirs", BUILT)
    (environments_folder() / "1234").symlink_to(tmp_path / "theirs")
    with pytest.raises(InputError, match="so nothing of it is used"):
        read_document(environments_folder() / "1234")


MODES: dict[str, Callable[[Path], Path]] = {
    "the scratch folder": lambda scratch: scratch,
    "a folder in it": lambda scratch: scratch / "environments",
}


@pytest.mark.parametrize("mode", [0o770, 0o707, 0o777])
@pytest.mark.parametrize("which", MODES)
def test_what_others_can_write_to_is_refused(scratch: Path, which: str, mode: int) -> None:
    environments_folder()
    MODES[which](scratch).chmod(mode)
    with pytest.raises(InputError, match=r"others can write to it|Other users can write to"):
        environments_folder()


def test_a_link_is_no_scratch_folder(scratch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (scratch / "link").symlink_to(scratch)
    monkeypatch.setenv(SCRATCH_VARIABLE, str(scratch / "link"))
    with pytest.raises(InputError, match="or is a link"):
        scratch_folder()


@pytest.mark.parametrize("mode", [0o700, 0o755, 0o1777])
def test_others_may_read_a_scratch_folder_or_add_to_one_with_the_sticky_bit(
    scratch: Path, mode: int
) -> None:
    scratch.chmod(mode)
    assert environments_folder().stat().st_mode & 0o777 == 0o700
