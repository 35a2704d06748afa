"""Folders that users' code has filled: what is sent of them, and what comes out elsewhere."""

import json
import os
import random
from pathlib import Path

import pytest

from partwise.errors import NewerFormatError, RunFormatError
from partwise.gangs.checkpoints import upload_files, write_files
from partwise.gangs.folder_files import files_below
from partwise.runs.checkpoints import CheckpointDocument
from partwise.scripts.inputs import find_path
from partwise.scripts.outputs import find_outputs
from partwise.store.store import Store

NAMES = ["a", "b", "Icon\r", "two\nlines", "é x"]


def fill(folder: Path, chance: random.Random, depth: int = 0) -> None:
    """Make files, executables, folders and links of all kinds; some lead out, back or nowhere."""
    folder.mkdir()
    for name in chance.sample(NAMES, chance.randint(1, 4)):
        path, kind = folder / name, chance.choice(["file", "program", "folder", "link", "link"])
        if kind == "folder" and depth < 2:
            fill(path, chance, depth + 1)
        elif kind == "link":
            steps = chance.choices(["..", *NAMES], k=chance.randint(1, 3))
            text = os.path.join(*steps)
            path.symlink_to(text if chance.random() < 0.6 else os.path.normpath(folder / text))
        else:
            path.write_text(f"{name} {chance.random()}")
            path.chmod(0o755 if kind == "program" else 0o644)


def seen(folder: Path) -> dict[str, tuple[bytes, bool]]:
    """What a program finds below a folder that follows each link but those that lead back."""
    found = {}

    def walk(real: str, prefix: str, above: frozenset[str]) -> None:
        for name in os.listdir(real):
            path = os.path.realpath(os.path.join(real, name))
            if os.path.isfile(path):
                content = Path(path).read_bytes()
                found[prefix + name] = content, os.access(path, os.X_OK)
            elif os.path.isdir(path) and path not in above:
                walk(path, f"{prefix}{name}/", above | {path})

    root = os.path.realpath(folder)
    walk(root, "", frozenset({root}))
    return found


def sent(folder: Path, to: Path) -> Path:
    """Send a folder through a store and its document, as checkpoints and inputs are."""
    store = Store.parse(to / "store")
    files = upload_files(store, "parts", list(files_below(folder, keep_links=True)))
    content = CheckpointDocument(step=1, files=files).to_bytes()
    (to / "folder").mkdir()
    listed = CheckpointDocument.from_bytes(content, "there").files
    write_files(listed, to / "folder", lambda part: store.read(f"parts/{part.name}"))
    return to / "folder"


@pytest.mark.parametrize("seed", range(60))
def test_a_folder_looks_the_same_where_it_was_sent_to(tmp_path, seed):
    chance = random.Random(seed)
    # No link leads up to where it is sent to.
    out = tmp_path / "1" / "2" / "out"
    out.mkdir(parents=True)
    (out / "a").write_text("out there")
    folder = out / "folder"
    fill(folder, chance)
    there = sent(folder, tmp_path)

    assert seen(there) == seen(folder)
    followed = {file.name: file.path.read_bytes() for file in files_below(folder)}
    assert followed == {name: content for name, (content, _) in seen(folder).items()}
    for path in there.rglob("*"):
        if path.is_symlink():
            assert (folder / path.relative_to(there)).is_symlink()
            assert not os.path.isabs(os.readlink(path))
            assert path.resolve().is_relative_to(there.resolve())


def test_the_newest_of_checkpoints_stays_a_link_that_a_script_can_replace(tmp_path):
    folder = tmp_path / "checkpoints"
    (folder / "step-1").mkdir(parents=True)
    (folder / "step-1" / "state").write_text("1")
    (folder / "latest").symlink_to(folder / "step-1")
    (folder / "best").symlink_to("latest")
    there = sent(folder, tmp_path)
    assert [os.readlink(there / name) for name in ("latest", "best")] == ["step-1", "step-1"]
    assert (there / "latest" / "state").read_text() == "1"


@pytest.mark.parametrize(
    "files",
    [
        {"x": ".."},
        {"x": "/etc"},
        {"a/x": "../.."},
        {"a/x": "../b/../../.."},
        {"x": "y/.."},
        {"x": "a", "x/file": ""},
        {"x": "a", "x/b/c/file": ""},
    ],
)
def test_links_of_a_forged_list_lead_nowhere_else(files):
    listed = [{"path": path, "parts": [], "link": link} for path, link in files.items()]
    content = json.dumps({"format_version": 1, "step": 1, "files": listed}).encode()
    with pytest.raises(RunFormatError, match="is not in its folder"):
        CheckpointDocument.from_bytes(content, "there")


def test_a_document_of_a_newer_format_is_told_as_such_whatever_else_is_in_it():
    content = json.dumps({"format_version": 3, "step": "1-2", "trees": []}).encode()
    with pytest.raises(NewerFormatError, match=r"there has format version 3, .* install a newer"):
        CheckpointDocument.from_bytes(content, "there")


def test_a_document_is_of_a_new_version_where_it_has_a_link_alone(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "file").write_text("")
    assert CheckpointDocument(step=1, files=()).to_bytes().startswith(b'{\n  "format_version": 1,')
    (tmp_path / "latest").symlink_to("a")
    files = upload_files(
        Store.parse(tmp_path / "store"), "parts", [*files_below(tmp_path, keep_links=True)]
    )
    content = CheckpointDocument(step=1, files=files).to_bytes()
    assert json.loads(content)["format_version"] == 2
    assert CheckpointDocument.from_bytes(content, "there").files == files


def test_folders_that_may_not_be_read_are_left_out(tmp_path, monkeypatch):
    for name in ("a", "lost+found"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text("")
    scandir = os.scandir

    def refusing(path):
        if Path(path).name == "lost+found":
            raise PermissionError(13, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refusing)
    assert [file.name for file in files_below(tmp_path)] == ["a/file"]


def test_outputs_behind_links_are_kept_once_and_those_elsewhere_refused(tmp_path, monkeypatch):
    work, elsewhere = tmp_path / "work", tmp_path / "elsewhere"
    for folder in (work / "outputs" / "step-1", work / "made", elsewhere):
        folder.mkdir(parents=True)
        (folder / "model.bin").write_text("m")
    links = {
        "latest": "step-1",
        "made": "../made",
        "again": "../made",
        "loop": "../outputs",
        "up": "..",
        "step-1/up": "../..",
        "step-1/around": "../again",
        "best.bin": "step-1/model.bin",
    }
    for name, to in links.items():
        (work / "outputs" / name).symlink_to(to)
    found = find_outputs(work, ["outputs/**"])
    names = ["again/model.bin", "best.bin", "made/model.bin", "step-1/around/model.bin"]
    assert list(found) == [f"outputs/{name}" for name in [*names, "step-1/model.bin"]]
    # What a glob names is kept, whatever else is.
    latest = "outputs/latest/model.bin"
    for globs in ["outputs/latest"], ["outputs/**", latest], [latest, "outputs/**"]:
        assert latest in find_outputs(work, globs)

    (work / "outputs" / "model").symlink_to(elsewhere)
    scandir = os.scandir
    looked_at = []
    monkeypatch.setattr(os, "scandir", lambda path: looked_at.append(str(path)) or scandir(path))
    with pytest.raises(ValueError, match=r"outputs/model is a link to .*elsewhere"):
        find_outputs(work, ["outputs/**"])
    assert str(work / "outputs" / "model") not in looked_at


def test_an_input_that_is_shared_may_have_any_names_and_links(tmp_path):
    folder = tmp_path / "data"
    for year in ("2023", "2\n024"):
        (folder / year).mkdir(parents=True)
        (folder / year / "Icon\r").write_text(year)
        (folder / year / "a\nb").write_text(year)
    (folder / "current").symlink_to("2023")
    found, store = find_path(str(folder)), Store.parse(tmp_path)
    (folder / "2023" / "made by the script").write_text("")
    (folder / "current").unlink()
    (folder / "current").symlink_to("2\n024")
    assert found.bring("data", tmp_path / "node", store) == folder
    (folder / "2023" / "a\nb").write_text("changed")
    with pytest.raises(ValueError, match="has changed"):
        found.bring("data", tmp_path / "node", store)
