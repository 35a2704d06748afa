"""A group of its own for each child: where it may be, what it ends, and what it counts."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from partwise.processes import control_group
from partwise.processes.control_group import SUBGROUP, ControlGroup, find_folder, new_group
from tests.engine.shards import ShardOfRun, table_of
from tests.engine.test_whole_limits import (
    COUNTS,
    FOLDER,
    MIB,
    is_gone,
    map_anonymous,
    start_daemon,
)

needs_group = pytest.mark.skipif(FOLDER is None, reason="no control group may be made here")
needs_memory = pytest.mark.skipif(not COUNTS, reason="no control group counts memory here")

PREPARE = "from partwise.processes.control_group import prepare_folder; prepare_folder()"


@pytest.fixture(params=["shared", "partition"])
def isolation(request) -> str:
    return request.param


@pytest.fixture
def group():
    """Return a group that this process has made, locked."""
    group = new_group()
    lock = group.make()
    assert lock >= 0
    yield group
    os.close(lock)
    group.end()


@pytest.fixture
def shard(tmp_path):
    shard = ShardOfRun(tmp_path)
    yield shard
    shard.host.close()


def start_in(group: ControlGroup, code: str) -> subprocess.Popen[bytes]:
    """Start a process in a group; return when its code has printed a line."""
    words = [sys.executable, "-c", code]
    process = subprocess.Popen(words, preexec_fn=group.enter, stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    process.stdout.close()
    return process


def mark_as_delegated(folder: Path) -> None:
    """Do as systemd does."""
    try:
        os.setxattr(folder, "user.delegate", b"1")
    except OSError as error:
        pytest.skip(f"the disk has no such attributes: {error}")


@pytest.mark.parametrize(
    ("name", "delegated", "expected"),
    [
        ("/", "", "."),
        ("/service", "", None),
        ("/service", "service", "service"),
        ("/service/below", "service", None),
        (f"/service/{SUBGROUP}", "", "service"),
        (f"/service/{SUBGROUP}/below", "", None),
        ("/../elsewhere", "", None),
        ("/gone", "", None),
        (None, "", None),
    ],
)
@pytest.mark.parametrize("root", ["/", "/container"])
def test_groups_are_made_only_where_that_is_ours(
    tmp_path, monkeypatch, name, delegated, expected, root
) -> None:
    top = tmp_path / "top"
    for folder in (top, *(top / each for each in ("service", "service/below"))):
        folder.mkdir()
        (folder / "cgroup.procs").touch()
    if delegated:
        mark_as_delegated(top / delegated)
    below = "" if root == "/" else root
    lines = "4:memory:/service\n" if name is None else f"4:memory:/x\n0::{below}{name}\n"
    (tmp_path / "membership").write_text(lines.replace("/../", "/../../"))
    (tmp_path / "mounts").write_text(
        "30 1 0:26 / /elsewhere rw - cgroup none rw,memory\n"
        f"31 1 0:27 {root} {top} rw - cgroup2 none rw\n"
    )
    monkeypatch.setattr(control_group, "_MEMBERSHIP", str(tmp_path / "membership"))
    monkeypatch.setattr(control_group, "_MOUNTS", str(tmp_path / "mounts"))
    found = find_folder()
    assert found == (None if expected is None else os.path.normpath(top / expected))


@needs_group
def test_all_in_a_group_end_with_it_and_groups_within_it_go_too(group) -> None:
    within = Path(group.path, "within")
    code = (
        "import os, time\n"
        f"os.mkdir({str(within)!r})\n"
        "if os.fork() == 0:\n"
        f"    open({str(within / 'cgroup.procs')!r}, 'w').write('0')\n"
        "    os.setsid(); print(flush=True)\n"
        "time.sleep(300)\n"
    )
    process = start_in(group, code)
    inner = int((within / "cgroup.procs").read_text())
    assert group.holds(process.pid)
    assert group.holds(inner)
    assert not group.holds(os.getpid())
    group.end()
    assert process.wait() == -signal.SIGKILL
    assert is_gone(inner)
    assert not os.path.exists(group.path)


@needs_group
def test_a_group_is_ended_by_a_later_worker_only_if_its_keeper_is_dead(group) -> None:
    abandoned = new_group()
    os.close(abandoned.make())
    process = start_in(abandoned, "import time; print(flush=True); time.sleep(300)")
    subprocess.run([sys.executable, "-c", PREPARE], check=True)
    assert process.wait() == -signal.SIGKILL
    assert not os.path.exists(abandoned.path)
    assert os.path.exists(group.path)


def test_where_no_group_can_be_made_nothing_is_done() -> None:
    group = ControlGroup("/proc/none/partwise-child-0")
    assert group.make() == -1
    group.enter()
    group.end()
    assert not group.holds(os.getpid())
    assert group.memory() is None


def move_away(folder: str) -> None:
    """Move this process to another group."""
    other = Path(folder, "partwise-test")
    other.mkdir(exist_ok=True)
    (other / "cgroup.procs").write_text("0")
    assert other.name in Path("/proc/self/cgroup").read_text()


@needs_group
def test_what_leaves_its_group_ends_all_the_same(shard, tmp_path) -> None:
    """Root may move a process anywhere."""
    folder = str(FOLDER)

    def function(data, context):
        move_away(folder)
        start_daemon(str(tmp_path / "daemon"))
        os.kill(os.getpid(), signal.SIGSEGV)

    try:
        receipt, _ = shard.run(function, table_of(a=1), max_retries=0)
    finally:
        ControlGroup(f"{folder}/partwise-test").end()
    assert receipt.counts == {"FAILED": 1}
    assert is_gone(int((tmp_path / "daemon.pid").read_text()))


WORKER = """
import sys
from pathlib import Path
from tests.engine.shards import ShardOfRun, table_of
from tests.processes.test_control_group import hold
folder = sys.argv[1]
ShardOfRun(Path(folder)).run(lambda data, context: hold(folder), table_of(a=1))
"""


def hold(folder: str) -> None:
    start_daemon(f"{folder}/daemon")
    Path(folder, "group").write_text(Path("/proc/self/cgroup").read_text().rpartition("/")[2])
    Path(folder, "keeper").write_text(str(os.getppid()))
    Path(folder, "ready").touch()
    time.sleep(60)


@needs_group
def test_what_outlives_worker_and_keeper_is_ended_by_the_next_worker(tmp_path) -> None:
    words = [sys.executable, "-c", WORKER, str(tmp_path)]
    with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as worker:
        while not (tmp_path / "ready").exists():
            assert worker.poll() is None
            time.sleep(0.05)
        keeper = int((tmp_path / "keeper").read_text())
        os.kill(keeper, signal.SIGSTOP)
        worker.kill()
        os.kill(keeper, signal.SIGKILL)
    assert is_gone(keeper)
    group = Path(str(FOLDER), (tmp_path / "group").read_text().strip())
    assert group.name.startswith("partwise-child-")
    subprocess.run([sys.executable, "-c", PREPARE], check=True)
    assert is_gone(int((tmp_path / "daemon.pid").read_text()))
    assert not group.exists()


@needs_group
def test_no_group_is_left_however_a_child_ends(shard, tmp_path, isolation) -> None:
    def function(data, context):
        with (tmp_path / "groups").open("a") as file:
            file.write(Path("/proc/self/cgroup").read_text().rpartition("/")[2])
        match context.key:
            case "a":
                signal.raise_signal(signal.SIGSEGV)
            case "b":
                os.kill(os.getpid(), signal.SIGKILL)
            case "c":
                os._exit(3)

    table = table_of(a=1, b=2, c=3, d=4)
    receipt, _ = shard.run(function, table, max_retries=0, isolation=isolation)
    assert receipt.counts == {"DONE": 1, "FAILED": 3}
    names = (tmp_path / "groups").read_text().split()
    assert len(set(names)) > 3
    assert not [name for name in names if Path(str(FOLDER), name).exists()]


@needs_memory
def test_a_file_in_memory_that_nobody_has_open_counts(shard, tmp_path, isolation) -> None:
    path = Path(f"/dev/shm/partwise-test-{os.getpid()}")

    def function(data, context):
        if context.key == "a":
            path.write_bytes(bytes(600 * MIB))
            time.sleep(30)

    try:
        receipt, run = shard.run(
            function,
            table_of(a=1, b=2),
            max_retries=0,
            memory_bytes=400 * MIB,
            isolation=isolation,
        )
    finally:
        path.unlink(missing_ok=True)
    assert receipt.counts == {"DONE": 1, "FAILED": 1}
    row = run.ledger.to_pylist()[0]
    assert row["error_type"] == "MemoryLimitExceeded"
    assert row["peak_memory_bytes"] > 400 * MIB


@needs_memory
def test_nobody_is_blamed_for_what_others_left_in_memory(shard, isolation) -> None:
    def path(key: str) -> Path:
        return Path(f"/dev/shm/partwise-test-{os.getpid()}-{key}")

    keys = "abcdefghi"

    def function(data, context):
        path(context.key).write_bytes(bytes(80 * MIB))
        time.sleep(0.2)

    try:
        receipt, run = shard.run(
            function,
            table_of(**dict.fromkeys(keys, 1)),
            memory_bytes=600 * MIB,
            isolation=isolation,
        )
    finally:
        for key in keys:
            path(key).unlink(missing_ok=True)
    assert receipt.counts == {"DONE": 9}
    assert set(run.ledger["attempts"].to_pylist()) == {1}
    assert max(run.ledger["peak_memory_bytes"].to_pylist()) > 300 * MIB


@needs_memory
def test_what_leaves_its_group_counts_all_the_same(shard) -> None:
    folder = str(FOLDER)

    def function(data, context):
        move_away(folder)
        map_anonymous(600 * MIB)

    try:
        _, run = shard.run(function, table_of(a=1), max_retries=0, memory_bytes=400 * MIB)
    finally:
        ControlGroup(f"{folder}/partwise-test").end()
    assert run.failures()["error_type"].to_pylist() == ["MemoryLimitExceeded"]
