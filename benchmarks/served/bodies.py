"""The same rows as each server wants them."""

import json
from collections.abc import Callable, Sequence

import numpy as np

from benchmarks.served.catalog import COLUMNS

Body = Callable[[int, np.ndarray], str]
"""Returns the body that asks for a row, shape (8,), by the model of a key."""


def open_inference(key: int, row: np.ndarray) -> str:
    """Return a body of the Open Inference Protocol: an input for each column."""
    inputs = [
        {"name": name, "shape": [1, 1], "datatype": "FP64", "data": [value]}
        for name, value in zip(COLUMNS, row.tolist(), strict=True)
    ]
    return json.dumps({"inputs": inputs, "parameters": {"key": key}})


def plain(key: int, row: np.ndarray) -> str:
    """Return a body of plain JSON: an object for each row."""
    return json.dumps({"rows": [dict(zip(COLUMNS, row.tolist(), strict=True))], "key": key})


def of_mlflow(key: int, row: np.ndarray) -> str:  # noqa: ARG001 (it has one model)
    """Return a body for MLflow's scoring server."""
    return json.dumps({"dataframe_split": {"columns": COLUMNS, "data": [row.tolist()]}})


def of_mlserver(key: int, row: np.ndarray) -> str:  # noqa: ARG001
    """Return a body for MLServer, which takes a matrix of one row."""
    matrix = {"name": "rows", "shape": [1, len(COLUMNS)], "datatype": "FP64", "data": row.tolist()}
    return json.dumps({"inputs": [matrix]})


def bodies(of: Body, keys: Sequence[int], rows: np.ndarray) -> list[str]:
    """Return a body for each key and row."""
    return [of(int(key), row) for key, row in zip(keys, rows, strict=True)]
