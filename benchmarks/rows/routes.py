"""Real partitions, most of them small: a model for each route or station of a bike share."""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.frame.contest import take_part
from benchmarks.frame.row import OUT, Contestant, Goal, NotThereError, Place, Row, ratio
from tests.programs import NEEDED

WORKERS = 2
ROUTES, STATIONS = ("start_station", "end_station"), ("start_station",)


def row(place: Place) -> Row:
    """Train on the trips by both keys."""
    kinds = ("stations",) if place.quick else ("stations", "routes")
    return Row(
        title="Bike routes",
        work="LightGBM models of 326,339 trips by 74 stations and 1,863 routes. The work is from "
        "the file to the last model, past imports and the start of a cluster.",
        contestants=[
            Contestant(
                f"{name}, {kind}", place.ours(__name__, f"{part}-{kind}", place.folder, OUT), keeps
            )
            for kind in kinds
            for name, part, keeps in (
                ("partwise", "partwise", "a run"),
                ("two bare processes", "bare", "nothing"),
            )
        ],
        goals=[
            Goal(
                f"partwise / two bare processes, {kind}",
                1.05,
                ratio(f"partwise, {kind}", f"two bare processes, {kind}", "work s"),
            )
            for kind in kinds
        ],
        shown="work s",
        turns=place.size(3, 1),
        limit_s=place.size(900, 60),
        prepare=lambda: link_trips(place.folder),
    )


def link_trips(folder: Path) -> None:
    """Have the trips among the files of a row; `NotThereError` where this machine has none."""
    trips = NEEDED["bike_trips"].find()
    if trips is None:
        raise NotThereError(NEEDED["bike_trips"].how)
    (folder / "trips.parquet").symlink_to(trips)


def by_partwise(folder: Path, out: Path, keys: tuple[str, ...]) -> Mapping[str, float]:
    """Train by the ready trainer."""
    from partwise import LocalCluster, train_models
    from tests.flows.test_bike_exports import TRAINERS

    run = train_models(
        str(folder / "trips.parquet"),
        list(keys),
        TRAINERS["lightgbm"].model_copy(update={"min_rows": 1}),
        store=str(out),
        cluster=LocalCluster(workers=WORKERS),
    )
    assert run.summary is not None
    stages = run.summary.stages
    return {"work s": stages["load"] + stages["train"], "models": run.counts["DONE"]}


def by_bare_processes(folder: Path, _: Path, keys: tuple[str, ...]) -> Mapping[str, float]:
    """Train in a loop on columns of numbers, texts being categories."""
    import lightgbm
    import numpy as np
    import pandas as pd

    from benchmarks.frame.bare import in_forks, spans_of
    from tests.flows.test_bike_exports import FEATURES, TEXT, TRAINERS

    began = time.perf_counter()
    trips = pd.read_parquet(folder / "trips.parquet")
    order, spans = spans_of(trips.groupby(list(keys), sort=True).ngroup().to_numpy())
    codes = {name: trips[name].astype("category").cat.codes for name in TEXT}
    x = trips.assign(**codes)[list(FEATURES)].to_numpy(np.float64)[order]
    y = trips["duration"].to_numpy(np.float64)[order]
    trainer = TRAINERS["lightgbm"]
    settings = {"num_threads": 1, "verbose": -1, "deterministic": True, **trainer.params}
    texts = [FEATURES.index(name) for name in TEXT]

    def train(first: int, end: int) -> float:
        data = lightgbm.Dataset(
            x[first:end], y[first:end], params=settings, categorical_feature=texts
        )
        return float(lightgbm.train(settings, data, trainer.rounds).num_trees())

    found = in_forks(WORKERS, lambda place: [train(*span) for span in spans[place::WORKERS]])
    return {"work s": time.perf_counter() - began, "models": len(found)}


def _of(part: Any, keys: tuple[str, ...]) -> Any:
    return lambda folder, out: part(folder, out, keys)


if __name__ == "__main__":
    take_part(
        {
            f"{name}-{kind}": _of(part, keys)
            for name, part in (("partwise", by_partwise), ("bare", by_bare_processes))
            for kind, keys in (("stations", STATIONS), ("routes", ROUTES))
        }
    )
