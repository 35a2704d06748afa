"""Forecasts by mlforecast, as `mlforecast_values.json` has them.

Run by the Python of `make .venv-peers/stamp`, which has mlforecast and not partwise; prints JSON.
The rows and the settings are those of test_lagged.py too.
"""

import json
import sys
from typing import Any

import numpy as np

LENGTH, HORIZON = 90, 12
BOOSTER = {"num_leaves": 6, "min_data_in_leaf": 5, "learning_rate": 0.2, "verbosity": -1}
ROUNDS = 15
CASES: dict[str, dict[str, Any]] = {
    "recursive": {"lags": [1, 2, 7]},
    "means": {"lags": [3, 1, 14], "means": [5, 14]},
    "later lags": {"lags": [5, 7], "means": [7]},
    "covariates": {"lags": [1, 7], "means": [7], "covariates": True},
    "direct": {"lags": [1, 7], "means": [3], "strategy": "direct"},
    "direct, covariates": {"lags": [2, 7], "strategy": "direct", "covariates": True},
}


def columns(series: int) -> dict[str, Any]:
    """Return the rows of a series and those to come, in which y is to be forecast."""
    random = np.random.default_rng(series)
    day = np.arange(LENGTH + HORIZON)
    price = random.choice([1.0, 1.5, 2.0], len(day))
    promotion = (random.random(len(day)) < 0.2).astype(float)
    y = 20 + 5 * np.sin(2 * np.pi * day / 7) - 4 * price + 6 * promotion
    y = y + 0.05 * day + random.normal(size=len(day))
    ds = np.datetime64("2026-01-05") + day
    return {"ds": ds, "price": price, "promotion": promotion, "y": y}


def forecasts(series: int, case: dict[str, Any]) -> list[float]:
    """Return what mlforecast says of the days to come."""
    import lightgbm
    import pandas as pd
    from mlforecast import MLForecast
    from mlforecast.lag_transforms import RollingMean

    rows = pd.DataFrame(columns(series)).assign(unique_id="s")
    rows["ds"] = rows["ds"].astype("datetime64[ns]")
    names = ["price", "promotion"] if case.get("covariates") else []
    model = lightgbm.LGBMRegressor(n_estimators=ROUNDS, **BOOSTER)
    means = [RollingMean(window) for window in case.get("means", ())]
    found = MLForecast(
        [model],
        freq="D",
        lags=case["lags"],
        lag_transforms={min(case["lags"]): means} if means else None,
    )
    direct = {"max_horizon": HORIZON} if case.get("strategy") == "direct" else {}
    found.fit(rows[["unique_id", "ds", "y", *names]][:LENGTH], static_features=[], **direct)
    future = rows[["unique_id", "ds", *names]][LENGTH:] if names else None
    return found.predict(HORIZON, X_df=future)["LGBMRegressor"].tolist()


if __name__ == "__main__":
    found = {name: [forecasts(series, case) for series in (0, 1)] for name, case in CASES.items()}
    json.dump(found, sys.stdout)
