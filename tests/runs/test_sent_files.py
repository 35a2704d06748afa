"""What was sent to a run before it began: found by its checksum, collected when unneeded."""

import hashlib
import os
import secrets
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from partwise.errors import InputError, IntegrityError
from partwise.gangs.checkpoints import upload_files
from partwise.gangs.folder_files import files_below
from partwise.runs.checkpoints import CheckpointDocument, CheckpointFile, FilePart
from partwise.runs.sent_files import (
    content_of_sent,
    parse_sent,
    read_sent,
    sent_folder,
    sent_url,
    unneeded,
    write_sent,
)
from partwise.scripts.snapshot import snapshot_name
from partwise.store.store import Store

HOUR_S = 3600.0


def send(store: Store, folder: Path, content: dict[str, bytes]) -> str:
    """Send files of this content, and return the name of their list."""
    folder.mkdir(parents=True)
    for name, each in content.items():
        (folder / name).write_bytes(each)
    token, found = secrets.token_hex(4), list(files_below(folder, keep_links=True))
    files = upload_files(store, sent_folder("run"), found, f"{token}-")
    return write_sent(store, "run", token, files)


def send_as_before(store: Store, folder: Path, content: dict[str, bytes]) -> str:
    """Send files as releases did that named all by its sha256."""
    files = []
    for name, each in sorted(content.items()):
        digest = hashlib.sha256(each).hexdigest()
        parts = (FilePart(name=digest, size_bytes=len(each), sha256=digest),) if each else ()
        for part in parts:
            store.write(f"{sent_folder('run')}/{part.name}", each)
        files.append(CheckpointFile(path=name, parts=parts))
    listed = CheckpointDocument(step=0, files=tuple(files)).to_bytes()
    name = hashlib.sha256(listed).hexdigest()
    store.write(f"{sent_folder('run')}/{name}.json", listed)
    return name


def received(store: Store, name: str) -> dict[str, bytes]:
    return {
        file.path: b"".join(store.read(f"{sent_folder('run')}/{part.name}") for part in file.parts)
        for file in read_sent(store, "run", name)
    }


def test_a_path_that_not_every_machine_can_have_is_refused_before_it_is_sent(tmp_path) -> None:
    store, deep = Store.parse(tmp_path / "store"), tmp_path.joinpath("folder", *["d" * 240] * 4)
    deep.mkdir(parents=True)
    (deep / "rows.csv").touch()
    found = list(files_below(tmp_path / "folder", keep_links=True))
    with pytest.raises(InputError, match=r"too long to be sent: .* 900 in all"):
        upload_files(store, sent_folder("run"), found)
    assert list(store.list("")) == []


def test_equal_files_make_equal_lists_whatever_rights_they_have(tmp_path) -> None:
    store, names = Store.parse(tmp_path / "store"), set()
    for rights in (0o644, 0o755):
        folder = tmp_path / oct(rights)
        name = send(store, folder, {"a": b"1"})
        (folder / "a").chmod(rights)
        files = upload_files(store, sent_folder("run"), [*files_below(folder)], oct(rights))
        names.add(content_of_sent(write_sent(store, "run", secrets.token_hex(4), files)))
        assert content_of_sent(name) in names
    assert len(names) == 1


def make_older(root: Path, hours: float) -> None:
    moment = time.time() - hours * HOUR_S
    for path in root.rglob("*"):
        os.utime(path, (moment, moment))


CONTENTS = st.dictionaries(st.sampled_from("abc"), st.sampled_from([b"", b"1", b"22"]), min_size=1)


@settings(max_examples=40)
@given(
    sent=st.lists(st.tuples(CONTENTS, st.booleans(), st.booleans()), max_size=4),
    code=st.lists(st.tuples(st.sampled_from("01234"), st.booleans(), st.booleans()), max_size=4),
)
def test_what_a_document_names_or_is_young_stays_whole_and_all_else_goes(
    tmp_path_factory: pytest.TempPathFactory,
    sent: list[tuple[dict[str, bytes], bool, bool]],
    code: list[tuple[str, bool, bool]],
) -> None:
    folder = tmp_path_factory.mktemp("sent")
    store = Store.parse(folder / "store")
    kept: dict[str, dict[str, bytes]] = {}
    kept_code, documents = set(), []
    # The old ones first.
    for number, (content, is_young, is_named) in enumerate(sorted(sent, key=lambda one: one[1])):
        if is_young and not (folder / "aged").exists():
            make_older(folder / "store", 30)
            (folder / "aged").touch()
        # Every other one by an earlier release.
        name = (send_as_before if number % 2 else send)(store, folder / str(number), content)
        assert received(store, name) == content
        if is_young or is_named:
            kept[name] = content
        if is_named:
            documents.append(f'{{"inputs": {{"x": "{sent_url("run", name, "a")}"}}}}')
    if not (folder / "aged").exists():
        make_older(folder / "store", 30)
    for digit, is_young, is_named in sorted(code, key=lambda one: one[1]):
        name = f"snapshots/{digit * 64}.tar.gz" if digit < "2" else snapshot_name(digit * 64)
        path = f"runs/run/{name}"
        store.write(path, b"packed")
        if is_young or is_named:
            kept_code.add(path)
        if is_named:
            documents.append(f'{{"source_directory": "run://run/{name}"}}')
        if not is_young:
            moment = time.time() - 30 * HOUR_S
            os.utime(folder / "store" / path, (moment, moment))
    since = datetime.now(UTC) - timedelta(hours=24)
    for path in list(unneeded(store, "run", documents, since)):
        store.delete(path)
    for name, content in kept.items():
        assert received(store, name) == content
    left = set(store.list("runs/run/"))
    assert {path for path in left if "/snapshots/" in path} == kept_code
    folder_of = sent_folder("run")
    needed = {f"{folder_of}/{name}.json" for name in kept}
    needed |= {
        f"{folder_of}/{part.name}"
        for name in kept
        for file in read_sent(store, "run", name)
        for part in file.parts
    }
    assert {path for path in left if "/sent/" in path} == needed
    assert list(unneeded(store, "another", documents, since)) == []


def test_equal_files_are_known_as_equal_and_share_no_name(tmp_path: Path) -> None:
    store, content = Store.parse(tmp_path / "store"), {"a": b"1", "b": b"", "c": b"1"}
    before = send_as_before(store, tmp_path, content)
    names = [send(store, tmp_path / place, content) for place in ("one", "two")]
    assert {content_of_sent(name) for name in names} == {before}
    assert len({*names, before}) == 3
    other = send(store, tmp_path / "three", {"a": b"1", "b": b"1", "c": b""})
    assert content_of_sent(other) != before


@pytest.mark.parametrize("name", ["0a" * 32, "0a" * 32 + "-01234567"])
def test_names_are_read_as_they_are_written_and_no_others(name: str) -> None:
    assert parse_sent(sent_url("one", name, "rows.csv")) == ("one", name, "rows.csv")
    assert parse_sent(sent_url("one", name)) == ("one", name, "")
    for other in ("run://one/0/outputs/x", "run://one", "run://one/sent/0a", f"s3://b/sent/{name}"):
        assert parse_sent(other) is None


def test_a_list_that_was_changed_is_told(tmp_path: Path) -> None:
    store = Store.parse(tmp_path / "store")
    name = send(store, tmp_path / "mine", {"a": b"1"})
    path = f"{sent_folder('run')}/{name}.json"
    store.write(path, store.read(path).replace(b'"a"', b'"b"'))
    with pytest.raises(IntegrityError, match="differs from its checksum"):
        read_sent(store, "run", name)
