"""Functions that train and predict: a module of its own, which workers import at no cost."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from partwise.connector.context import PartitionContext
from partwise.connector.data_connector import DataConnector
from partwise.outcomes import Result, Skip


def fit_mean(data: DataConnector, context: PartitionContext) -> Any:
    if data.num_rows < 3:
        return Skip("too few rows")
    values = data.to_numpy("value")
    if np.isnan(values).all():
        raise ValueError("no value")
    return {"mean": float(np.nanmean(values)), "seed": context.seed, "rows": data.num_rows}


def predict_mean(data: DataConnector, model: Any, context: PartitionContext) -> Any:
    return np.full(data.num_rows, model["mean"])


def predict_bounds(data: DataConnector, model: Any, context: PartitionContext) -> Result:
    """Predict two columns, and say what the context knows."""
    prediction = model.predict(data.to_pandas()[["x", "z"]])
    text = context.download("model.txt", run_id="trained", read=lambda path: Path(path).read_text())
    return Result(
        {
            "low": prediction - 1,
            "high": prediction + 1,
            "seen": [f"{context.key} {context.run_id}"] * data.num_rows,
        },
        metrics={"trees": text.count("Tree=")},
    )


def predict_oddly(data: DataConnector, model: Any, context: PartitionContext) -> Any:
    """Return another form of rows for each key."""
    import polars as pl

    match context.key:
        case 0:
            return np.ones((data.num_rows, 2))
        case 1:
            return []
        case 2:
            return data.to_polars().drop("x").with_columns(text=pl.lit("z"))
        case 3:
            return Skip("nothing to say")
        case 4:
            return np.ones((1, 1, 1))


@dataclass(frozen=True)
class LineSerde:
    """A serde of one's own."""

    filename: str = "line.txt"

    def write(self, model: Any, path: str) -> None:
        Path(path).write_text(str(model["mean"]))

    def read(self, path: str) -> Any:
        return {"mean": float(Path(path).read_text())}
