"""What the reference runs were made with; the functions are imported by name, as a user's are."""

from typing import Any

import numpy as np
import pyarrow as pa

from partwise.connector.context import PartitionContext
from partwise.connector.data_connector import DataConnector
from partwise.outcomes import Result, Skip

KEYS = ("north", "south", "Zürich 1", "tiny")
ROWS = 40
SEED = 7
VERSION = "reference-1"
"""Stands for the code, so that another Python or another release of ours finds it unchanged."""


def sales() -> pa.Table:
    """Make the rows; arithmetic only, as the numbers of a random generator may change."""
    keys = [key for key in KEYS for _ in range(2 if key == "tiny" else ROWS)]
    numbers = np.arange(len(keys), dtype=np.float64)
    price = numbers * 7 % 13
    return pa.table(
        {
            "store": keys,
            "day": numbers.astype(np.int64),
            "price": pa.array([None if i % 17 == 3 else p for i, p in enumerate(price)]),
            "sales": 3 * price + (numbers % 5),
        }
    )


def fit(data: DataConnector, context: PartitionContext) -> Any:
    """Train a few trees, print a line, and keep a note of the partition."""
    import lightgbm

    if len(data) < 5:
        return Skip("too few rows")
    print(f"{context.key}: {len(data)} rows, seed {context.seed}")
    context.upload({"key": context.key, "rows": len(data)}, "note.json")
    features = ["day", "price"]
    rows = lightgbm.Dataset(data.to_numpy(features), data.to_numpy("sales"), feature_name=features)
    settings = {"num_threads": 1, "verbosity": -1, "num_leaves": 4, "min_data_in_leaf": 3}
    return Result(lightgbm.train(settings, rows, 3), {"mean": float(data.to_numpy("sales").mean())})
