"""From the shell's prompt to thousands of models: us, a bare loop, and every engine beside us.

All train the same booster on the same rows of one Parquet file, in two processes of one thread. The
figure `ms a model` is what training took within them, in the median.
"""

import os
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from benchmarks.frame.contest import take_part
from benchmarks.frame.row import OUT, Contestant, Goal, Place, Row, ratio

FEATURES = [f"x{number}" for number in range(6)]
WORKERS, ROUNDS, ROWS = 2, 50, 300
SETTINGS = {"num_threads": 1, "verbose": -1, "seed": 1, "deterministic": True}
BARE, JOBLIB, DASK = "two bare processes", "joblib over pandas groups", "Dask, groupby.apply"
FUNCTION, TRAINER = "partwise, a function", "partwise, a trainer"
SPARK, RAY = "Spark, applyInPandas", "Ray Data, map_groups"
CORE, PANDAS = "Ray Core, a task for each group", "a pandas loop (one process)"
POLARS = "polars, map_groups (one process)"
THEIRS = " (peers' environment)"


def row(place: Place) -> Row:
    """Let all of them train."""
    keys = place.size(2_000, 100)

    def ours(name: str, part: str, keeps: str) -> Contestant:
        return Contestant(name, place.ours(__name__, part, place.folder, OUT), keeps)

    def theirs(name: str, part: str, keeps: str) -> Contestant:
        return Contestant(name, place.theirs(__name__, part, place.folder, OUT), keeps)

    contestants = [
        ours(BARE, "bare", "nothing"),
        ours(PANDAS, "pandas", "nothing"),
        ours(JOBLIB, "joblib", "text files"),
        ours(FUNCTION, "function", "a run"),
        ours(TRAINER, "trainer", "a run"),
        ours(DASK, "dask", "Parquet"),
        theirs(BARE + THEIRS, "bare", "nothing"),
        theirs(POLARS + THEIRS, "polars", "Parquet"),
    ]
    if not place.quick:  # they take longer to start than the others take for all
        contestants += [
            theirs(JOBLIB + THEIRS, "joblib", "text files"),
            theirs(DASK + THEIRS, "dask", "Parquet"),
            theirs(SPARK + THEIRS, "spark", "Parquet"),
            theirs(RAY + THEIRS, "ray", "Parquet"),
            theirs(CORE + THEIRS, "ray-core", "Parquet"),
        ]
    child, loop = f"{FUNCTION}: ms a model in a child / {BARE}", "ms a model"
    return Row(
        title="From prompt to models",
        work=f"{keys:,} keys x {ROWS} rows x {len(FEATURES)} features from one Parquet file, "
        f"LightGBM, {ROUNDS} rounds, {WORKERS} processes of one thread.",
        contestants=contestants,
        goals=[
            *(
                Goal(f"{us} / {other}", most, ratio(us, other))
                for us in (FUNCTION, TRAINER)
                for other, most in (
                    (BARE, 1.15),
                    (JOBLIB, 1.1),
                    (DASK, 1 / 1.5),
                    (SPARK + THEIRS, 1 / 2),
                    (RAY + THEIRS, 1 / 2),
                    (CORE + THEIRS, 1 / 2),
                    (POLARS + THEIRS, 1 / 2),
                )
            ),
            Goal(child, 1.05, ratio(FUNCTION, BARE, loop)),
        ],
        turns=place.size(3, 1),
        limit_s=place.size(1500, 90),
        prepare=lambda: _write(place.folder / "rows.parquet", keys),
    )


def _write(path: Path, keys: int) -> None:
    import numpy as np
    import pyarrow.parquet as pq

    key = np.random.default_rng(0).permutation(np.repeat(np.arange(keys), ROWS))
    pq.write_table(make_rows(key), path)


def make_rows(key: Any) -> Any:
    """Return a table of features, and of a label that follows from some of them."""
    import numpy as np
    import pyarrow as pa

    random = np.random.default_rng(1)
    x = random.normal(size=(len(key), len(FEATURES)))
    y = x[:, 0] + x[:, 1] * x[:, 2] + random.normal(scale=0.1, size=len(x))
    return pa.table({"key": key, **dict(zip(FEATURES, x.T, strict=True)), "y": y})


def train(x: Any, y: Any) -> Any:
    """Return a booster."""
    import lightgbm

    return lightgbm.train(SETTINGS, lightgbm.Dataset(x, y, params=SETTINGS), ROUNDS)


def text_of(part: Any) -> str:
    """Return the model of the pandas rows of a key."""
    return str(train(part[FEATURES].to_numpy(), part["y"].to_numpy()).model_to_string())


def row_of(part: Any) -> Any:
    """Return the same as a frame, as Spark and Ray want it."""
    import pandas as pd

    return pd.DataFrame({"key": [int(part["key"].iloc[0])], "model": [text_of(part)]})


def by_bare_processes(folder: Path, _: Path) -> Mapping[str, float]:
    """Sort the rows once, and train half of the keys in each of two forks."""
    import lightgbm  # noqa: F401 (once, before the forks)
    import numpy as np
    import pyarrow.parquet as pq

    from benchmarks.frame.bare import in_forks, spans_of

    rows = pq.read_table(folder / "rows.parquet")
    order, spans = spans_of(rows["key"].to_numpy())
    x = np.column_stack([rows[name].to_numpy() for name in FEATURES])[order]
    y = rows["y"].to_numpy()[order]

    def seconds(first: int, end: int) -> float:
        began = time.perf_counter()
        train(x[first:end], y[first:end])
        return time.perf_counter() - began

    found = in_forks(WORKERS, lambda place: [seconds(*span) for span in spans[place::WORKERS]])
    return {"ms a model": float(np.median(found)) * 1e3, "models": len(found)}


def by_pandas(folder: Path, _: Path) -> Mapping[str, float]:
    """Train one after the other."""
    import pandas as pd

    groups = pd.read_parquet(folder / "rows.parquet").groupby("key")
    return {"models": len([text_of(part) for _, part in groups])}


def by_joblib(folder: Path, out: Path) -> Mapping[str, float]:
    """Train on the groups of a frame, and write a file for each."""
    import joblib
    import pandas as pd

    groups = pd.read_parquet(folder / "rows.parquet").groupby("key")
    joblib.Parallel(n_jobs=WORKERS)(
        joblib.delayed(_write_text)(part, out / f"{key}.txt") for key, part in groups
    )
    return {"models": len(list(out.iterdir()))}


def _write_text(part: Any, path: Path) -> None:
    path.write_text(text_of(part))


def by_function(folder: Path, out: Path) -> Mapping[str, float]:
    """Train by a function of partwise."""
    return _by_partwise(folder, out, _function)


def _function(data: Any, context: Any) -> Any:  # noqa: ARG001 (what every function takes)
    return train(data.to_numpy(FEATURES), data.to_numpy("y"))


def by_trainer(folder: Path, out: Path) -> Mapping[str, float]:
    """Train by a ready trainer of partwise."""
    from partwise import LightGBMTrainer

    params = {name: value for name, value in SETTINGS.items() if name != "num_threads"}
    trainer = LightGBMTrainer(label="y", features=FEATURES, rounds=ROUNDS, threads=1, params=params)
    return _by_partwise(folder, out, trainer)


def _by_partwise(folder: Path, out: Path, trainer: Any) -> Mapping[str, float]:
    import numpy as np

    from partwise import LocalCluster, train_models

    run = train_models(
        str(folder / "rows.parquet"),
        "key",
        trainer,
        store=str(out / "store"),
        cluster=LocalCluster(workers=WORKERS),
    )
    # The median, as in the loop: the first partition of a child waits for its imports.
    seconds = float(np.median(run.partitions["seconds"].to_numpy()))
    return {"ms a model": seconds * 1e3, "models": run.counts["DONE"]}


def by_dask(folder: Path, out: Path) -> Mapping[str, float]:
    """Train by groupby.apply of Dask on two workers."""
    import dask.dataframe as dd
    import pandas as pd
    from distributed import Client, LocalCluster

    meta = pd.Series(dtype="str", name="model", index=pd.Index([], "int64", name="key"))
    with (
        LocalCluster(n_workers=WORKERS, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster),
    ):
        rows = dd.read_parquet(folder / "rows.parquet", split_row_groups=True)
        models = rows.groupby("key")[[*FEATURES, "y"]].apply(text_of, meta=meta)
        models.to_frame().to_parquet(out / "models")
    return {"models": _stored(out / "models")}


def by_polars(folder: Path, out: Path) -> Mapping[str, float]:
    """Train by map_groups of polars, which calls one function after the other."""
    import polars as pl

    def of_group(part: pl.DataFrame) -> pl.DataFrame:
        x, y = part.select(FEATURES).to_numpy(), part["y"].to_numpy()
        model = train(x, y).model_to_string()
        return pl.DataFrame({"key": [part["key"][0]], "model": [model]})

    (out / "models").mkdir()
    rows = pl.read_parquet(folder / "rows.parquet")
    rows.group_by("key").map_groups(of_group).write_parquet(out / "models" / "all.parquet")
    return {"models": _stored(out / "models")}


def by_spark(folder: Path, out: Path) -> Mapping[str, float]:
    """Train by applyInPandas of Spark with two cores."""
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    with _quiet_spark(SparkSession.builder.master(f"local[{WORKERS}]"), out) as spark:
        rows = spark.read.parquet(str(folder / "rows.parquet"))
        models = rows.groupBy("key").applyInPandas(row_of, "key long, model string")
        models.write.parquet(str(out / "models"))
    return {"models": _stored(out / "models")}


def _quiet_spark(builder: Any, out: Path) -> Any:
    settings = {
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": str(4 * WORKERS),
        # Else it takes one process for rows as few as these.
        "spark.sql.adaptive.coalescePartitions.enabled": "false",
        "spark.local.dir": str(out / "scratch"),
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
    }
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def by_ray(folder: Path, out: Path) -> Mapping[str, float]:
    """Train by map_groups of Ray Data with two CPUs."""
    import ray

    ray.init(num_cpus=WORKERS, include_dashboard=False, log_to_driver=False)
    rows = ray.data.read_parquet(str(folder / "rows.parquet"))
    models = rows.groupby("key").map_groups(row_of, batch_format="pandas")
    models.write_parquet(str(out / "models"))
    ray.shutdown()
    return {"models": _stored(out / "models")}


def by_ray_core(folder: Path, out: Path) -> Mapping[str, float]:
    """Train each group of a frame as a task of Ray."""
    import pandas as pd
    import ray

    ray.init(num_cpus=WORKERS, include_dashboard=False, log_to_driver=False)
    fit = ray.remote(num_cpus=1)(row_of)
    groups = pd.read_parquet(folder / "rows.parquet").groupby("key")
    models = pd.concat(ray.get([fit.remote(part) for _, part in groups]))
    ray.shutdown()
    (out / "models").mkdir()
    models.to_parquet(out / "models" / "all.parquet")
    return {"models": _stored(out / "models")}


def _stored(folder: Path) -> int:
    import pyarrow.parquet as pq

    return sum(pq.read_metadata(path).num_rows for path in _files(folder))


def _files(folder: Path) -> Iterator[Path]:
    return folder.rglob("*.parquet")


if __name__ == "__main__":
    take_part(
        {
            "bare": by_bare_processes,
            "pandas": by_pandas,
            "joblib": by_joblib,
            "function": by_function,
            "trainer": by_trainer,
            "dask": by_dask,
            "polars": by_polars,
            "spark": by_spark,
            "ray": by_ray,
            "ray-core": by_ray_core,
        }
    )
