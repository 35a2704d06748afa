"""The checkpoints folder of a script that is killed: what was kept of it is whole."""

import os
import subprocess
import sys
import textwrap

import pytest

from partwise.gangs.checkpoints import StoreCheckpoints
from partwise.runs.checkpoints import complete_checkpoints
from partwise.scripts import checkpoint_folder
from partwise.scripts.checkpoint_folder import CheckpointFolder
from partwise.store.store import Store

ROOT = "runs/forecast/checkpoints"
LOOK_S = 0.02

# Keeps three checkpoints of three files. In the second one it stands still at its n-th change of
# the folder, for many looks, and is killed then.
SAVES = """
import os, signal, sys, time
from pathlib import Path
from partwise.ranks.script_context import FolderCheckpoints

folder, deadly = Path(sys.argv[1]), int(sys.argv[2])
changes, armed = 0, False

def count(event, arguments):
    global changes
    if not armed or event not in ("open", "os.rename", "os.remove"):
        return
    if any(str(path).startswith(f"{folder}/") for path in arguments[:2]):
        changes += 1
        if changes == deadly:
            time.sleep(LOOKS)
            os.kill(os.getpid(), signal.SIGKILL)

def write(text):
    def into(new):
        for name in "abc":
            (new / name).write_text(text)
    return into

sys.addaudithook(count)
checkpoints = FolderCheckpoints(folder)
for text in ("first", "second", "third"):
    armed = text == "second"
    checkpoints.save(write(text), step=1)
    armed = False
    time.sleep(LOOKS)
""".replace("LOOKS", str(10 * LOOK_S))


@pytest.fixture
def follow(tmp_path, monkeypatch):
    """Follow a program that writes into the folder; return its exit code and what was kept."""
    monkeypatch.setattr(checkpoint_folder, "LOOK_S", LOOK_S)
    folder = tmp_path / "checkpoints"
    folder.mkdir()
    store = Store.parse(tmp_path / "store")

    def start(number):
        directory = tmp_path / f"rank-{number}"
        directory.mkdir()
        return StoreCheckpoints(
            store,
            ROOT,
            run_id="forecast",
            generation=1,
            attempt=number,
            directory=directory,
            resume_from=f"{ROOT}/{names()[-1]}" if number > 1 else "",
        )

    def names():
        return sorted(complete_checkpoints(store, ROOT))

    def run(script, *arguments):
        words = [sys.executable, "-c", textwrap.dedent(script), str(folder), *arguments]
        keeper = CheckpointFolder(folder, start(1))
        code = keeper.follow(lambda: subprocess.run(words, check=False).returncode)
        if not names():
            return code, {}
        newest = start(2).resume_from()
        files = sorted(path for path in newest.rglob("*") if path.is_file())
        return code, {path.name: path.read_text() for path in files}

    return run


@pytest.mark.parametrize("deadly", range(1, 10))
def test_a_script_killed_while_it_swaps_a_checkpoint_leaves_a_whole_one(follow, deadly):
    code, kept = follow(SAVES, str(deadly))
    # There are eight changes, so all places of a swap were tried.
    assert code == (-9 if deadly < 9 else 0)
    assert kept == dict.fromkeys("abc", "first" if deadly < 9 else "third")


def test_a_file_that_a_killed_script_was_writing_is_not_taken(follow):
    script = """
        import os, signal, sys, time
        with open(f"{sys.argv[1]}/last.pt", "w") as file:
            file.write("whole")
            file.flush()
            time.sleep(1)
            file.seek(0)
            file.write("half")
            file.flush()
            os.kill(os.getpid(), signal.SIGKILL)
    """
    assert follow(script) == (-9, {"last.pt": "whole"})


@pytest.mark.parametrize("code", [0, 3])
def test_what_a_script_leaves_that_ends_by_itself_is_taken(follow, code):
    script = f"""
        import pathlib, sys
        pathlib.Path(sys.argv[1], "last.pt").write_text("at the end")
        sys.exit({code})
    """
    assert follow(script) == (code, {"last.pt": "at the end"})


@pytest.fixture
def vanish(monkeypatch):
    """Let the folder `model` be gone whenever it is opened for the n-th time of these."""
    scandir, opened = os.scandir, []

    def at(times):
        def open_folder(path="."):
            if str(path).endswith("checkpoints/model"):
                opened.append(path)
                if len(opened) in times:
                    raise FileNotFoundError(2, "No such file or directory", str(path))
            return scandir(path)

        monkeypatch.setattr(os, "scandir", open_folder)

    return at


# The first two are looks, and the third comes after the copy.
@pytest.mark.parametrize("time", [1, 2, 3])
def test_folders_that_vanish_while_they_are_looked_at_end_nothing(follow, vanish, time, caplog):
    vanish({time})
    script = f"""
        import os, pathlib, signal, sys, time
        folder = pathlib.Path(sys.argv[1])
        (folder / "model").mkdir()
        for text in ("first", "second"):
            (folder / "model" / "a").write_text(text)
            time.sleep({20 * LOOK_S})
        os.kill(os.getpid(), signal.SIGKILL)
    """
    assert follow(script) == (-9, {"a": "second"})
    assert not caplog.records


def test_a_script_whose_last_checkpoint_cannot_be_read_is_told_so(follow, vanish, caplog):
    vanish(range(1, 1000))
    script = """
        import pathlib, sys
        (pathlib.Path(sys.argv[1]) / "model").mkdir()
    """
    assert follow(script) == (0, {})
    assert "the last checkpoint was not kept: [Errno 2] No such file" in caplog.text
