"""The driver's folder: there while it lives, gone when it does not."""

import fcntl
import subprocess
import sys
import tempfile

import pytest

from partwise.shuffle.scratch import run_scratch

SCRIPT = """
import sys
from partwise.shuffle.scratch import run_scratch
with run_scratch() as folder:
    (folder / "rows.arrow").write_bytes(b"rows")
    print(folder, flush=True)
    sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def temporary_folder(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)


def test_a_folder_is_there_for_a_block() -> None:
    with run_scratch() as folder:
        (folder / "rows.arrow").write_bytes(b"rows")
        with run_scratch() as other:
            assert other != folder
        assert (folder / "rows.arrow").exists()
    assert not folder.exists()
    assert not other.exists()


def test_the_folder_of_a_killed_process_is_removed_by_the_next(tmp_path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", SCRIPT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        left = tmp_path / process.stdout.readline().strip().rpartition("/")[2]
        with run_scratch():
            assert (left / "rows.arrow").exists(), "its process lives"
        process.kill()
    assert (left / "rows.arrow").exists()
    (tmp_path / "partwise-rows-of-nobody").mkdir()
    with run_scratch() as folder:
        assert not left.exists()
        nobody = tmp_path / "partwise-rows-of-nobody"
        assert sorted(tmp_path.iterdir()) == sorted([folder, folder.with_suffix(".lock"), nobody])


def test_two_that_start_at_the_same_moment_leave_each_other_alone(tmp_path, monkeypatch) -> None:
    lock = fcntl.flock
    others = []

    def flock(descriptor: int, how: int) -> None:
        # Another driver begins between any two steps of this one, and tidies up.
        if len(others) < 5:
            others.append(how)
            with run_scratch() as other:
                assert other.is_dir()
        lock(descriptor, how)

    monkeypatch.setattr(fcntl, "flock", flock)
    with run_scratch() as folder:
        (folder / "rows").write_bytes(b"x")
    assert others
    assert list(tmp_path.iterdir()) == []
