"""A whole shard in this process: a real child and a local store, no Dask, no Prefect."""

import os
import pickle
import shutil
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from partwise.engine import assignment as assignment_module
from partwise.engine import scaling
from partwise.engine.messages import Connection
from partwise.engine.options import ExecutionOptions
from partwise.engine.outcome import INLINE_BYTES, Outcome
from partwise.engine.worker import supervisor as supervisor_module
from partwise.engine.worker.attempts import Attempts
from partwise.engine.works import MapWork
from partwise.errors import ClusterError, ColumnError, ModelNotFoundError, SourceError
from partwise.outcomes import Skip
from partwise.runs.ledger import LedgerRow
from tests.engine.shards import ShardOfRun, table_of
from tests.own_cluster import wait_for


@pytest.fixture
def shard(tmp_path):
    shard = ShardOfRun(tmp_path)
    yield shard
    shard.host.close()


def statuses(run) -> dict[str, str]:
    return dict(zip(*run.partitions.select(["key", "status"]).to_pydict().values(), strict=True))


def row_of(run, key: str) -> dict:
    return run.ledger.filter(pa.compute.equal(run.ledger["key.key"], key)).to_pylist()[0]


def double(data, context):
    context.upload(f"note of {context.key}", "note.txt")
    print(f"at work on {context.key}")
    return {"double": data.to_arrow()["value"].to_numpy() * 2}


def test_every_partition_has_its_rows_its_files_and_its_log(shard) -> None:
    receipt, run = shard.run(double, table_of(a=1, b=2))
    assert receipt.counts == {"DONE": 2}
    assert (receipt.partitions, receipt.kept, receipt.complete) == (2, 0, True)
    assert run.predictions().sort_by("key").to_pydict() == {"key": ["a", "b"], "double": [2.0, 4.0]}
    assert run.artifact("b", "note.txt") == "note of b"
    assert "at work on b" in run.logs("b")
    assert shard.host.counts == {"DONE": 2}
    assert not list(Path(shard.host.folder).glob("shard-*")), "what only this shard needed is gone"


def test_what_another_version_has_sent_is_refused(shard, monkeypatch) -> None:
    """A worker may be given work in the moment before the driver knows its version."""
    work = MapWork(function=double, key_columns=("key",))
    with shard.assigned(table_of(a=1), work, ExecutionOptions()) as (_, assignment):
        sent = pickle.dumps(assignment)
        assert pickle.loads(sent).execution == assignment.execution
        monkeypatch.setattr(scaling, "own_version", lambda: "0.0.7")
        monkeypatch.setattr(assignment_module, "own_version", lambda: "0.0.7")
        with pytest.raises(ClusterError, match=r"sent this work has partwise .* process 0\.0\.7: "):
            pickle.loads(sent)


def test_a_refusal_of_ours_is_not_tried_again(shard) -> None:
    def function(data, context):
        if context.key == "a":
            raise ColumnError("there is no column 'price'")
        raise SourceError("the bucket does not answer")

    _, run = shard.run(function, table_of(a=1, b=2), max_retries=1)
    assert statuses(run) == {"a": "FAILED", "b": "FAILED"}
    assert (row_of(run, "a")["attempts"], row_of(run, "b")["attempts"]) == (1, 2)


def test_what_a_partition_uploaded_is_held_no_longer_than_it_has_attempts(
    shard, monkeypatch
) -> None:
    held: list[set[int]] = []

    def settle(attempts: Attempts, outcome: Outcome, attempt: int) -> LedgerRow:
        row = original(attempts, outcome, attempt)
        held.append(set(attempts.supervisor._artifacts))
        return row

    def function(data, context):
        context.upload(b"kept", "state.bin")
        if context.key == "a":
            raise SourceError("the bucket does not answer")
        if context.key == "b":
            os.kill(os.getpid(), signal.SIGTERM)

    original = Attempts._settle
    monkeypatch.setattr(Attempts, "_settle", settle)
    _, run = shard.run(function, table_of(a=1, b=2, c=3), max_retries=1)
    assert statuses(run) == {"a": "FAILED", "b": "FAILED", "c": "DONE"}
    assert held == [{0, 1}, {1}, set()]
    assert run.artifact("a", "state.bin") == b"kept"


@pytest.mark.parametrize("isolation", ["shared", "partition"])
def test_the_working_folder_is_empty_and_all_in_it_may_be_removed(shard, isolation) -> None:
    values = np.arange(1 << 18)

    def function(data, context):
        for name in os.listdir("."):
            print("found", name)
        os.makedirs("log")
        context.upload(values.tobytes(), "large.bin")
        for name in os.listdir("."):
            os.rmdir(name)
        return {"values": values}

    _, run = shard.run(function, table_of(a=1, b=2), isolation=isolation)
    assert statuses(run) == {"a": "DONE", "b": "DONE"}
    assert "found" not in run.logs("a") + run.logs("b")
    assert len(run.artifact("b", "large.bin")) == values.nbytes
    assert run.predictions().num_rows == 2 * len(values)


@pytest.mark.parametrize("isolation", ["shared", "partition"])
def test_the_working_folder_is_there_for_the_next_when_a_function_removes_it(
    shard, isolation
) -> None:
    def function(data, context):
        Path("mine.txt").write_text(context.key)
        shutil.rmtree(Path.cwd())

    _, run = shard.run(function, table_of(a=1, b=2, c=3), max_retries=0, isolation=isolation)
    assert statuses(run) == dict.fromkeys("abc", "DONE")


def test_a_large_upload_waits_in_a_file_for_the_next_attempt(shard, monkeypatch) -> None:
    held: list[list[object]] = []
    files: list[list[Path]] = []

    def settle(attempts: Attempts, outcome: Outcome, attempt: int) -> LedgerRow:
        supervisor = attempts.supervisor
        held.append([content for own in supervisor._artifacts.values() for content in own.values()])
        row = original(attempts, outcome, attempt)
        files.append(list(Path(supervisor.plan.directory).glob("upload-*")))
        return row

    def function(data, context):
        size = INLINE_BYTES + 1
        if context.key == "b":
            return
        if context.attempt == 1:
            for byte in (b"0", b"1"):
                context.upload(byte * size, "state.bin")
            context.upload(b"2" * size, "other.bin")
            os.kill(os.getpid(), signal.SIGTERM)
        assert context.download("state.bin") == b"1" * size
        context.upload(b"3" * size, "state.bin")
        raise SourceError("the bucket does not answer")

    original = Attempts._settle
    monkeypatch.setattr(Attempts, "_settle", settle)
    _, run = shard.run(function, table_of(a=1, b=2), max_retries=1)
    assert statuses(run) == {"a": "FAILED", "b": "DONE"}
    assert [len(each) for each in held] == [2, 2]
    assert all(isinstance(content, str) for each in held for content in each)
    assert [len(each) for each in files] == [2, 0]
    assert set(run.artifact("a", "state.bin")) == {ord("3")}
    assert set(run.artifact("a", "other.bin")) == {ord("2")}


def test_small_uploads_that_wait_for_the_next_attempt_fill_no_memory(shard, monkeypatch) -> None:
    monkeypatch.setattr(supervisor_module, "HELD_BYTES", 250)
    held: list[tuple[int, int]] = []

    def settle(attempts: Attempts, outcome: Outcome, attempt: int) -> LedgerRow:
        supervisor = attempts.supervisor
        row = original(attempts, outcome, attempt)
        files = list(Path(supervisor.plan.directory).glob("upload-*"))
        held.append((supervisor._held_bytes, len(files)))
        return row

    def function(data, context):
        if context.attempt == 1:
            for _ in range(2):
                context.upload(context.key.encode() * 100, "state.bin")
            raise SourceError("the bucket does not answer")
        assert context.download("state.bin") == context.key.encode() * 100

    original = Attempts._settle
    monkeypatch.setattr(Attempts, "_settle", settle)
    _, run = shard.run(function, table_of(a=1, b=2, c=3, d=4), max_retries=1)
    assert statuses(run) == dict.fromkeys("abcd", "DONE")
    # Each partition that ends makes room for no other: what is a file stays one.
    assert sorted(held) == [(0, 0), (0, 1), (0, 2), (100, 2)]
    assert all(set(run.artifact(key, "state.bin")) == {ord(key)} for key in "abcd")


def test_a_failure_is_tried_again_after_the_others(shard, tmp_path) -> None:
    journal = str(tmp_path / "journal")

    def function(data, context):
        with open(journal, "a") as file:
            file.write(context.key)
        if context.key == "a" and context.attempt == 1:
            context.upload(b"kept", "first.bin")
            raise ValueError("not yet")
        if context.key == "a":
            assert context.download("first.bin") == b"kept"
        if context.key == "c":
            return Skip("no need")
        return {"x": [1.0]}

    receipt, run = shard.run(function, table_of(a=1, b=2, c=3))
    assert receipt.counts == {"DONE": 2, "SKIPPED": 1}
    order = Path(journal).read_text()
    assert sorted(order[:3]) == ["a", "b", "c"]
    assert order[3:] == "a"
    row = row_of(run, "a")
    assert (row["attempts"], row["status"]) == (2, "DONE")
    assert "ValueError: not yet" in run.logs("a")
    assert row_of(run, "c")["reason"] == "no need"


def test_a_failure_for_good_has_its_error_in_the_ledger(shard) -> None:
    def function(data, context):
        raise KeyError("where") if context.key == "a" else ModelNotFoundError("none of it")

    receipt, run = shard.run(function, table_of(a=1, b=2), max_retries=1)
    assert receipt.counts == {"FAILED": 2}
    row = row_of(run, "a")
    assert (row["attempts"], row["reason"], row["error_type"]) == (2, "exception", "KeyError")
    assert row["error_message"] == "'where'"
    assert row_of(run, "b")["attempts"] == 1, "a second attempt would come to the same"
    assert {group.error_type for group in shard.host.events[-1].failures} <= {
        "KeyError",
        "partwise.errors.ModelNotFoundError",
    }


def test_a_partition_that_takes_too_long_is_stopped_and_the_rest_goes_on(shard) -> None:
    def function(data, context):
        time.sleep(6000 if context.key == "b" else 0)

    _, run = shard.run(function, table_of(a=1, b=2, c=3), timeout_s=0.3)
    assert statuses(run) == {"a": "DONE", "b": "FAILED", "c": "DONE"}
    row = row_of(run, "b")
    assert (row["reason"], row["error_type"]) == ("timed out", "PartitionTimeout")
    assert row["attempts"] == 1
    assert row["seconds"] >= 0.3


def test_a_time_limit_does_not_count_for_how_long_the_worker_was_stopped(
    shard, monkeypatch
) -> None:
    receive, worker, held = Connection.receive, os.getpid(), []

    def receive_late(self, timeout_s=None, gather_s=0.0):
        # As if this process was stopped while it waits for the partition.
        if timeout_s == supervisor_module.POLL_S and os.getpid() == worker and not held:
            held.append(time.sleep(1.0))
        return receive(self, timeout_s, gather_s)

    monkeypatch.setattr(Connection, "receive", receive_late)
    monkeypatch.setattr(supervisor_module, "HELD_UP_S", 0.2)
    _, run = shard.run(lambda data, context: time.sleep(1.3), table_of(a=1), timeout_s=0.8)
    assert held
    assert statuses(run) == {"a": "DONE"}


def test_what_is_done_is_written_while_the_next_one_runs(shard, tmp_path) -> None:
    begun, store = str(tmp_path / "begun"), str(tmp_path / "store")

    def function(data, context):
        if not os.path.exists(begun):
            open(begun, "w").close()
            return {"x": [1.0]}
        deadline = time.monotonic() + 60
        while not (written := list(Path(store).rglob("ledger/*.parquet"))):
            assert time.monotonic() < deadline, "the first one is not written"
            time.sleep(0.02)
        return {"x": [float(len(written))]}

    receipt, _ = shard.run(function, table_of(a=1, b=2), first_segment_s=0.1)
    assert receipt.counts == {"DONE": 2}


@pytest.fixture
def slowly_imported(tmp_path, monkeypatch) -> str:
    """A module that takes a second to import, where children find it."""
    name = f"slow_{tmp_path.name}"
    (tmp_path / f"{name}.py").write_text("import time\ntime.sleep(1)\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    return name


def importing(name: str):
    names: dict = {}
    exec(f"def function(data, context):\n    import {name}\n", names)
    return names["function"]


@pytest.mark.parametrize("isolation", ["shared", "partition"])
def test_what_is_imported_for_all_does_not_count_for_the_time_of_the_first(
    shard, slowly_imported, isolation
) -> None:
    function = importing(slowly_imported)
    _, run = shard.run(function, table_of(a=1, b=2), timeout_s=0.6, isolation=isolation)
    assert statuses(run) == {"a": "DONE", "b": "DONE"}


def test_what_imports_for_ever_is_stopped(shard, slowly_imported, monkeypatch) -> None:
    monkeypatch.setattr("partwise.engine.worker.supervisor.START_TIMEOUT_S", 0.3)
    _, run = shard.run(importing(slowly_imported), table_of(a=1), timeout_s=0.2)
    row = row_of(run, "a")
    assert (row["reason"], row["error_type"]) == ("timed out", "PartitionTimeout")
    said = "It was stopped since what its function imports took more than 0.3 s."
    assert row["error_message"] == said


def test_a_child_that_is_killed_takes_only_its_partition_along(shard) -> None:
    def function(data, context):
        if context.key == "b":
            print("this is the end")
            os.kill(os.getpid(), signal.SIGKILL)

    _, run = shard.run(function, table_of(a=1, b=2, c=3), max_retries=1)
    assert statuses(run) == {"a": "DONE", "b": "FAILED", "c": "DONE"}
    row = row_of(run, "b")
    assert row["error_type"] == "ProcessDied"
    assert row["attempts"] == 2
    assert "this is the end" in run.logs("b")


@pytest.mark.parametrize("seed", range(3))
def test_what_a_child_has_sent_before_its_end_counts_and_is_not_done_again(
    shard, tmp_path, monkeypatch, seed
) -> None:
    """Outcomes of tiny partitions are let come together, and many wait in the socket by then."""
    # Long enough for a child to end meanwhile.
    monkeypatch.setattr(supervisor_module, "GATHER_S", 0.1)
    deadly, ran = set(np.random.default_rng(seed).choice(400, 6, replace=False)), tmp_path / "ran"

    def function(data, context):
        with ran.open("a") as file:
            file.write(f"{context.key}\n")
        if context.key in deadly:
            os._exit(3)

    table = pa.table({"key": range(400), "value": np.zeros(400)})
    _, run = shard.run(function, table, max_retries=0)
    assert sorted(map(int, ran.read_text().split())) == list(range(400))
    assert statuses(run) == {key: "FAILED" if key in deadly else "DONE" for key in range(400)}


def test_one_that_is_killed_again_and_again_has_all_of_its_retries(shard) -> None:
    """Also behind the attempt that it has with the machine to itself."""

    def function(data, context):
        if context.key == "b" and context.attempt < 4:
            print(f"attempt {context.attempt}")
            os.kill(os.getpid(), signal.SIGKILL)

    _, run = shard.run(function, table_of(a=1, b=2), max_retries=3, retry_backoff_s=0)
    assert statuses(run) == {"a": "DONE", "b": "DONE"}
    assert row_of(run, "b")["attempts"] == 4
    assert run.logs("b").startswith("attempt 3\n")


def test_the_pause_before_a_retry_is_a_number_however_often_it_was_doubled() -> None:
    def attempts(pause_s: float, *, is_stopped: bool) -> Any:
        return SimpleNamespace(
            execution=SimpleNamespace(options=ExecutionOptions(retry_backoff_s=pause_s)),
            supervisor=SimpleNamespace(is_stopped=lambda: is_stopped),
        )

    for attempt in (1, 1024, 1025, 100_000):
        assert Attempts._pause(attempts(0, is_stopped=False), time.monotonic(), attempt)
        assert not Attempts._pause(attempts(0.5, is_stopped=True), time.monotonic(), attempt)


def test_a_function_that_needs_too_much_memory_is_stopped(shard) -> None:
    def function(data, context):
        if context.key == "a":
            block = bytearray(os.urandom(1 << 20)) * 400
            time.sleep(30)
            del block

    _, run = shard.run(function, table_of(a=1, b=2), memory_bytes=300 << 20)
    assert statuses(run) == {"a": "FAILED", "b": "DONE"}
    row = row_of(run, "a")
    assert row["reason"] == "memory limit"
    assert row["peak_memory_bytes"] > 300 << 20
    assert "the limit (memory_bytes) is 300 MiB" in row["error_message"]


class Unloadable:
    def __reduce__(self):
        return exec, ("raise ImportError('no such library here')",)


def test_a_function_that_cannot_be_loaded_fails_every_partition_once(shard) -> None:
    unloadable = Unloadable()
    receipt, run = shard.run(lambda data, context: unloadable, table_of(a=1, b=2))
    assert receipt.counts == {"FAILED": 2}
    row = row_of(run, "a")
    assert (row["reason"], row["attempts"]) == ("not loadable", 1)
    assert "no such library here" in row["error_message"]


def test_a_stop_commits_what_is_finished(shard, tmp_path) -> None:
    stop = tmp_path / "stop"

    def function(data, context):
        if context.key == "c":
            stop.touch()
            time.sleep(60)

    # The rows of a shard are in the order of their keys.
    receipt, run = shard.run(
        function, table_of(a=1, b=2, c=3, d=4), is_stopped=stop.exists, complete=False
    )
    assert not receipt.complete
    assert set(statuses(run).values()) == {"DONE"}
    assert "c" not in statuses(run)
    assert receipt.counts == {"DONE": len(statuses(run))}


def test_a_stop_keeps_what_a_child_has_sent_and_nobody_has_read(shard, tmp_path) -> None:
    ran, table = tmp_path / "ran", pa.table({"key": range(100), "value": np.zeros(100)})

    def function(data, context):
        with ran.open("a") as file:
            file.write(f"{context.key}\n")
        time.sleep(0.003)

    def is_stopped() -> bool:
        # While this process looks, the child comes to its end.
        if ran.exists():
            wait_for(lambda: len(ran.read_text().split()) == 100, "it runs all")
        return ran.exists()

    receipt, run = shard.run(function, table, is_stopped=is_stopped, complete=False)
    # But for the last, which may be on its way.
    assert receipt.counts["DONE"] >= 99
    assert set(statuses(run).values()) == {"DONE"}
    assert len(ran.read_text().split()) == 100


def test_a_resume_keeps_what_is_done_and_same_and_runs_the_rest(shard, tmp_path) -> None:
    journal = tmp_path / "journal"
    journal.touch()

    def function(data, context):
        with journal.open("a") as file:
            file.write(context.key)
        if context.key == "c" and journal.read_text().count("c") == 1:
            raise ValueError("only at first")
        return {"value": data.to_arrow()["value"]}

    shard.run(function, table_of(a=1, b=2, c=3), max_retries=0)
    assert sorted(journal.read_text()) == ["a", "b", "c"]
    receipt, run = shard.run(function, table_of(a=1, b=20, c=3, d=4))
    assert sorted(journal.read_text()) == ["a", "b", "b", "c", "c", "d"]
    assert (receipt.kept, receipt.counts) == (1, {"DONE": 4})
    assert run.predictions().sort_by("key")["value"].to_pylist() == [1.0, 20.0, 3.0, 4.0]
    assert row_of(run, "a")["generation"] == 1
    assert row_of(run, "b")["generation"] == 2


def test_a_resume_goes_on_where_the_keys_before_it_were_of_either_sign(shard) -> None:
    def function(data, context):
        context.upload(b"one", "state.bin")

    kept = []
    for other, kind in ((-1, pa.int64()), (2**64 - 1, pa.uint64()), (-1, pa.int64())):
        table = pa.table({"key": pa.array([other, 5], kind), "value": [1.0, 2.0]})
        receipt, run = shard.run(function, table)
        kept.append(receipt.kept)
    # The other one was last made of a row with a key of another type.
    assert kept == [0, 0, 1]
    assert run.partitions["key"].to_pylist() == [-1, 5]


def test_a_function_reads_what_an_earlier_generation_has_of_its_partition(shard) -> None:
    def first(data, context):
        context.upload(b"one", "state.bin")

    def second(data, context):
        try:
            print("found", context.download("state.bin"))
        except LookupError as error:
            print("missing", error)

    shard.run(first, table_of(a=1))
    # Other rows, so that "a" runs again.
    _, run = shard.run(second, table_of(a=10, b=2))
    assert "found b'one'" in run.logs("a")
    assert "has no artifact 'state.bin' yet in the run 'run'" in run.logs("b")


@pytest.mark.parametrize("isolation", ["shared", "partition"])
def test_a_function_has_files_by_its_threads(shard, isolation) -> None:
    texts = {f"{number}.txt": str(number) * 100_000 for number in range(12)}

    def upload(data, context):
        with ThreadPoolExecutor(4) as threads:
            list(threads.map(lambda name: context.upload(texts[name], name), texts))

    def download(data, context):
        with ThreadPoolExecutor(4) as threads:
            found = dict(zip(texts, threads.map(context.download, texts), strict=True))
        print("all found" if found == texts else "others found")

    shard.run(upload, table_of(a=1), isolation=isolation)
    _, run = shard.run(download, table_of(a=2), isolation=isolation)
    assert statuses(run) == {"a": "DONE"}, row_of(run, "a")["error_message"]
    assert "all found" in run.logs("a")
