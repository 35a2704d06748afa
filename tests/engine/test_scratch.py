"""A full or broken disk of a worker stops the run with a sentence, and fails no partition."""

import os
import random
import shutil
import subprocess
from contextlib import contextmanager
from pathlib import Path

import pytest

from partwise.engine.worker.scratch import check_scratch, own_scratch
from partwise.errors import ScratchError
from tests.engine.shards import ShardOfRun, TestHost, table_of

MIB = 1 << 20
KEYS = {f"k{i}": i for i in range(6)}


@contextmanager
def small_disk(folder: Path, mib: int):
    """Mount a file system of so many MiB, where one may."""
    folder.mkdir()
    words = ["mount", "-t", "tmpfs", "-o", f"size={mib}m", "none", str(folder)]
    if os.geteuid() != 0 or subprocess.run(words, capture_output=True).returncode != 0:
        pytest.skip("file systems can be mounted by root only")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.fixture(params=["shared", "partition"])
def isolation(request) -> str:
    return request.param


def write_in_cwd(context) -> None:
    Path("filler").write_bytes(bytes(64 * MIB))


def upload(context) -> None:
    context.upload(random.Random(1).randbytes(20 * MIB), "large.bin")


def hide_the_error(context) -> None:
    """As a library does that has an error of its own."""
    try:
        Path("filler").write_bytes(bytes(64 * MIB))
    except OSError as error:
        raise RuntimeError("model could not be saved") from error


@pytest.mark.parametrize("spoil", [write_in_cwd, upload, hide_the_error])
def test_a_full_disk_stops_the_run_and_a_resume_does_the_rest(tmp_path, isolation, spoil) -> None:
    shard = ShardOfRun(tmp_path)
    is_full = tmp_path / "full"
    is_full.touch()

    def function(data, context):
        if context.key == "k3" and is_full.exists():
            spoil(context)
        return {"key": [context.key]}

    with small_disk(tmp_path / "disk", 16) as disk:
        shard.host = TestHost(disk / "host")
        with pytest.raises(ScratchError, match=r"scratch folder .* cannot be used: .*resume") as e:
            shard.run(function, table_of(**KEYS), max_retries=0, isolation=isolation)
        assert "No space left on device" in str(e.value)
        shutil.rmtree(disk / "host", ignore_errors=True)
        is_full.unlink()
        shard.host = TestHost(disk / "host")
        receipt, run = shard.run(function, table_of(**KEYS), max_retries=0, isolation=isolation)
    assert receipt.counts == {"DONE": 6}
    # What was done before is kept: it was committed when the disk was found full.
    assert receipt.kept == 3
    assert run.ledger["status"].unique().to_pylist() == ["DONE"]


def test_a_full_folder_of_the_user_is_the_matter_of_his_partition(tmp_path) -> None:
    shard = ShardOfRun(tmp_path)
    with small_disk(tmp_path / "his", 4) as his:

        def function(data, context):
            if context.key == "k3":
                Path(his, "results").write_bytes(bytes(8 * MIB))

        receipt, run = shard.run(function, table_of(**KEYS), max_retries=0)
    assert receipt.counts == {"DONE": 5, "FAILED": 1}
    assert "No space left" in run.failures()["error_message"][0].as_py()


def test_a_folder_that_goes_away_stops_the_run(tmp_path, isolation) -> None:
    shard = ShardOfRun(tmp_path)

    def function(data, context):
        if context.key == "k3":
            shutil.rmtree(shard.host.folder)
            raise ValueError("something else that follows from it")

    with pytest.raises(ScratchError, match="No such file or directory"):
        shard.run(function, table_of(**KEYS), max_retries=0, isolation=isolation)


@pytest.mark.parametrize(
    ("mode", "is_ours", "is_taken"),
    [
        (0o700, True, True),
        (0o775, True, True),  # as users have it whose group is their own
        (0o1777, True, True),
        (0o777, True, False),
        (0o755, False, False),
        (0o1777, False, False),
    ],
)
def test_a_folder_that_other_users_could_exchange_is_not_used(tmp_path, mode, is_ours, is_taken):
    above = tmp_path / "dask-scratch-space"
    (above / "worker").mkdir(parents=True)
    above.chmod(mode)
    if not is_ours:
        if os.geteuid() != 0:
            pytest.skip("only root can give a folder away")
        os.chown(above, 12345, 12345)
    shard = ShardOfRun(tmp_path)
    shard.host = TestHost(above / "worker")
    if is_taken:
        assert own_scratch(shard.host.folder) == shard.host.folder
    else:
        with pytest.raises(ScratchError, match=f"other users can exchange .* mode {mode:o}"):
            shard.run(lambda data, context: None, table_of(a=1))
        assert os.listdir(above / "worker") == []


def test_a_disk_that_cannot_be_written_any_more_is_named(tmp_path) -> None:
    with small_disk(tmp_path / "disk", 4) as disk:
        check_scratch(str(disk), "ValueError: as partitions raise")
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        with pytest.raises(ScratchError, match="Read-only file system"):
            check_scratch(str(disk), "ValueError: as partitions raise")
