"""The example that trains, compares, promotes and infers: stopped at each point, then gone on."""

import importlib.util
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from partwise import Catalog, Dataset, ExecutionOptions, Run

EXAMPLE = Path(__file__).parents[2] / "examples" / "nightly_champions.py"
FLOWS = ("train_models", "promote_models", "compare_models", "run_inference")
FIRST, SECOND = date(2026, 3, 1), date(2026, 4, 1)
STORES = ["a", "b", "c"]


class Stopped(BaseException):
    """As if the process were killed there."""


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


@pytest.fixture
def example():
    spec = importlib.util.spec_from_file_location("nightly_champions", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.STRICT = ExecutionOptions(max_failed_fraction=0.05, n_shards=1)
    return module


def stop_at(example: Any, monkeypatch: pytest.MonkeyPatch, place: int, *, after: bool) -> None:
    """Have the process end before, or after, the nth call of a flow."""
    calls = iter(range(99))

    def watched(flow: Any) -> Any:
        def call(*values: Any, **named: Any) -> Any:
            is_last = next(calls) == place
            if is_last and not after:
                raise Stopped
            done = flow(*values, **named)
            if is_last:
                raise Stopped
            return done

        return call

    for name in FLOWS:
        monkeypatch.setattr(example, name, watched(getattr(example, name)))


def seen(store: str) -> dict[str, Any]:
    """Return what others see: champions, and the predictions that were published last."""
    rows = Catalog.open("stores", store).table.to_pylist()
    published = pa.Table.from_batches(Dataset.open("forecasts", store=store).source().batches())
    return {
        "champions": {row["key.store"]: row["run_id"] for row in rows},
        "published": sorted(published.select(["store", "date", "prediction"]).to_pylist(), key=str),
    }


def test_only_what_is_better_is_used_and_the_last_step_publishes(
    example, tmp_path, cluster
) -> None:
    store = str(tmp_path / "store")
    example.night(FIRST, table(), store, cluster)
    assert set(seen(store)["champions"].values()) == {f"train-{FIRST}"}
    run = example.night(SECOND, table(), store, cluster)
    assert seen(store)["champions"] == {
        "a": f"train-{FIRST}", "b": f"train-{SECOND}", "c": f"train-{FIRST}",
    }  # fmt: skip
    assert set(run.predictions()["model_level"].to_pylist()) == {0}


@pytest.mark.slow
@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("place", range(4))
def test_a_night_that_was_stopped_goes_on_where_it_was(
    example, tmp_path, cluster, monkeypatch, place, after
) -> None:
    whole, cut = str(tmp_path / "whole"), str(tmp_path / "cut")
    for store in (whole, cut):
        example.night(FIRST, table(), store, cluster)
    before = seen(cut)
    example.night(SECOND, table(), whole, cluster)
    with monkeypatch.context() as patch:
        stop_at(example, patch, place, after=after)
        with pytest.raises(Stopped):
            example.night(SECOND, table(), cut, cluster)
    if not (place == 3 and after):
        assert seen(cut)["published"] == before["published"]
    example.night(SECOND, table(), cut, cluster)
    assert seen(cut) == seen(whole)
    assert Catalog.open("stores", cut).version == Catalog.open("stores", whole).version
    assert Run.open(f"infer-{SECOND}", cut).status.value == "SUCCESS"
