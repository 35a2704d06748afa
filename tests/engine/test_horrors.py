"""Functions that do their worst: every partition gets one status, only culprits are blamed."""

import os
import time
from collections import Counter
from pathlib import Path

import numpy as np
import psutil
import pyarrow as pa
import pytest

from partwise.outcomes import Result, RunStatus
from tests.engine.horrors import MIB, misbehave
from tests.engine.shards import ShardOfRun

pytestmark = pytest.mark.slow  # two culprits hang until their time is up, in one shard

KEYS = [key for key in range(171) if key % 10 in (9, 0, 1)]
"""Whatever misbehaves has a partition of its own that does not before it, and one after it."""
CULPRITS = {10, 20, 30, 40, 50, 60, 70, 80, 90, 100, 110, 120, 160}
STARVED = {50, 70, 120}


@pytest.fixture(scope="module", params=["shared", "partition"])
def isolation(request) -> str:
    return request.param


@pytest.fixture(scope="module")
def directory(tmp_path_factory, isolation) -> Path:
    return tmp_path_factory.mktemp("horrors")


@pytest.fixture(scope="module")
def run(directory, isolation):
    scratch = str(directory)

    def function(data, context):
        with open(Path(scratch, "executed"), "a") as file:
            file.write(f"{context.key}\n")
        print(f"partition {context.key} begins in {os.getcwd()}")
        misbehave(context.key, scratch)
        return Result({"key_seen": [context.key], "cwd": [os.getcwd()]}, {"rows": data.num_rows})

    table = pa.table({"key": np.repeat(KEYS, 3), "value": np.arange(3.0 * len(KEYS))})
    shard = ShardOfRun(directory)
    _, run = shard.run(
        function,
        table,
        max_retries=0,
        timeout_s=5.0,
        memory_bytes=300 * MIB,
        isolation=isolation,
    )
    shard.host.close()
    return run


def test_every_partition_has_one_status_and_only_culprits_are_blamed(run) -> None:
    rows = run.partitions.select(["key", "status"]).to_pydict()
    assert rows["key"] == KEYS
    failed = {
        key for key, status in zip(rows["key"], rows["status"], strict=True) if status == "FAILED"
    }
    assert failed == CULPRITS
    assert Counter(rows["status"]) == {"DONE": len(KEYS) - len(CULPRITS), "FAILED": len(CULPRITS)}
    assert run.status is RunStatus.PARTIAL_FAILURE


def test_no_finished_neighbour_runs_again(run, directory) -> None:
    executed = Counter(map(int, Path(directory, "executed").read_text().split()))
    # Recursion without end dies of its stack, or first of the memory that this takes.
    executed[110] = min(executed[110], 1)
    # What may have lacked memory has one more attempt, with the machine to itself.
    assert executed == dict.fromkeys(KEYS, 1) | dict.fromkeys(STARVED, 2)


@pytest.mark.parametrize(
    ("key", "reason", "error_type"),
    [
        (10, "died: exit status 3", "ProcessDied"),
        (20, "died: signal 11", "ProcessDied"),
        (30, "timed out", "PartitionTimeout"),
        (40, "timed out", "PartitionTimeout"),
        (50, "memory limit", "MemoryLimitExceeded"),
        (60, "exception", "Unpicklable"),
        (70, "memory limit", "MemoryLimitExceeded"),
        (80, "exception", "SystemExit"),
        (90, "exception", "KeyboardInterrupt"),
        (100, "died", "ProcessDied"),
        (120, "died: signal 9", "ProcessDied"),
        (160, "exception", "RecursionError"),
    ],
)
def test_the_reason_names_what_happened(run, key, reason, error_type) -> None:
    row = run.partitions.filter(pa.compute.equal(run.partitions["key"], key)).to_pylist()[0]
    assert row["reason"].startswith(reason)
    assert row["error_type"].endswith(error_type)
    assert len(row["error_message"]) < 3000


@pytest.mark.parametrize("key", sorted(CULPRITS - {100}))
def test_what_a_culprit_printed_is_in_its_log(run, key) -> None:
    assert f"partition {key} begins" in run.logs(key)


def test_a_segfault_leaves_its_traceback_in_the_log(run) -> None:
    assert "misbehave" in run.logs(20)


def test_shell_output_is_in_the_log(run) -> None:
    assert "from a shell" in run.logs(150)


def test_logs_and_folders_are_restored_after_a_redirection(run) -> None:
    for key in KEYS:
        if 130 < key < 160:
            assert f"partition {key} begins" in run.logs(key)
    folders = run.predictions().filter(pa.compute.field("key_seen") != 130)["cwd"].unique()
    assert "/" not in folders.to_pylist()


def test_no_process_is_left_behind(run, directory) -> None:
    grandchild = int(Path(directory, "grandchild").read_text())
    deadline = time.monotonic() + 5
    while psutil.pid_exists(grandchild) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not psutil.pid_exists(grandchild)
