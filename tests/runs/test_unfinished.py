"""A run at work: seen from its claim on, with all of its partitions, and how far it is."""

import subprocess
import sys
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from partwise.errors import (
    ModelNotFoundError,
    RunBusyError,
    RunExistsError,
    RunNotFoundError,
    SignatureError,
    StoreError,
)
from partwise.outcomes import RunStatus
from partwise.runs.claim import Claim, Identity, Intent
from partwise.runs.contents import list_runs
from partwise.runs.garbage import collect_garbage
from partwise.runs.removal import remove_run
from partwise.runs.run import Run
from partwise.runs.unfinished import Standing
from partwise.runs.verification import verify_run
from partwise.store.store import Store
from partwise.tables.keys.partition_keys import (
    KeyClass,
    KeyColumn,
    hash_keys,
    key_columns,
    normalize_keys,
)
from tests.engine.test_params import KEYS
from tests.own_cluster import wait_for
from tests.run_maker import RunMaker

INTENT = Intent(source_fingerprint="s", inputs_fingerprint="i", code_fingerprint="c")
IDENTITY = Identity(
    run_id="run", kind="map", key_columns=(KeyColumn(name="key", key_class=KeyClass.STRING),)
)
SINCE = datetime(2026, 11, 26, 12, tzinfo=UTC)


def say(claim: Claim, **standing) -> None:
    """Have the lease say where the generation stands, and wait until it has."""
    beat = Path(claim.store.url, "runs/run/lease/0001.heartbeat")

    def read() -> bytes:
        return beat.read_bytes() if beat.exists() else b""

    before, deadline = read(), time.monotonic() + 10
    claim.tell(lambda: Standing(generation=claim.generation, **standing))
    while b"word" not in (now := read()) or now == before:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def statuses(run: Run) -> dict:
    names = [column.name for column in run.key_columns]
    rows = run.partitions.select([*names, "status"]).to_pylist()
    return {tuple(row[name] for name in names): row["status"] for row in rows}


class TestClaimed:
    """From the claim of a new run until its rows are loaded."""

    def test_readers_see_it(self, local_store) -> None:
        with Claim(local_store, IDENTITY, "error") as claim:
            assert list_runs(local_store) == ["run"]
            run = Run.open("run", local_store)
            assert (run.status, run.generation, run.kind) == (RunStatus.IN_PROGRESS, 0, "map")
            assert (run.partitions.num_rows, run.counts) == (0, {})
            # Who looks again and again finds the same columns each time.
            assert "running_since" in run.partitions.column_names
            progress = run.progress()
            assert (progress.total, progress.counts, progress.has_process) == (None, {}, True)
            assert "its rows are loaded since" in str(progress)
            claim.begin(n_shards=3, intent=INTENT)
            assert run.refresh().document.n_shards == 3

    @pytest.mark.parametrize("on_existing", ["error", "resume", "overwrite"])
    def test_nothing_is_left_of_rows_that_cannot_be_loaded(self, local_store, on_existing) -> None:
        with pytest.raises(ZeroDivisionError), Claim(local_store, IDENTITY, on_existing):
            raise ZeroDivisionError
        assert list_runs(local_store) == []
        with pytest.raises(RunNotFoundError, match="There is no run"):
            Run.open("run", local_store)
        assert not Path(local_store.url).exists()
        with Claim(local_store, IDENTITY, on_existing) as claim:
            assert claim.existing is None

    @pytest.mark.parametrize("on_existing", ["error", "resume"])
    def test_a_process_that_is_killed_leaves_nothing(self, local_store, on_existing) -> None:
        code = (
            "import os, signal, sys\n"
            "from tests.runs.test_unfinished import *\n"
            "Claim(Store.parse(sys.argv[1]), IDENTITY, 'error').__enter__()\n"
            "os.kill(os.getpid(), signal.SIGKILL)"
        )
        killed = subprocess.run([sys.executable, "-c", code, local_store.url], check=False)
        assert killed.returncode == -9
        assert list_runs(local_store) == []
        # Of other keys, too: what was claimed is no run.
        other = Identity(run_id="run", kind="train", key_columns=())
        with Claim(local_store, other, on_existing) as claim:
            assert claim.existing is None

    def test_one_that_was_never_begun_does_not_exist(self, local_store, monkeypatch) -> None:
        with Claim(local_store, IDENTITY, "error") as claim:
            # As a process leaves it that is killed between two writes.
            claim._create(2)
        assert Run.open("run", local_store).generation == 0
        with Claim(local_store, IDENTITY, "error") as claim:
            claim.begin(n_shards=9, intent=INTENT)
        assert Run.open("run", local_store).document.n_shards == 2

    def test_one_of_two_gets_it(self, local_store) -> None:
        with Claim(local_store, IDENTITY, "error"):
            with pytest.raises(RunExistsError, match="another process"):
                Claim(local_store, IDENTITY, "error").__enter__()
            with pytest.raises(RunBusyError):
                Claim(local_store, IDENTITY, "resume").__enter__()

    @pytest.mark.parametrize("on_existing", ["error", "resume", "overwrite"])
    def test_one_that_was_removed_is_seen_as_a_new_one_is(
        self, make_run, configured_key, on_existing
    ) -> None:
        make_run.begin()
        make_run.commit(("a", "DONE", 1.0))
        make_run.end(1)
        store = make_run.store
        remove_run(store, "run")
        with Claim(store, IDENTITY, on_existing):
            assert list_runs(store) == ["run"]
            run = Run.open("run", store)
            assert (run.status, run.generation, run.counts) == (RunStatus.IN_PROGRESS, 0, {})
            assert not run.is_removed
            assert "its rows are loaded since" in str(run.progress())
            with pytest.raises(RunBusyError):
                remove_run(store, "run")
            with pytest.raises(RunExistsError, match="another process"):
                Claim(store, IDENTITY, "error").__enter__()
        # Its rows could not be loaded.
        assert list_runs(store) == []
        with pytest.raises(RunNotFoundError, match="was removed"):
            Run.open("run", store)
        with Claim(store, IDENTITY, on_existing) as claim:
            claim.begin(n_shards=3, intent=INTENT, partitions=1)
            assert (Run.open("run", store).generation, claim.generation) == (2, 2)

    def test_an_unsigned_claim_is_refused_where_there_are_keys(
        self, local_store, configured_key
    ) -> None:
        with Claim(local_store, IDENTITY, "error"):
            assert Run.open("run", local_store).generation == 0
            path = Path(local_store.url, "runs/run/lease/0001.run")
            path.write_bytes(path.read_bytes().replace(b'"map"', b'"train"'))
            assert list_runs(local_store) == ["run"]
            with pytest.raises(SignatureError, match="changed after it was signed"):
                Run.open("run", local_store)


class TestPartitions:
    def test_all_are_there_before_any_work(self, make_run) -> None:
        make_run.begin(keys=["b", "a", "c"])
        run = make_run.open()
        assert statuses(run) == dict.fromkeys([("a",), ("b",), ("c",)], "PENDING")
        assert run.partitions["rows"].to_pylist() == [2, 1, 3]
        assert run.counts == {"PENDING": 3}
        assert run.partition("a")["status"] == "PENDING"
        assert run.partition("a")["running_since"] is None
        with pytest.raises(ModelNotFoundError, match="is PENDING and has no model"):
            run.model("a")

    def test_what_was_begun_runs_until_its_row_is_there(self, make_run) -> None:
        claim = make_run.begin(keys=["b", "a", "d", "c"])
        say(claim, counts={"DONE": 1}, running=1, begun={0: (2, 1, SINCE)})
        run = make_run.open()
        # In the order of the keys.
        assert list(statuses(run).values()) == ["RUNNING", "RUNNING", "PENDING", "PENDING"]
        assert run.partitions["running_since"].to_pylist() == [None, SINCE, None, None]
        make_run.commit(("a", "DONE", 1.0))
        run = make_run.open()
        assert list(statuses(run).values()) == ["DONE", "RUNNING", "PENDING", "PENDING"]
        assert (run.counts["DONE"], run.at_work.committed) == (1, 1)
        make_run.commit(("b", "FAILED", 1.0), ("c", "DONE", 1.0), ("d", "SKIPPED", 1.0))
        ended = make_run.end(4)
        assert list(statuses(ended).values()) == ["DONE", "FAILED", "DONE", "SKIPPED"]
        assert "running_since" not in ended.refresh().partitions.column_names

    def test_trials_of_a_study_run_in_any_order(self, local_store) -> None:
        maker = RunMaker(local_store, kind="tune", keys=pa.schema([("trial", pa.int64())]))
        claim = maker.begin(keys=[0, 1, 2, 7])
        say(claim, running=2, begun={1: (1, 0, SINCE), 7: (1, 0, SINCE)})
        run = maker.open()
        assert list(statuses(run).values()) == ["PENDING", "RUNNING", "PENDING", "RUNNING"]
        assert run.partitions["running_since"].to_pylist() == [None, SINCE, None, SINCE]
        assert (run.trials.num_rows, run.best) == (0, None)
        with pytest.raises(ModelNotFoundError, match="is PENDING and has no model"):
            run.model()
        maker.commit((7, "DONE", 1.0))
        assert list(statuses(maker.open()).values()) == ["PENDING", "RUNNING", "PENDING", "DONE"]

    def test_a_process_that_was_killed_runs_nothing(self, make_run, monkeypatch) -> None:
        claim = make_run.begin(keys=["a", "b"])
        say(claim, running=1, begun={0: (1, 0, SINCE)})
        assert make_run.open().progress().counts == {"PENDING": 1, "RUNNING": 1}
        monkeypatch.setattr("partwise.store.lease.is_gone", lambda *_: True)
        assert list(statuses(make_run.open()).values()) == ["PENDING", "PENDING"]
        progress = make_run.open().progress()
        assert (progress.counts, progress.has_process) == ({"PENDING": 2}, False)
        assert str(progress).endswith("no process works on it")

    def test_models_do_not_vanish_while_a_resume_works(self, make_run) -> None:
        make_run.begin()
        make_run.commit(("a", "DONE", 1.0))
        make_run.end(1)
        make_run.begin(keys=["a", "b"])
        run = make_run.open()
        assert statuses(run) == {("a",): "DONE"}
        assert statuses(run.newest) == {("a",): "PENDING", ("b",): "PENDING"}
        assert (run.progress().generation, run.progress().counts) == (2, {"PENDING": 2})

    def test_a_resume_of_what_was_never_complete(self, make_run) -> None:
        make_run.begin(keys=["a", "b"])
        make_run.commit(("a", "DONE", 1.0))
        make_run.die()
        make_run.begin(keys=["a", "b", "c"])
        assert statuses(make_run.open()) == {("a",): "DONE", ("b",): "PENDING", ("c",): "PENDING"}
        make_run.die()
        # Of other code: readers see the rows of what has more models, and nothing is mixed.
        make_run.begin(code="other", keys=["a", "d"])
        assert statuses(make_run.open()) == {("a",): "DONE"}
        assert statuses(make_run.open().newest) == {("a",): "PENDING", ("d",): "PENDING"}

    @pytest.mark.parametrize("name", KEYS)
    def test_keys_of_every_class_are_found_again(self, local_store, name) -> None:
        values = KEYS[name] if isinstance(KEYS[name], pa.Array) else pa.array(KEYS[name])
        table = pa.table({"k": values})
        columns = key_columns(table.schema, ["k"])
        keys = normalize_keys(table, columns)
        maker = RunMaker(local_store, keys=keys.schema)
        claim = maker.begin(keys=keys["k"].to_pylist(), n_shards=2)
        say(claim, begun={0: (9, -1, SINCE)})
        run = maker.open()
        shards = (hash_keys(keys) % np.uint64(2)).tolist()
        expected = sorted("RUNNING" if shard == 0 else "PENDING" for shard in shards)
        assert sorted(run.partitions["status"].to_pylist()) == expected
        first = keys["k"].to_pylist()[0]
        maker.commit((first, "DONE", 1.0))
        run = maker.open()
        assert run.partitions.num_rows == len(keys)
        assert run.partition(first)["status"] == "DONE"

    def test_several_key_columns_with_nulls(self, local_store) -> None:
        schema = pa.schema([("a", pa.string()), ("b", pa.int64()), ("c", pa.date32())])
        maker = RunMaker(local_store, keys=schema)
        day = datetime(2026, 1, 2, tzinfo=UTC).date()
        keys = [("x", 2, day), ("x", None, None), (None, 1, day), ("x", 1, day)]
        claim = maker.begin(keys=keys)
        say(claim, begun={0: (2, 1, SINCE)})
        maker.commit((keys[3], "DONE", 1.0))
        # Nulls last, in each column.
        assert list(statuses(maker.open()).items()) == [
            (keys[3], "DONE"),
            (keys[0], "RUNNING"),
            (keys[1], "PENDING"),
            (keys[2], "PENDING"),
        ]


class TestKeysFile:
    def only(self, make_run) -> Path:
        (path,) = Path(make_run.store.url, "runs/run/generations").glob("*.keys-*.parquet")
        return path

    def test_one_that_is_damaged_hides_what_has_no_row(self, make_run, caplog) -> None:
        make_run.begin(keys=["a", "b"])
        make_run.commit(("a", "DONE", 1.0))
        assert verify_run("run", make_run.store).damages == []
        path = self.only(make_run)
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 1
        path.write_bytes(content)
        assert statuses(make_run.open()) == {("a",): "DONE"}
        assert "damaged" in caplog.text
        (damage,) = verify_run("run", make_run.store).damages
        assert "keys of generation 1" in str(damage)

    def test_one_of_other_columns_is_refused(self, make_run, local_store, caplog) -> None:
        make_run.begin(keys=["a"])
        other = RunMaker(local_store, "other", keys=pa.schema([("key", pa.int64())]))
        other.begin(keys=[1])
        theirs = Path(local_store.url, "runs/other/generations/0001.keys-0001.parquet")
        self.only(make_run).write_bytes(theirs.read_bytes())
        assert statuses(make_run.open()) == {}
        assert "does not hold the keys of this run" in caplog.text

    def test_an_unsigned_one_does_not_count_where_there_are_keys(
        self, make_run, configured_key, caplog
    ) -> None:
        make_run.begin(keys=["a"])
        assert len(statuses(make_run.open())) == 1
        path = self.only(make_run)
        path.rename(path.with_name("0001.keys-0002.parquet"))
        assert statuses(make_run.open()) == {}
        assert "changed after it was signed" in caplog.text

    def test_it_goes_with_a_collection_of_garbage(self, make_run) -> None:
        make_run.begin(keys=["a"])
        make_run.commit(("a", "DONE", 1.0))
        make_run.end(1)
        path = self.only(make_run)
        assert collect_garbage(make_run.store, "run", dry_run=True).files == []
        make_run.begin(keys=["a"])
        make_run.commit(("a", "DONE", 2.0))
        make_run.end(1)
        collect_garbage(make_run.store, "run", dry_run=False)
        assert not path.exists()
        assert statuses(make_run.open()) == {("a",): "DONE"}

    def test_the_one_of_who_began_the_generation_counts(self, make_run) -> None:
        make_run.begin(keys=["a"])
        path = self.only(make_run)
        stale = path.with_name("0001.keys-0000.parquet")
        stale.write_bytes(b"of a process that was killed before")
        assert statuses(make_run.open()) == {("a",): "PENDING"}


class TestProgress:
    def test_it_counts_to_the_total_each_time(self, make_run) -> None:
        claim = make_run.begin(keys=["a", "b", "c", "d"])
        assert make_run.open().progress().counts == {"PENDING": 4}
        say(claim, counts={"DONE": 2, "FAILED": 1}, kept=1, running=1)
        progress = make_run.open().progress()
        assert progress.counts == {"RUNNING": 1, "DONE": 2, "FAILED": 1}
        assert (progress.total, progress.finished, progress.kept) == (4, 3, 1)
        assert progress.left is not None
        assert "3 of 4 (1 RUNNING, 2 DONE, 1 FAILED), about" in str(progress)
        say(claim, counts={"DONE": 3}, running=7)
        assert make_run.open().progress().counts == {"RUNNING": 1, "DONE": 3}

    def test_time_that_is_left(self, make_run) -> None:
        claim = make_run.begin(keys=["a", "b", "c", "d"])
        began = make_run.open().read_generation_document().started_at
        say(claim, at=began + timedelta(seconds=10), counts={"DONE": 2}, kept=1, running=1)
        # One in ten seconds, and two are left.
        assert make_run.open().progress().left == timedelta(seconds=20)

    def test_where_nothing_is_said_rows_count(self, make_run) -> None:
        make_run.begin(partitions=3)
        make_run.commit(("a", "DONE", 1.0))
        progress = make_run.open().progress()
        assert (progress.counts, progress.heard_at) == ({"PENDING": 2, "DONE": 1}, None)

    def test_what_is_said_of_another_generation_does_not_count(self, make_run) -> None:
        claim = make_run.begin(keys=["a", "b"])
        claim.generation = 7
        say(claim, counts={"DONE": 2})
        assert make_run.open().progress().counts == {"PENDING": 2}

    def test_its_end(self, make_run) -> None:
        make_run.begin(keys=["a"])
        make_run.commit(("a", "DONE", 1.0))
        run = make_run.end(1)
        progress = run.progress()
        assert (progress.status, progress.counts) == (RunStatus.SUCCESS, {"DONE": 1})
        assert (progress.has_process, progress.left) == (False, None)
        assert str(progress) == "SUCCESS: 1 of 1 (1 DONE)"

    def test_a_store_that_refuses_changes_nothing(self, make_run, monkeypatch) -> None:
        claim = make_run.begin(keys=["a"])

        def refuse(self, path, data):
            raise StoreError("no room")

        monkeypatch.setattr(Store, "write", refuse)
        claim.tell(lambda: Standing(generation=1, counts={"DONE": 1}))
        make_run.commit(("a", "DONE", 1.0))
        assert make_run.end(1).status is RunStatus.SUCCESS

    def test_a_word_that_cannot_be_said_stops_no_heartbeat(self, make_run, monkeypatch) -> None:
        monkeypatch.setattr("partwise.store.lease.TELL_S", 0.01)
        claim = make_run.begin(keys=["a"])
        said = []

        def fail() -> Standing:
            said.append(1)
            raise ZeroDivisionError

        claim.tell(fail)
        wait_for(lambda: len(said) >= 3, "it is not asked again", 10)
        claim.check()


def test_the_same_in_a_bucket(s3_store) -> None:
    identity = replace(IDENTITY, run_id="bucket")
    with Claim(s3_store, identity, "error"):
        assert Run.open("bucket", s3_store).progress().total is None
    # Its rows could not be loaded.
    assert s3_store.list("") == []
    maker = RunMaker(s3_store, "bucket")
    claim = maker.begin(keys=["b", "a"])
    claim.tell(lambda: Standing(generation=1, running=1, begun={0: (1, 0, SINCE)}))
    wait_for(lambda: maker.open().progress().heard_at, "nothing is heard", 10)
    assert maker.open().progress().counts == {"PENDING": 1, "RUNNING": 1}
    assert statuses(maker.open()) == {("a",): "RUNNING", ("b",): "PENDING"}
    maker.commit(("a", "DONE", 1.0), ("b", "DONE", 1.0))
    assert statuses(maker.end(2)) == {("a",): "DONE", ("b",): "DONE"}
