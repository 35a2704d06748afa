"""A registration that is stopped anywhere, and goes on when another process has done its work."""

import contextlib
import itertools
from collections.abc import Callable

import pyarrow as pa

from partwise.datasets.dataset import Dataset, list_versions
from partwise.datasets.garbage import collect_dataset_garbage
from partwise.datasets.registration import register_dataset
from partwise.errors import StoreError
from partwise.publishing.dataset_output import register_output
from partwise.runs.run import Run
from partwise.store.store import Store
from tests.one_shard import RUN_ID, drive
from tests.two_drivers import points

FIRST = pa.table({"x": [1, 2, 3, 4]})
SECOND = pa.table({"x": [5, 6, 7, 8]})


def values(dataset: Dataset) -> list[int]:
    return [row for batch in dataset.source().batches() for row in batch["x"].to_pylist()]


def stores(tmp_path) -> Callable[[], Store]:
    numbers = itertools.count()
    return lambda: Store.parse(tmp_path / f"{next(numbers)}")


def register(store: Store) -> None:
    with contextlib.suppress(StoreError):
        register_dataset("sales", SECOND, store=store)


def test_a_version_that_was_committed_keeps_its_parts(tmp_path) -> None:
    new_store = stores(tmp_path)

    def prepare() -> Store:
        store = new_store()
        register_dataset("sales", FIRST, store=store)
        return store

    def collect(store: Store) -> None:
        collect_dataset_garbage(store, "sales", dry_run=False)

    def whole(store: Store) -> None:
        found = [values(Dataset.open("sales", n, store)) for n in list_versions(store, "sales")]
        assert found in ([[1, 2, 3, 4]], [[1, 2, 3, 4], [5, 6, 7, 8]]), found
        register_dataset("sales", SECOND, store=store)
        assert values(Dataset.open("sales", None, store)) == [5, 6, 7, 8]

    tally = points(prepare, register, collect, whole)
    assert tally.lost == []
    assert tally.tried >= 10


def test_an_older_outcome_of_a_run_never_becomes_the_newest_version(tmp_path) -> None:
    new_store = stores(tmp_path)
    old, new = {"a": 1.0, "b": 2.0}, {"a": 1.0, "b": 20.0}

    def first(store: Store) -> None:
        register_output("rows", drive(store, old))

    def second(store: Store) -> None:
        register_output("rows", drive(store, new))

    def whole(store: Store) -> None:
        newest = pa.Table.from_batches(Dataset.open("rows", None, store).source().batches())
        # Where the first one got the lease after the second, its outcome is the newer one.
        shown = Run.open(RUN_ID, store).predictions()
        assert newest.sort_by("key").to_pylist() == shown.sort_by("key").to_pylist()

    tally = points(new_store, first, second, whole, every=5)
    assert tally.lost == []
