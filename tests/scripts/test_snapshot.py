"""The source directory of a script: what is packed, what is refused, what is unpacked."""

import gzip
import hashlib
import io
import os
import subprocess
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from partwise.errors import InputError, IntegrityError
from partwise.scripts import snapshot as module
from partwise.scripts.snapshot import (
    LARGEST_COUNT,
    Snapshot,
    read_snapshot_names,
    sha256_of_snapshot,
    snapshot_name,
    take_snapshot,
    unpack_snapshot,
)
from tests.scripts.script_ranks import packed

NAMES = st.text("abc.é ", min_size=1, max_size=6).filter(lambda name: name.strip(". ") != "")


@settings(max_examples=30)
@given(st.dictionaries(st.lists(NAMES, min_size=1, max_size=3).map("/".join), st.binary()))
def test_what_is_packed_is_unpacked_as_it_was(files):
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory, "source")
        root.mkdir()
        kept = {}
        for name, content in files.items():
            path = root / name
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
            except OSError:
                continue  # a file and a folder of one name
            kept[name] = content
        taken = take_snapshot(root)
        again = take_snapshot(root)
        assert taken.content == again.content
        assert sha256_of_snapshot(taken.name) == sha256_of_snapshot(again.name)
        assert taken.name != again.name
        target = Path(directory, "target")
        unpack_snapshot(taken.content, taken.name, target)
        found = {
            path.relative_to(target).as_posix(): path.read_bytes()
            for path in target.rglob("*")
            if path.is_file()
        }
        assert found == kept


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def test_ignored_files_are_left_out_as_git_leaves_them_out(tmp_path):
    root = write(
        tmp_path,
        {
            ".gitignore": "\ufeff*.log\n!keep.log\nbuild/\n/top.txt\n",
            "main.py": "",
            "a.log": "",
            "keep.log": "",
            "build/keep.log": "",
            "top.txt": "",
            "sub/top.txt": "",
            "sub/.gitignore": "*.py\n",
            "sub/x.py": "",
            "data/.partwiseignore": "*.csv\n",
            "data/rows.csv": "",
            "data/.gitignore": "!rows.csv\n",
            ".git/config": "",
            "__pycache__/main.pyc": "",
        },
    )
    names = _names(take_snapshot(root))
    assert names == {
        *(".gitignore", "main.py", "keep.log", "sub/top.txt", "sub/.gitignore"),
        *("data/.partwiseignore", "data/.gitignore"),
    }


def test_links_stay_in_the_folder_and_files_keep_their_right_to_be_run(tmp_path):
    root = write(tmp_path / "source", {"bin/go.sh": "#!/bin/sh\n", "a.txt": "a"})
    (root / "bin" / "go.sh").chmod(0o755)
    (root / "bin" / "inner").symlink_to("../a.txt")
    (root / "absolute").symlink_to(root / "a.txt")
    taken = take_snapshot(root)
    unpack_snapshot(taken.content, taken.name, tmp_path / "target")
    assert (tmp_path / "target" / "bin" / "inner").read_text() == "a"
    assert os.readlink(tmp_path / "target" / "absolute") == "a.txt"
    assert os.access(tmp_path / "target" / "bin" / "go.sh", os.X_OK)
    (root / "out").symlink_to("/etc/passwd")
    with pytest.raises(InputError, match="The link out leads to '/etc/passwd', out of the source"):
        take_snapshot(root)


def test_what_cannot_be_packed_is_refused(tmp_path, monkeypatch):
    with pytest.raises(InputError, match="there is no such folder"):
        take_snapshot(tmp_path / "nowhere")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InputError, match="pipe is not a file, folder or link"):
        take_snapshot(tmp_path)
    (tmp_path / ".partwiseignore").write_text("pipe\n")
    (tmp_path / "large.bin").write_bytes(b"x" * 2000)
    monkeypatch.setattr(module, "LARGEST_BYTES", 1000)
    with pytest.raises(InputError, match=r"the largest are large\.bin .*\.partwiseignore"):
        take_snapshot(tmp_path)


@pytest.mark.parametrize("name", ["../outside", "a/../../outside"])
def test_nothing_is_written_outside_of_the_folder(tmp_path, name):
    content = packed({name: b"x"})
    digest = hashlib.sha256(gzip.decompress(content)).hexdigest()
    with pytest.raises(IntegrityError, match="cannot be unpacked"):
        unpack_snapshot(content, digest, tmp_path / "target")
    assert not (tmp_path / "outside").exists()


def test_changed_bytes_are_refused(tmp_path):
    taken = take_snapshot(write(tmp_path / "source", {"main.py": "1"}))
    with pytest.raises(IntegrityError, match="differs from its checksum"):
        unpack_snapshot(taken.content[:-9], taken.name, tmp_path / "target")


def _names(taken: Snapshot) -> frozenset[str]:
    return read_snapshot_names(taken.content, taken.name)


def _packed(fill: Callable[[tarfile.TarFile], None]) -> tuple[bytes, str]:
    """Return an archive with a name that has its checksum, as whoever writes both can make one."""
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w") as archive:
        fill(archive)
    return _named(plain.getvalue())


def _named(plain: bytes) -> tuple[bytes, str]:
    return gzip.compress(plain, 1), snapshot_name(hashlib.sha256(plain).hexdigest())


def _many(archive: tarfile.TarFile) -> None:
    for number in range(LARGEST_COUNT + 1):
        archive.addfile(tarfile.TarInfo(f"{number}"))


def _add(archive: tarfile.TarFile, *members: tuple[str, bytes, str]) -> None:
    for name, kind, link in members:
        info = tarfile.TarInfo(name)
        info.type, info.linkname = kind, link
        archive.addfile(info)


FORGED: dict[str, Callable[[], tuple[bytes, str]]] = {
    "many entries": lambda: _packed(_many),
    "no archive": lambda: _named(b"x" * 2000),
    "half of a header": lambda: _named(gzip.decompress(_packed(_many)[0])[:300]),
    "loops": lambda: _packed(
        lambda archive: _add(
            archive, ("a", tarfile.SYMTYPE, "b"), ("b", tarfile.SYMTYPE, "a"), ("a/c", b"0", "")
        )
    ),
    "a long name": lambda: _packed(lambda archive: _add(archive, ("n" * 5000, b"0", ""))),
    "a file as a folder": lambda: _packed(
        lambda archive: _add(archive, ("a", b"0", ""), ("a/b", b"0", ""))
    ),
    "a device": lambda: _packed(lambda archive: _add(archive, ("a", tarfile.CHRTYPE, ""))),
}


@pytest.mark.parametrize("name", FORGED)
def test_an_archive_that_is_no_snapshot_is_one_sentence(name: str, tmp_path: Path) -> None:
    content, where = FORGED[name]()
    with pytest.raises(IntegrityError, match=r"The snapshot .*(cannot be unpacked|has more than)"):
        unpack_snapshot(content, where, tmp_path / "target")


def test_names_are_not_read_before_the_checksum(monkeypatch: pytest.MonkeyPatch) -> None:
    def opened(*_: object, **__: object) -> None:
        raise AssertionError("the archive was read")

    content, _ = _packed(_many)
    monkeypatch.setattr(tarfile, "open", opened)
    with pytest.raises(IntegrityError, match="differs from its checksum"):
        read_snapshot_names(content, snapshot_name("0" * 64))


def test_a_loop_of_links_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(InputError, match=r"The link a leads to .*to itself"):
        take_snapshot(tmp_path)


def test_folders_in_each_other_without_an_end_are_refused(tmp_path: Path) -> None:
    here = os.open(tmp_path, os.O_RDONLY)
    for _ in range(1500):
        os.mkdir("d", dir_fd=here)
        there = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = there
    os.close(here)
    with pytest.raises(InputError, match="has more than 200 folders in each other"):
        take_snapshot(tmp_path)
    # What tidies up behind tests would meet the limit of nested calls.
    subprocess.run(["rm", "-rf", str(tmp_path / "d")], check=True)
