"""What a partition leaves in its process does not reach its neighbours."""

import ctypes
import os
import re
import signal
import subprocess
import sys
import threading
import time

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from tests.engine.dirt import KINDS, differences, neighbours, only_see, soil_and_see
from tests.engine.idle import helper
from tests.engine.shards import ShardOfRun, table_of

ISOLATIONS = ("shared", "partition")


@pytest.fixture
def run_shard(tmp_path):
    shards = []

    def run(name, function, table, **options):
        shard = ShardOfRun(tmp_path / name)
        shards.append(shard)
        return shard.run(function, table, **options)

    run.folder = tmp_path
    yield run
    for shard in shards:
        shard.host.close()


@pytest.fixture(params=ISOLATIONS)
def isolation(request) -> str:
    return request.param


@pytest.mark.parametrize("reverse", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_no_kind_of_dirt_reaches_a_neighbour(run_shard, isolation, reverse) -> None:
    kinds = list(KINDS)
    table = neighbours(kinds, reverse)
    receipt, run = run_shard("dirty", soil_and_see, table, isolation=isolation)
    assert receipt.counts == {"DONE": table.num_rows}, run.failures().to_pylist()
    clean_ones = table.filter(pc.equal(table["kind"], ""))
    _, clean = run_shard("clean", only_see, clean_ones, isolation=isolation)
    found = differences(run, clean)
    assert found == [], {kinds[int(key) // 2 - 1] for key, *_ in found}


@pytest.mark.slow
def test_nor_one_that_runs_in_a_resume(run_shard, isolation) -> None:
    kinds = ["environment", "function of numpy", "decimal precision", "thread"]
    table = neighbours(kinds)
    _, clean = run_shard("clean", only_see, table, isolation=isolation)
    run_shard("dirty", soil_and_see, table.slice(0, 4), isolation=isolation)
    receipt, run = run_shard("dirty", soil_and_see, table, isolation=isolation)
    assert (receipt.kept, receipt.counts) == (4, {"DONE": 9})
    assert differences(run, clean) == []


def test_who_left_what_is_told(run_shard) -> None:
    kinds = ["environment", "function of numpy", "thread", "process", "function of numpy"]
    shards = []

    def keep(name, function, table):
        shard = ShardOfRun(run_shard.folder / name)
        shards.append(shard)
        return shard.run(function, table)

    _, run = keep("dirty", soil_and_see, neighbours(kinds))
    told = {
        key: re.search(r"left its process changed: (.*?)\. Another", run.logs(key))
        for key in run.predictions()["key"].to_pylist()
        if "left its process" in logs_of(run, key)
    }
    assert {key: match.group(1) for key, match in told.items()} == {
        "003": "it replaced numpy.mean",
        "005": "it left the thread 'Thread-1 (sleep)' running",
        "007": "it left the process 'sleep 300' running",
        "009": "it replaced numpy.mean",
    }
    reported = [left.sample for news in shards[0].host.events for left in news.remarks]
    assert len(reported) == 3, "one of each kind"
    shards[0].host.close()


def logs_of(run, key: str) -> str:
    try:
        return run.logs(key)
    except LookupError:
        return ""


def test_what_a_process_of_a_neighbour_prints_is_in_nobody_elses_log(run_shard, isolation) -> None:
    script = "import time\nwhile True:\n    print('noise', flush=True)\n    time.sleep(0.01)"

    def function(data, context):
        if context.key == "b":
            subprocess.Popen([sys.executable, "-c", script], start_new_session=True, env={})
            time.sleep(0.5)
        time.sleep(0.1)

    _, run = run_shard("r", function, table_of(a=1, b=2, c=3, d=4), isolation=isolation)
    assert [key for key in "abcd" if "noise" in logs_of(run, key)] == ["b"]


def test_a_helper_that_partwise_keeps_is_no_leftover(run_shard) -> None:
    """As the judge of exports, which was started for each partition."""

    def function(data, context):
        time.sleep(0.002)  # so long that processes are looked at
        return {"child": [os.getpid()], "helper": [helper()]}

    _, run = run_shard("r", function, table_of(a=1, b=2, c=3))
    rows = run.predictions().to_pydict()
    assert len(set(rows["child"])) == len(set(rows["helper"])) == 1
    assert [run.logs(key) for key in "abc"] == ["", "", ""]


def die(how: str) -> None:
    match how:
        case "crash":
            ctypes.string_at(0)
        case "exit":
            os._exit(3)
        case "exit as if all were well":
            os._exit(0)
        case "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        case "killed with its parent":
            os.kill(os.getppid(), signal.SIGKILL)
            time.sleep(60)
        case "killed in a session of its own":
            os.setsid()
            time.sleep(60)
        case "memory":
            blocks = []
            while True:
                blocks.append(bytearray(os.urandom(1 << 20)) * 32)


DEATHS = {
    "crash": "died: signal 11 (SIGSEGV)",
    "exit as if all were well": "died: exit status 0",
    "killed with its parent": "died: signal 9 (SIGKILL",
}
SLOW_DEATHS = {
    "exit": "died: exit status 3",
    "killed": "died: signal 9 (SIGKILL",
    "killed in a session of its own": "timed out",
    "memory": "memory limit",
}


@pytest.mark.parametrize(
    "deaths",
    [DEATHS, pytest.param(SLOW_DEATHS, marks=pytest.mark.slow)],
    ids=["three ways", "four more"],
)
def test_a_fork_that_dies_takes_only_its_partition_along(run_shard, deaths) -> None:
    """Between two that live, each dies in its own way."""
    hows = list(deaths)

    def function(data, context):
        print(f"at work on {context.key}")
        place, dies = divmod(context.key, 2)
        if dies:
            die(hows[place])
        return {"value": data.to_arrow()["value"]}

    keys = list(range(2 * len(hows) + 1))
    _, run = run_shard(
        "r",
        function,
        pa.table({"key": keys, "value": [float(key) for key in keys]}),
        isolation="partition",
        max_retries=0,
        timeout_s=3.0,
        memory_bytes=400 << 20,
    )
    rows = {row["key.key"]: row for row in run.ledger.to_pylist()}
    assert {key: row["status"] for key, row in rows.items()} == {
        key: "FAILED" if key % 2 else "DONE" for key in keys
    }
    for place, how in enumerate(hows):
        assert rows[2 * place + 1]["reason"].startswith(deaths[how])
        assert f"at work on {2 * place + 1}\n" in run.logs(2 * place + 1)
    assert run.predictions().sort_by("key")["value"].to_pylist() == [float(k) for k in keys[::2]]


def test_each_partition_has_a_process_that_imports_nothing_anew(run_shard) -> None:
    def function(data, context):
        import colorsys

        return {"pid": [os.getpid()], "parent": [os.getppid()], "module": [id(colorsys)]}

    _, run = run_shard("r", function, table_of(a=1, b=2, c=3), isolation="partition")
    rows = run.predictions().to_pydict()
    assert [len(set(rows[name])) for name in ("pid", "parent", "module")] == [3, 1, 1]


def test_artifacts_go_both_ways_between_a_fork_and_the_worker(run_shard) -> None:
    def function(data, context):
        context.upload(f"note of {context.key}", "note.txt")
        if context.attempt == 1:
            raise ValueError("not yet")
        return {"note": [context.download("note.txt")]}

    _, run = run_shard("r", function, table_of(a=1, b=2), isolation="partition")
    notes = run.predictions().sort_by("key")["note"].to_pylist()
    assert notes == ["note of a", "note of b"]


def test_an_answer_to_a_neighbour_is_not_taken_for_ones_own(run_shard, isolation) -> None:
    def function(data, context):
        context.upload(context.key, "note.txt")
        if context.key == "a":
            # Of a thread that is gone before its answer comes.
            threading.Thread(target=context.download, args=("note.txt",), daemon=True).start()
            return {"note": ["a"]}
        return {"note": [context.download("note.txt")]}

    _, run = run_shard("r", function, table_of(a=1, b=2, c=3), isolation=isolation)
    assert run.predictions().sort_by("key")["note"].to_pylist() == ["a", "b", "c"]


class StartsThread:
    def __init__(self, seconds: float) -> None:
        threading.Thread(target=time.sleep, args=(seconds,), daemon=True, name="early").start()

    def __reduce__(self):
        return StartsThread, (300.0,)


def test_work_that_starts_a_thread_when_it_is_loaded_is_not_forked(run_shard) -> None:
    early = StartsThread(0.0)
    _, run = run_shard(
        "r", lambda data, context: early, table_of(a=1), isolation="partition", max_retries=0
    )
    (row,) = run.ledger.to_pylist()
    assert row["status"] == "FAILED"
    assert "starts a thread when it is imported ('early')" in row["error_message"]
    assert "isolation='shared'" in row["error_message"]


@pytest.mark.slow  # torch is imported in three processes
def test_settings_of_torch_do_not_reach_a_neighbour(run_shard, isolation) -> None:
    def function(data, context):
        import torch

        seen = (torch.is_grad_enabled(), str(torch.get_default_dtype()), torch.get_num_threads())
        if context.key == "b":
            torch.set_grad_enabled(False)
            torch.set_default_dtype(torch.float64)
            torch.set_num_threads(1 + seen[2])
        return {"seen": [repr(seen)]}

    _, run = run_shard("r", function, table_of(a=1, b=2, c=3), isolation=isolation)
    assert len(set(run.predictions()["seen"].to_pylist())) == 1
