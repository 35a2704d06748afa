"""Nights of a catalog: what got worse or is new is trained, all else is left as it is."""

import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from partwise.catalogs.catalog import Catalog
from partwise.catalogs.evaluated import Evaluated
from partwise.catalogs.rules import Improvement
from partwise.errors import GateError, InputError, RunNotFoundError, StoreError
from partwise.flows import lifecycle
from partwise.runs.contents import list_runs
from partwise.runs.run import Run
from tests.nights import NIGHTS, START, TRAINER, rows_until, seen

pytestmark = pytest.mark.usefixtures("single_shard")

flow_module = sys.modules[lifecycle.fn.__module__]
STAGES = (
    *("evaluate_predictions", "train_models", "compare_models"),
    *("promote_models", "run_inference"),
)


class Stopped(BaseException):
    """An interrupt of the process."""


@pytest.mark.parametrize("count", [0, 1, 4])
def test_what_stays_of_older_nights_is_one_line(monkeypatch, count: int) -> None:
    lines: list[str] = []
    log = SimpleNamespace(info=lambda text, *values: lines.append(text % values))
    monkeypatch.setattr(flow_module, "run_logger", lambda: log)
    stay = {f"r-{number}": "ours uses it" for number in range(count)}
    monkeypatch.setattr(flow_module, "remove_old_nights", lambda *_: (["a", "b"], stay))
    found = flow_module._without_old_nights(None, 1, None)
    assert found == " 2 runs of older nights removed."
    shown = "; ".join(f"r-{number}: ours uses it" for number in range(3))
    expected = {
        0: [],
        1: ["1 run of older nights stays: r-0: ours uses it"],
        4: [f"4 runs of older nights stay: {shown} ..."],
    }
    assert lines == expected[count]


def test_a_store_that_cannot_be_listed_keeps_no_night_from_being_told(monkeypatch) -> None:
    def fail(*_: Any) -> None:
        raise StoreError("It cannot be listed.")

    monkeypatch.setattr(flow_module, "remove_old_nights", fail)
    assert flow_module._without_old_nights(None, 1, None) == ""


@pytest.fixture(scope="module")
def night(cluster, single_shard) -> Callable[..., Any]:
    def night(store: Path, day: date, **changes: Any) -> Any:
        options = {"compare_days": 21, "labels_after_days": 30, "output": "dataset://forecasts"}
        return lifecycle(
            rows_until(day), "key", TRAINER, "sales", "day", "y",
            day=day.isoformat(), store=store, cluster=cluster, **{**options, **changes},
        )  # fmt: skip

    return night


@dataclass
class First:
    """A first night: what it came to, and its store, which is to be copied."""

    night: Any
    store: Path


@pytest.fixture(scope="module")
def first(night, tmp_path_factory) -> First:
    store = tmp_path_factory.mktemp("nights") / "first"
    return First(night(store, NIGHTS[0]), store)


@pytest.fixture
def store(first: First, tmp_path: Path) -> Path:
    """A test's own store after the first night."""
    return Path(shutil.copytree(first.store, tmp_path / "store"))


@dataclass
class Whole:
    """What a store is after a second night that nothing stops, and copies made on the way."""

    seen: dict[str, Any]
    runs: list[str]
    moments: dict[str, Path]
    """The store as it was when a stage had ended: to be copied."""


@pytest.fixture(scope="module")
def whole(night, first, tmp_path_factory) -> Whole:
    folder = tmp_path_factory.mktemp("whole")
    store = Path(shutil.copytree(first.store, folder / "store"))
    moments = {"": first.store}

    def watched(stage: str) -> Callable[..., Any]:
        flow = getattr(flow_module, stage)

        def call(*values: Any, **named: Any) -> Any:
            # Who is killed before a stage leaves what is there when the one before has ended.
            assert files_in(store) == files_in([*moments.values()][-1])
            done = flow(*values, **named)
            moments[stage] = Path(shutil.copytree(store, folder / stage))
            return done

        return call

    with pytest.MonkeyPatch.context() as patch:
        for stage in STAGES:
            patch.setattr(flow_module, stage, watched(stage))
        night(store, NIGHTS[1], max_worse_fraction=1)
    assert [*moments] == ["", *STAGES]
    return Whole(seen=seen(store), runs=list_runs(store), moments=moments)


def files_in(store: Path) -> dict[str, bytes]:
    paths = [path for path in store.rglob("*") if path.is_file()]
    return {str(path.relative_to(store)): path.read_bytes() for path in paths}


def test_only_what_got_worse_or_is_new_is_trained_and_promoted(first, night, store) -> None:
    assert (first.night.evaluation, first.night.comparison) == (None, None)
    assert first.night.catalog.version == 1
    Catalog.open("sales", store).pin(["c"])
    before = seen(store)["champions"]
    second = night(store, NIGHTS[1], max_worse_fraction=0.9)
    verdicts = dict(
        zip(*(Evaluated.of(second.evaluation).table[n].to_pylist() for n in ("key", "verdict")),
            strict=True)
    )  # fmt: skip
    assert verdicts == {
        "a": "kept", "b": "worse", "c": "worse", "d": "few rows", "e": "few rows", "f": "no model"
    }  # fmt: skip
    # f has no rows from before the comparison yet, or too few.
    assert set(second.training.ledger["key.key"].to_pylist()) <= {"b", "c", "f"}
    third = night(store, NIGHTS[2], max_worse_fraction=0.9)
    trained = set(third.training.ledger["key.key"].to_pylist())
    assert {"b", "f"} <= trained <= {"b", "c", "f"}
    after = seen(store)["champions"]
    assert {key for key in after if after[key] != before.get(key)} == {"b", "f"}
    assert third.inference.counts == {"DONE": 6}
    again = night(store, NIGHTS[2], max_worse_fraction=0.9)
    assert again.catalog.version == third.catalog.version


def test_a_night_stops_where_too_much_got_worse_and_nothing_is_changed(night, store) -> None:
    before = seen(store)
    with pytest.raises(GateError, match=r"2 of 3 keys got worse, more than .*=0.5"):
        night(store, NIGHTS[1])
    assert seen(store) == before
    with pytest.raises(RunNotFoundError):
        Run.open(f"sales-{NIGHTS[1]}-train", store)
    done = night(store, NIGHTS[1], max_worse_fraction=1)
    assert done.inference.run_id == f"sales-{NIGHTS[1]}-infer"


def test_old_nights_go_but_for_their_champions(night, store) -> None:
    for day in NIGHTS[1:]:
        night(store, day, max_worse_fraction=1, labels_after_days=0, keep_nights=1)
    days = {name.removeprefix("sales-")[:10] for name in list_runs(store)}
    # Of the first night what it trained is still in use.
    assert f"sales-{NIGHTS[0]}-train" in list_runs(store)
    assert f"sales-{NIGHTS[0]}-infer" not in list_runs(store)
    assert str(NIGHTS[2]) in days
    catalog = Catalog.open("sales", store)
    assert catalog.model("a") is not None


def test_a_night_goes_on_where_nothing_can_be_judged_or_trained_yet(store, cluster) -> None:
    """No row of the days that were predicted is there; or a new key has none to be trained on."""
    rows = rows_until(NIGHTS[0])
    later = NIGHTS[0] + timedelta(30)
    shared = {"compare_days": 21, "store": store, "cluster": cluster}
    known = rows.filter(pc.less(rows["day"], pa.scalar(NIGHTS[0])))
    stopped = lifecycle(
        known, "key", TRAINER, "sales", "day", "y", inference_data=rows_until(later),
        day=later.isoformat(), **shared,
    )  # fmt: skip
    assert set(Evaluated.of(stopped.evaluation).verdicts) == {"pending"}
    assert stopped.training is None
    assert stopped.catalog.version == 1
    days = later + timedelta(1)
    found = rows_until(days)
    chosen = pc.or_(pc.equal(found["key"], "a"), pc.equal(found["key"], "f"))
    fresh = found.filter(
        pc.and_(chosen, pc.greater(found["day"], pa.scalar(later - timedelta(21))))
    )
    done = lifecycle(fresh, "key", TRAINER, "sales", "day", "y", day=days.isoformat(), **shared)
    assert Evaluated.of(done.evaluation).keys_to_train()["key"].to_pylist() == ["f"]
    assert (done.training, done.catalog.version) == (None, 1)


@pytest.mark.slow
@pytest.mark.parametrize("stage", STAGES)
def test_a_night_that_was_killed_ends_as_any_other(stage: str, night, whole, tmp_path) -> None:
    """After each stage, then called again: same champions, same published rows.

    That is before the next stage, too, as nothing is written in between.
    """
    store = Path(shutil.copytree(whole.moments[stage], tmp_path / "killed"))
    night(store, NIGHTS[1], max_worse_fraction=1)
    assert seen(store) == whole.seen
    assert list_runs(store) == whole.runs


@pytest.mark.slow
def test_a_night_that_was_interrupted_ends_as_any_other(night, whole, store, monkeypatch) -> None:
    def interrupted(*_: Any, **__: Any) -> None:
        raise Stopped

    with monkeypatch.context() as patched:
        patched.setattr(flow_module, "compare_models", interrupted)
        with pytest.raises(Stopped):
            night(store, NIGHTS[1], max_worse_fraction=1)
    night(store, NIGHTS[1], max_worse_fraction=1)
    assert seen(store) == whole.seen
    assert list_runs(store) == whole.runs


def test_what_is_no_day_is_refused(night, tmp_path) -> None:
    with pytest.raises(InputError, match="day is 'tonight'"):
        lifecycle(rows_until(NIGHTS[0]), "key", TRAINER, "sales", "day", "y", day="tonight")
    with pytest.raises(InputError, match="notified"):
        night(tmp_path, NIGHTS[0], notified="slack-webhook/ops")


def rows_at(day: date) -> pa.Table:
    """The rows that are there in a night, of all days since the end of January, a day ahead.

    Of g and h every other label is late by three more days; of i all are there twice, wrong ones
    first. b and h drift in the first and the second half, j appears, k disappears.
    """
    found: dict[str, list[Any]] = {name: [] for name in ("key", "day", "entered", "x", "y")}
    for place, key in enumerate("abcdefghijk"):
        chance = np.random.default_rng(place)
        for number in range(30, (day - START).days + 1):
            at, x = START + timedelta(number), chance.normal()
            drifts = (key == "b" and number >= 62) or (key == "h" and number >= 75)
            y = 2 * x + chance.normal(0, 0.3) + 8 * drifts
            if (key == "j" and number < 55) or (key == "k" and number >= 64):
                continue
            late = 4 if key in "gh" and number % 2 else 1
            is_there = at + timedelta(late) <= day
            if key == "i" and is_there:
                _add(found, key, at, 0, x, y + 50)
            _add(found, key, at, 1, x, y if is_there else None)
    return pa.table(found)


def _add(found: dict[str, list[Any]], *values: Any) -> None:
    for column, value in zip(found.values(), values, strict=True):
        column.append(value)


@pytest.mark.slow
def test_twenty_nights_end_with_the_right_champions_in_bounded_space(cluster, tmp_path) -> None:
    """Labels are late, half of them later, and double; keys drift, appear and disappear.

    Predictions are of a day, so that a night judges one row of a key: min_rows is 1, and what a key
    is called by that alone is no matter here but for what follows of it.
    """
    sizes = []
    first = START + timedelta(60)
    for number in range(20):
        day = first + timedelta(number)
        done = lifecycle(
            rows_at(day), "key", TRAINER, "sales", "day", "y",
            day=day.isoformat(), store=tmp_path, cluster=cluster, compare_days=6,
            latest_by="entered", min_rows=1, worse_by=3, max_worse_fraction=1, keep_nights=5,
            rule=Improvement(min_rows=5, confidence=0.99),
        )  # fmt: skip
        sizes.append(sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file()))
        assert not done.inference.counts.keys() - {"DONE", "SKIPPED"}
    champions = {row["key.key"]: row for row in Catalog.open("sales", tmp_path).table.to_pylist()}
    assert champions["a"]["since_version"] == 1
    changed = {key for key, row in champions.items() if row["since_version"] > 1}
    # h drifts late, and half of its labels are late as well.
    assert {"b", "j"} <= changed <= {"b", "h", "j"}
    # What is kept: five nights, the champions, and versions of a catalog of eleven keys. From the
    # eighth night on five have been kept, and twelve more are not to make it a quarter more.
    assert sizes[-1] < 1.25 * sizes[7]
