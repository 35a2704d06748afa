"""Thousands of series by time: AutoETS, and a booster of each on columns of lags.

mlforecast trains one model for all series where nothing else is asked for. So it stands here
three times: as it is, with its lags made first and a booster of each series in a loop, as we do,
and trained and asked for forecasts for each series by itself, which are then equal to ours.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.frame.contest import take_part
from benchmarks.frame.row import OUT, Contestant, Goal, Place, Row, ratio

DAYS, SEASON, HORIZON, WORKERS, ROUNDS = 400, 7, 28, 2, 50
LAGS = (28, 35, 42)
NEAR_LAGS, MEAN = (1, 7, 14), 7
SETTINGS = {"num_threads": 1, "verbose": -1, "seed": 1}
ETS, BOOSTER = "partwise, AutoETS", "partwise, a booster each on lags"
LAGGED = "partwise, Lagged: a booster each, and its forecasts"
THEIR_LAGGED = "mlforecast in a loop: a booster each, and its forecasts (peers' environment)"
THEIR_ETS = "statsforecast, AutoETS (peers' environment)"
ONE = "mlforecast, one model for all (peers' environment)"
EACH = "mlforecast's lags, a booster each in a loop (peers' environment)"


def row(place: Place) -> Row:
    """Forecast all series by each."""
    series, of_ets = place.size(10_000, 50), place.size(1_000, 20)

    def ours(name: str, part: str) -> Contestant:
        return Contestant(name, place.ours(__name__, part, place.folder, OUT), "a run")

    def theirs(name: str, part: str, keeps: str) -> Contestant:
        return Contestant(name, place.theirs(__name__, part, place.folder, OUT), keeps)

    def prepare() -> None:
        _write(place.folder / "rows.parquet", series)
        _write(place.folder / "ets.parquet", of_ets)

    return Row(
        title="Forecasting",
        work=f"{DAYS} days each of {of_ets:,} series by AutoETS with season {SEASON}, {HORIZON} "
        f"days ahead, and of {series:,} series by LightGBM, {ROUNDS} rounds, on lags of "
        f"{', '.join(map(str, LAGS))} days; and of {of_ets:,} series on lags of "
        f"{', '.join(map(str, NEAR_LAGS))} days and a mean of {MEAN}, with forecasts of {HORIZON} "
        f"days that go on from themselves; {WORKERS} processes of one thread.",
        contestants=[
            ours(ETS, "ets"),
            theirs(THEIR_ETS, "statsforecast", "Parquet"),
            ours(BOOSTER, "booster"),
            theirs(EACH, "each", "text files"),
            ours(LAGGED, "lagged"),
            *([] if place.quick else [theirs(THEIR_LAGGED, "lagged_each", "Parquet")]),
            *([] if place.quick else [theirs(ONE, "mlforecast", "nothing")]),
        ],
        goals=[
            Goal(f"{ETS} / {THEIR_ETS}", 1.2, ratio(ETS, THEIR_ETS)),
            Goal(f"{BOOSTER} / {EACH}", 1.2, ratio(BOOSTER, EACH)),
            *(
                []
                if place.quick
                else [Goal(f"{LAGGED} / {THEIR_LAGGED}", 1.2, ratio(LAGGED, THEIR_LAGGED))]
            ),
        ],
        turns=1,
        limit_s=place.size(3600, 90),
        prepare=prepare,
    )


def _write(path: Path, series: int) -> None:
    import numpy as np
    import pandas as pd

    random = np.random.default_rng(0)
    day = np.arange(DAYS)
    level = random.uniform(50, 150, (series, 1)) + 0.02 * day
    y = level + 10 * np.sin(2 * np.pi * day / SEASON) + random.normal(scale=5, size=(series, DAYS))
    table = {
        "unique_id": np.arange(series).repeat(DAYS),
        "ds": np.tile(pd.date_range("2025-01-01", periods=DAYS), series),
        "y": y.ravel(),
    }
    pd.DataFrame(table).to_parquet(path, index=False)


def by_ets(folder: Path, out: Path) -> Mapping[str, float]:
    """Train AutoETS by partwise; each model is the forecast."""
    from partwise import StatsForecast

    # Without a holdout, for which each would be fitted twice.
    trainer = StatsForecast(
        "AutoETS", label="y", time="ds", season=SEASON, horizon=HORIZON, holdout=None
    )
    return _train(str(folder / "ets.parquet"), trainer, out)


def by_booster(folder: Path, out: Path) -> Mapping[str, float]:
    """Make lag columns, and train a booster of each series by partwise."""
    import pandas as pd
    import pyarrow as pa

    from partwise import LightGBMTrainer

    rows = pd.read_parquet(folder / "rows.parquet")
    of_series = rows.groupby("unique_id")["y"]
    names = [f"lag{lag}" for lag in LAGS]
    rows = rows.assign(**{f"lag{lag}": of_series.shift(lag) for lag in LAGS}).dropna()
    trainer = LightGBMTrainer(label="y", features=tuple(names), rounds=ROUNDS, params={"seed": 1})
    return _train(pa.Table.from_pandas(rows, preserve_index=False), trainer, out)


def _train(rows: Any, trainer: Any, out: Path) -> Mapping[str, float]:
    from partwise import LocalCluster, train_models

    cluster = LocalCluster(workers=WORKERS)
    run = train_models(rows, "unique_id", trainer, store=str(out), cluster=cluster)
    return {"series": run.counts["DONE"]}


def by_lagged(folder: Path, out: Path) -> Mapping[str, float]:
    """Train a booster of each series on its lags by partwise, and forecast."""
    import pandas as pd

    from partwise import Lagged, LightGBMTrainer, LocalCluster, run_inference, train_models

    rows = pd.read_parquet(folder / "ets.parquet")
    booster = LightGBMTrainer(label="y", rounds=ROUNDS, params={"seed": 1})
    lags = {"lags": NEAR_LAGS, "means": (MEAN,), "horizon": HORIZON}
    trainer = Lagged(booster, **lags, time="ds", holdout=None)
    days = pd.date_range(rows["ds"].max(), periods=HORIZON + 1)[1:]
    future = rows[["unique_id"]].drop_duplicates().merge(pd.DataFrame({"ds": days}), how="cross")
    place = {"store": str(out), "cluster": LocalCluster(workers=WORKERS)}
    train_models(rows, "unique_id", trainer, **place, run_id="lagged")
    used = run_inference(future, "unique_id", "lagged", **place, run_id="forecasts")
    return {"series": used.counts["DONE"], "forecasts": used.predictions().num_rows}


def by_lagged_each(folder: Path, out: Path) -> Mapping[str, float]:
    """Train a booster of each series by itself by mlforecast, in two processes, and forecast."""
    import joblib
    import pandas as pd

    groups = pd.read_parquet(folder / "ets.parquet").groupby("unique_id")
    found = pd.concat(
        joblib.Parallel(n_jobs=WORKERS)(joblib.delayed(_forecast)(part) for _, part in groups)
    )
    found.to_parquet(out / "forecasts.parquet")
    return {"series": found["unique_id"].nunique(), "forecasts": len(found)}


def _forecast(part: Any) -> Any:
    import lightgbm
    from mlforecast import MLForecast
    from mlforecast.lag_transforms import RollingMean

    model = lightgbm.LGBMRegressor(n_estimators=ROUNDS, **SETTINGS)
    means = {min(NEAR_LAGS): [RollingMean(MEAN)]}
    lags = MLForecast([model], freq="D", lags=list(NEAR_LAGS), lag_transforms=means)
    return lags.fit(part, static_features=[]).predict(HORIZON)


def by_statsforecast(folder: Path, out: Path) -> Mapping[str, float]:
    """Forecast by AutoETS of statsforecast in two processes."""
    import pandas as pd
    from statsforecast import StatsForecast
    from statsforecast.models import AutoETS

    rows = pd.read_parquet(folder / "ets.parquet")
    models = StatsForecast([AutoETS(season_length=SEASON)], freq="D", n_jobs=WORKERS)
    found = models.forecast(df=rows, h=HORIZON)
    found.to_parquet(out / "forecasts.parquet")
    return {"series": found["unique_id"].nunique()}


def _mlforecast(model: Any) -> Any:
    from mlforecast import MLForecast

    return MLForecast([model], freq="D", lags=list(LAGS), num_threads=WORKERS)


def by_mlforecast(folder: Path, _: Path) -> Mapping[str, float]:
    """Train one booster of all series by mlforecast, and forecast."""
    import lightgbm
    import pandas as pd

    settings = SETTINGS | {"num_threads": WORKERS}
    models = _mlforecast(lightgbm.LGBMRegressor(n_estimators=ROUNDS, **settings))
    rows = pd.read_parquet(folder / "rows.parquet")
    found = models.fit(rows, static_features=[]).predict(HORIZON)
    return {"series": found["unique_id"].nunique()}


def by_each(folder: Path, out: Path) -> Mapping[str, float]:
    """Let mlforecast make the lags, and train a booster of each series by joblib."""
    import joblib
    import lightgbm
    import pandas as pd

    lags = _mlforecast(lightgbm.LGBMRegressor())
    rows = lags.preprocess(pd.read_parquet(folder / "rows.parquet"), static_features=[])
    groups = rows.groupby("unique_id")
    joblib.Parallel(n_jobs=WORKERS)(
        joblib.delayed(_fit)(part, out / f"{name}.txt") for name, part in groups
    )
    return {"series": len(list(out.iterdir()))}


def _fit(part: Any, path: Path) -> None:
    import lightgbm

    x = part[[f"lag{lag}" for lag in LAGS]].to_numpy()
    data = lightgbm.Dataset(x, part["y"].to_numpy(), params=SETTINGS)
    path.write_text(lightgbm.train(SETTINGS, data, ROUNDS).model_to_string())


if __name__ == "__main__":
    take_part(
        {
            "ets": by_ets,
            "booster": by_booster,
            "statsforecast": by_statsforecast,
            "mlforecast": by_mlforecast,
            "each": by_each,
            "lagged": by_lagged,
            "lagged_each": by_lagged_each,
        }
    )
