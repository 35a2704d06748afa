"""The example that trains, compares, promotes and infers: stopped at each point, then gone on."""

import importlib.util
import shutil
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from partwise import Catalog, Dataset, ExecutionOptions, Run

EXAMPLE = Path(__file__).parents[2] / "examples" / "nightly_champions.py"
FLOWS = ("train_models", "promote_models", "compare_models", "run_inference")
N_CALLS = 4
"""So many flows a night calls, but for the first one."""
FIRST, SECOND = date(2026, 3, 1), date(2026, 4, 1)
STORES = ["a", "b", "c"]


class Stopped(BaseException):
    """An interrupt of the process."""


def table() -> pa.Table:
    """Sales of three stores: of one of them nothing is as before since the second month."""
    chance = np.random.default_rng(5)
    days = [date(2026, 1, 1) + timedelta(days=i) for i in range(110)]
    rows: dict[str, list[Any]] = {name: [] for name in ("store", "date", "price", "sales")}
    for store in STORES:
        for place, day in enumerate(days):
            price = chance.uniform(1, 9)
            # Of the others each model says the same, however many days it has seen.
            sales = 50.0 + price if store == "b" and place >= 30 else 5.0
            rows["store"].append(store)
            rows["date"].append(day)
            rows["price"].append(price)
            rows["sales"].append(sales)
    rows["promotion"] = rows["weekday"] = [0.0] * len(rows["store"])
    return pa.table(rows)


@pytest.fixture(scope="module")
def example() -> Any:
    """The example, which tests share: what one replaces in it, it puts back."""
    spec = importlib.util.spec_from_file_location("nightly_champions", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.STRICT = ExecutionOptions(max_failed_fraction=0.05, n_shards=1)
    return module


@dataclass
class Nights:
    """Two nights that nothing stops, and the store at each moment of the second. To be copied."""

    whole: Path
    last: Run
    moments: list[Path]
    """After so many calls of flows in the second night, and so before the next one."""


@pytest.fixture(scope="module")
def nights(example, cluster, tmp_path_factory) -> Nights:
    folder = tmp_path_factory.mktemp("nights")
    whole = folder / "whole"
    example.night(FIRST, table(), str(whole), cluster)
    moments = [Path(shutil.copytree(whole, folder / "0"))]

    def watched(flow: Any) -> Any:
        def call(*values: Any, **named: Any) -> Any:
            # Who is killed before a flow leaves what is there when the one before has ended.
            assert files_in(whole) == files_in(moments[-1])
            done = flow(*values, **named)
            moments.append(Path(shutil.copytree(whole, folder / str(len(moments)))))
            return done

        return call

    with pytest.MonkeyPatch.context() as patch:
        for name in FLOWS:
            patch.setattr(example, name, watched(getattr(example, name)))
        last = example.night(SECOND, table(), str(whole), cluster)
    assert len(moments) == 1 + N_CALLS
    return Nights(whole, last, moments)


def files_in(store: Path) -> dict[str, bytes]:
    paths = [path for path in store.rglob("*") if path.is_file()]
    return {str(path.relative_to(store)): path.read_bytes() for path in paths}


def seen(store: Path) -> dict[str, Any]:
    """Return what others see: champions, and the predictions that were published last."""
    rows = Catalog.open("stores", store).table.to_pylist()
    published = pa.Table.from_batches(Dataset.open("forecasts", store=store).source().batches())
    return {
        "champions": {row["key.store"]: row["run_id"] for row in rows},
        "published": sorted(published.select(["store", "date", "prediction"]).to_pylist(), key=str),
    }


def test_only_what_is_better_is_used_and_the_last_step_publishes(nights) -> None:
    assert set(seen(nights.moments[0])["champions"].values()) == {f"train-{FIRST}"}
    assert seen(nights.whole)["champions"] == {
        "a": f"train-{FIRST}", "b": f"train-{SECOND}", "c": f"train-{FIRST}",
    }  # fmt: skip
    assert set(nights.last.predictions()["model_level"].to_pylist()) == {0}


@pytest.mark.slow
@pytest.mark.parametrize("n_calls", range(1, N_CALLS + 1))
def test_a_night_that_was_killed_goes_on_where_it_was(
    example, nights, tmp_path, cluster, n_calls
) -> None:
    """Killed after so many flows, which is before the next one: nothing is written in between.

    Before the first one it is a night that nothing stops.
    """
    cut = Path(shutil.copytree(nights.moments[n_calls], tmp_path / "cut"))
    if n_calls < N_CALLS:
        assert seen(cut)["published"] == seen(nights.moments[0])["published"]
    example.night(SECOND, table(), str(cut), cluster)
    check_is_whole(cut, nights)


@pytest.mark.slow
def test_a_night_that_was_interrupted_goes_on_in_the_same_process(
    example, nights, tmp_path, cluster, monkeypatch
) -> None:
    cut = Path(shutil.copytree(nights.moments[0], tmp_path / "cut"))

    def interrupted(*_: Any, **__: Any) -> None:
        raise Stopped

    with monkeypatch.context() as patch:
        patch.setattr(example, "promote_models", interrupted)
        with pytest.raises(Stopped):
            example.night(SECOND, table(), str(cut), cluster)
    example.night(SECOND, table(), str(cut), cluster)
    check_is_whole(cut, nights)


def check_is_whole(cut: Path, nights: Nights) -> None:
    assert seen(cut) == seen(nights.whole)
    catalogs = [Catalog.open("stores", store) for store in (cut, nights.whole)]
    assert catalogs[0].version == catalogs[1].version
    assert Run.open(f"infer-{SECOND}", cut).status.value == "SUCCESS"
