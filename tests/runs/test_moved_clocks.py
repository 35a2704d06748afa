"""Clocks that are an hour fast or slow: nothing that lives is deleted, the newest is shown."""

import contextlib
import itertools
import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, tzinfo
from pathlib import Path

import pyarrow as pa
import pytest

from partwise.datasets import registration
from partwise.datasets.dataset import Dataset, list_versions
from partwise.datasets.garbage import collect_dataset_garbage
from partwise.datasets.registration import register_dataset
from partwise.runs import claim, completion, garbage, ledger
from partwise.runs.garbage import collect_garbage
from partwise.runs.run import Run
from partwise.store import lease_owner
from partwise.store.store import Store
from tests import one_shard
from tests.one_shard import RUN_ID, check, drive
from tests.two_drivers import Tally, copies, points

MODULES = (claim, completion, garbage, ledger, lease_owner, registration, one_shard)
"""All that ask for the time of a run or dataset."""
HOURS = (-1.0, 0.0, 1.0)


@contextlib.contextmanager
def clock_moved(hours: float) -> Iterator[None]:
    """Have this process read a clock that is so many hours fast."""

    class Moved(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> datetime:
            return datetime.now(tz) + timedelta(hours=hours)

    with pytest.MonkeyPatch.context() as patch:
        for module in MODULES:
            patch.setattr(module, "datetime", Moved)
        yield


def walk(store: Store, chance: random.Random, steps: int) -> int:
    """Drive, register and collect, each by another clock; return how many files were collected."""
    values, collected = {"a": 1.0, "b": 2.0, "c": 3.0}, 0
    drive(store, values)
    for number in range(steps):
        opened, before = Run.open(RUN_ID, store), dict(values)
        hours = chance.choice(HOURS)
        with clock_moved(hours):
            if chance.random() < 0.7:
                values |= {chance.choice("abcd"): 10.0 + number}
            code = chance.choice("cd")
            made = drive(store, values, code, chance.choice(("resume", "overwrite")))
        assert made.generation == opened.generation + 1
        away = made.summary.finished_at - datetime.now(UTC)
        assert abs(away / timedelta(hours=1) - hours) < 0.5, "its clock was not moved"
        with clock_moved(chance.choice(HOURS)):
            register_dataset("rows", pa.table({"x": [number]}), store=store)
        for grace_hours in chance.sample((0.0, 24.0), chance.randint(0, 2)):
            with clock_moved(chance.choice(HOURS)):
                found = collect_garbage(store, RUN_ID, dry_run=False, grace_hours=grace_hours)
                collect_dataset_garbage(store, "rows", dry_run=False)
            collected += len(found.files)
            if grace_hours:
                continue
            opened, before = Run.open(RUN_ID, store), values
        # Who has opened the run before a collection that leaves what is a day old reads on.
        check(opened, before)
        shown = Run.open(RUN_ID, store)
        assert shown.generation == made.generation
        check(shown, values)
        versions = list_versions(store, "rows")
        found_rows = [
            row
            for version in versions
            for batch in Dataset.open("rows", version, store).source().batches()
            for row in batch["x"].to_pylist()
        ]
        assert found_rows == list(range(number + 1))
    return collected


def meet(folder: Path, hours: float, every: int) -> Tally:
    """Have a driver by a moved clock stand still anywhere, while another one does all the work."""
    numbers = itertools.count()
    first, second = {"a": 1.0, "b": 2.0, "c": 3.0}, {"a": 1.0, "b": 20.0, "c": 3.0, "d": 4.0}
    generations: dict[str, int] = {}

    def new_store() -> Store:
        return Store.parse(folder / str(next(numbers)))

    def slow(store: Store) -> None:
        with clock_moved(hours):
            drive(store, first, "other")

    def quick(store: Store) -> None:
        with clock_moved(-hours):
            generations[store.url] = drive(store, second).generation

    def whole(store: Store) -> None:
        run = Run.open(RUN_ID, store)
        assert run.generation >= generations[store.url]
        if run.generation == generations[store.url]:
            check(run, second)
        with clock_moved(-hours):
            collect_garbage(store, RUN_ID, dry_run=False, grace_hours=0)
        check(drive(store, second), second)

    prepare = copies(new_store, lambda store: drive(store, first))
    return points(prepare, slow, quick, whole, every=every)


@pytest.mark.parametrize("keys", ["", "k:" + "0" * 64])
def test_the_newest_is_shown_and_whole_by_any_clock(tmp_path, monkeypatch, keys) -> None:
    if keys:
        # Then the newest state that was seen is remembered, too.
        monkeypatch.setenv("PARTWISE_SIGNING_KEYS", keys)
        monkeypatch.setenv("PARTWISE_STATE", str(tmp_path / "state"))
    collected = walk(Store.parse(tmp_path / "store"), random.Random(7), 5)
    assert collected > 0


@pytest.mark.parametrize("hours", [-1.0, 1.0])
def test_two_drivers_with_an_hour_between_their_clocks(tmp_path, hours) -> None:
    tally = meet(tmp_path, hours, 37)
    assert tally.lost == []
    assert tally.tried > 3
