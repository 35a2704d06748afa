"""Rows of nights of a catalog, and what others see of a night when it is done."""

from datetime import date, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from partwise.catalogs.catalog import Catalog
from partwise.datasets.dataset import Dataset
from partwise.store.store import Store
from partwise.trainers import LightGBMTrainer

START = date(2026, 1, 1)
NIGHTS = [START + timedelta(days) for days in (60, 90, 120)]
TRAINER = LightGBMTrainer(label="y", features=["x"], params={"min_data_in_leaf": 5}, rounds=30)
OPTIONS: dict[str, Any] = {
    "compare_days": 21,
    "labels_after_days": 30,
    "output": "dataset://forecasts",
    "max_worse_fraction": 1,
}


def rows_until(day: date) -> pa.Table:
    """The rows of 30 days more than there are labels for, as they are in a night.

    b drifts on day 61, c as well, and is pinned; of d the labels are late by two weeks; e has NaN
    in place of them; f appears on day 65.
    """
    found: dict[str, list[Any]] = {name: [] for name in ("key", "day", "x", "y")}
    for place, key in enumerate("abcdef"):
        chance = np.random.default_rng(place)
        for number in range(160):
            at, x = START + timedelta(number), chance.normal()
            drifts = key in "bc" and number >= 61
            y = 2 * x + chance.normal(0, 0.3) + 8 * drifts
            late = timedelta(14 if key == "d" else 0)
            if at >= day + timedelta(30) or (key == "f" and number < 65):
                continue
            is_there = at + late < day
            found["key"].append(key)
            found["day"].append(at)
            found["x"].append(x)
            if key == "e" and number >= 61:
                y = float("nan")
            found["y"].append(y if is_there else None)
    return pa.table(found)


def seen(store: Store | Path) -> dict[str, Any]:
    """What others see: champions, since when, and what was published last."""
    rows = Catalog.open("sales", store).table.to_pylist()
    published = pa.Table.from_batches(Dataset.open("forecasts", store=store).source().batches())
    return {
        "champions": {row["key.key"]: (row["run_id"], row["since_version"]) for row in rows},
        "published": sorted(published.select(["key", "day", "prediction"]).to_pylist(), key=str),
    }
