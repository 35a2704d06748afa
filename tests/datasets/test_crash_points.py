"""A registration that dies before any one of its writes: nothing shows, the next one works."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from partwise.datasets import parts
from partwise.datasets.dataset import Dataset, list_datasets, list_versions
from partwise.datasets.garbage import collect_dataset_garbage
from partwise.datasets.registration import register_dataset
from partwise.errors import StoreError
from partwise.store.lease import Lease
from partwise.store.store import Store

FIRST = pa.table({"x": [1, 2, 3, 4]})
SECOND = pa.table({"x": [5, 6, 7, 8]})


class Crash(BaseException):
    """The death of the process, which nothing may catch."""


class Fuse:
    """Lets a number of writes to the store pass, and dies before the next."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.left: int | None = None
        for name in ("create", "write", "delete", "delete_folder"):
            monkeypatch.setattr(Store, name, self._guard(name, getattr(Store, name)))

    def _guard(self, verb: str, method):
        def guarded(store: Store, path: str, *content: bytes) -> None:
            if "/lease/" not in path and self.left is not None:
                self.left -= 1
                if self.left < 0:
                    raise Crash(f"before {verb} {path}")
            method(store, path, *content)

        return guarded


@pytest.fixture(autouse=True)
def small_parts(monkeypatch) -> None:
    monkeypatch.setattr(parts, "PART_BYTES", 1)
    monkeypatch.setattr(parts, "_ROW_GROUP_ROWS", 1)


def in_batches(table: pa.Table) -> pa.Table:
    return pa.Table.from_batches(table.to_batches(max_chunksize=1))


def values(dataset: Dataset) -> list[int]:
    return [row for batch in dataset.source().batches() for row in batch["x"].to_pylist()]


def test_a_crash_before_any_write_leaves_what_was_there(tmp_path, monkeypatch) -> None:
    fuse = Fuse(monkeypatch)
    left_behind = 0
    for survived in range(100):
        store = Store.parse(tmp_path / str(survived))
        register_dataset("sales", FIRST, store=store)
        fuse.left = survived
        try:
            register_dataset("sales", in_batches(SECOND), store=store)
        except Crash:
            crashed = True
        else:
            crashed = False
        fuse.left = None
        (newest,) = list_datasets(store)
        assert values(newest) == (FIRST if newest.version == 1 else SECOND)["x"].to_pylist()
        again = register_dataset("sales", in_batches(SECOND), store=store)
        assert (again.version, values(again)) == (2, SECOND["x"].to_pylist())
        assert values(Dataset.open("sales", 1, store)) == FIRST["x"].to_pylist()
        told = collect_dataset_garbage(store, "sales", dry_run=True)
        assert collect_dataset_garbage(store, "sales", dry_run=False) == told
        left_behind += len(told)
        assert collect_dataset_garbage(store, "sales", dry_run=False) == []
        used = {f"datasets/sales/{p.path}" for v in (1, 2) for p in _parts(store, v)}
        assert {path for path in store.list("") if path.endswith(".parquet")} == used
        if not crashed:
            break
    assert survived >= 6, "so many writes there are at least"
    assert left_behind >= 4


def _parts(store: Store, version: int):
    return Dataset.open("sales", version, store).manifest.parts


SCRIPT = """
import os, signal, sys
import pyarrow as pa
from partwise.datasets import parts
from partwise.datasets.registration import register_dataset
from partwise.store.store import Store
parts.PART_BYTES = parts._ROW_GROUP_ROWS = 1
create = Store.create
def create_or_die(self, path, content):
    if "/manifests/" in path:
        os.kill(os.getpid(), signal.SIGKILL)
    create(self, path, content)
Store.create = create_or_die
table = pa.table({"x": [5, 6, 7, 8]})
batches = pa.Table.from_batches(table.to_batches(max_chunksize=1))
register_dataset("sales", batches, store=sys.argv[1])
"""


def test_kill_9_before_the_manifest_leaves_garbage_only(tmp_path: Path) -> None:
    store = Store.parse(tmp_path)
    command = [sys.executable, "-c", SCRIPT, str(tmp_path)]
    died = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    assert died.returncode == -signal.SIGKILL, died.stderr
    assert list_datasets(store) == []
    assert list_versions(store, "sales") == []
    assert values(register_dataset("sales", FIRST, store=store)) == [1, 2, 3, 4]
    found = collect_dataset_garbage(store, "sales", dry_run=False)
    assert len(found) == 4, "the parts of the one that died"
    assert values(Dataset.open("sales", 1, store)) == [1, 2, 3, 4]


def test_garbage_of_a_registration_at_work_stays(tmp_path) -> None:
    store = Store.parse(tmp_path)
    register_dataset("sales", FIRST, store=store)
    store.create("datasets/sales/parts/at-work/00000.parquet", b"rows")
    with Lease.acquire(store, "datasets/sales/parts/at-work"):
        assert collect_dataset_garbage(store, "sales", dry_run=False) == []
    assert collect_dataset_garbage(store, "sales", dry_run=False) == [
        ("datasets/sales/parts/at-work/00000.parquet", 4)
    ]
    assert os.listdir(tmp_path / "datasets/sales/parts") == [_parts(store, 1)[0].path.split("/")[1]]


def test_a_registration_given_up_by_others_makes_no_version(tmp_path, monkeypatch) -> None:
    store = Store.parse(tmp_path)
    add = parts.DatasetWriter.finish

    def lose_the_parts(self):
        found = add(self)
        store.delete_folder("datasets/sales/parts")
        return found

    monkeypatch.setattr(parts.DatasetWriter, "finish", lose_the_parts)
    with pytest.raises(StoreError, match="were removed before it was registered"):
        register_dataset("sales", FIRST, store=store)
    assert list_datasets(store) == []
