"""Functions for the table of bike trips: a module of its own, which workers import at no cost."""

from typing import Any

import numpy as np
import pandas as pd

from partwise.connector.context import PartitionContext
from partwise.outcomes import Skip


def features(frame: pd.DataFrame) -> pd.DataFrame:
    start = frame["start_date"].dt
    return pd.DataFrame(
        {
            "hour": start.hour,
            "weekday": start.day_of_week,
            "month": start.month,
            "bike": frame.bike_id,
        }
    )


def fit_booster(frame: pd.DataFrame, context: PartitionContext) -> Any:
    import lightgbm

    settings = {
        "num_threads": 1,
        "seed": context.seed,
        "deterministic": True,
        "force_row_wise": True,
        "bagging_fraction": 0.7,
        "bagging_freq": 1,
        "num_leaves": 7,
        "verbosity": -1,
    }
    return lightgbm.train(settings, lightgbm.Dataset(features(frame), frame["duration"]), 5)


def predict_booster(frame: pd.DataFrame, model: Any, context: PartitionContext) -> np.ndarray:
    return model.predict(features(frame), num_threads=1)


def fit_bootstrap(frame: pd.DataFrame, context: PartitionContext) -> Any:
    """Return a cheap model that depends on its rows, their order and its seed."""
    if len(frame) < 3:
        return Skip("too few rows")
    chance = np.random.default_rng(context.seed)
    chosen = frame["duration"].to_numpy(float)[chance.integers(0, len(frame), len(frame))]
    hours = frame["start_date"].dt.hour.to_numpy(float)
    return {
        "mean": float(chosen.mean()),
        "slope": float(np.average(chosen, weights=1 + hours) / (1 + hours.std())),
        "zips": sorted(frame["zip_code"].fillna("none").unique()),
        "global": float(np.random.random()),
    }


def predict_bootstrap(frame: pd.DataFrame, model: Any, context: PartitionContext) -> np.ndarray:
    return model["mean"] + model["slope"] * np.sqrt(frame["bike_id"].to_numpy(float))
