"""The rows of a study on a machine: written once, removed when nobody uses them."""

import fcntl
import os
import pickle
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest

from partwise.connector.spooling import SpooledReader
from partwise.engine.worker import tasks
from partwise.errors import SourceError
from partwise.ranks.staging import rank_source
from partwise.shuffle.shared_folder import SharedFolder, StagedFile
from partwise.sources.opening import open_source
from partwise.store.entry_locks import lock_entry
from partwise.studies import host_rows, worker
from partwise.studies.host_rows import forget_rows, map_rows


@pytest.fixture
def fragments(tmp_path, monkeypatch, local_store):
    monkeypatch.setenv("PARTWISE_SCRATCH", str(tmp_path / "scratch"))
    (tmp_path / "shared").mkdir()
    folder = SharedFolder(tmp_path / "shared", local_store, "run", "t", shared=True)

    def make(table):
        return rank_source(open_source(table), folder, None)

    return make


def test_rows_are_written_once_and_removed_by_the_last(fragments, tmp_path) -> None:
    words = pa.array(["a", "b", None]).dictionary_encode()
    rows = fragments(pa.table({"x": [1, 2, 3], "word": words}))
    path, count = map_rows(rows, "token1")
    before = os.stat(path)
    assert map_rows(rows, "token1") == (path, count) == (path, 3)
    assert (os.stat(path).st_ino, os.stat(path).st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    found = SpooledReader(path).partition(1, 3)
    assert found.to_pylist() == [{"x": 2, "word": "b"}, {"x": 3, "word": None}]
    # Another worker of this machine still uses them.
    other = lock_entry(Path(path).parent, fcntl.LOCK_SH)
    forget_rows("token1")
    assert Path(path).exists()
    os.close(other)
    map_rows(rows, "token2")
    assert not Path(path).exists(), "the next study removes what a killed worker left"
    forget_rows("token2")
    assert list((tmp_path / "scratch" / "studies").iterdir()) == []


def test_rows_of_a_driver_that_is_gone_are_given_up(
    fragments, tmp_path, monkeypatch, local_store
) -> None:
    here = SimpleNamespace(local_directory=str(tmp_path))
    monkeypatch.setattr(worker, "this_worker", lambda: here)
    monkeypatch.setattr(tasks, "this_worker", lambda: here)
    monkeypatch.setattr(tasks, "watch_own_task", lambda: lambda: True)
    staged = tmp_path / "rows.pkl"
    staged.write_bytes(pickle.dumps(fragments(pa.table({"x": [1, 2, 3]}))))
    assert worker.load_rows(StagedFile(path=str(staged), where="disk"), local_store, "token") == 3
    assert list((tmp_path / "scratch" / "studies").iterdir()) == []
    assert not list(tmp_path.glob("partwise-*"))


def test_trials_that_begin_at_the_same_time_hold_the_rows_once(
    fragments, tmp_path, monkeypatch
) -> None:
    def slowly(entry: Path, how: int) -> int:
        time.sleep(0.1)
        return lock_entry(entry, how)

    monkeypatch.setattr(host_rows, "lock_entry", slowly)
    rows = fragments(pa.table({"x": [1, 2, 3]}))
    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(map_rows, [rows] * 2, ["token4"] * 2))
    assert found[0] == found[1]
    forget_rows("token4")
    assert list((tmp_path / "scratch" / "studies").iterdir()) == []


def test_no_rows_are_refused(fragments) -> None:
    try:
        with pytest.raises(SourceError, match="no rows"):
            map_rows(fragments(pa.table({"x": pa.array([], pa.int64())})), "token3")
    finally:
        forget_rows("token3")


def test_the_driver_needs_no_optuna_until_it_searches() -> None:
    code = (
        "import sys, partwise.studies.worker, partwise.runs.trials; print('optuna' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
