"""A catalog of many small models with proved exports, twice over, made once and kept."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

COLUMNS = tuple(f"x{i}" for i in range(8))
ROWS, ROUNDS = 100, 30
"""Of a model."""
NIGHTS = ("first", "second")
"""Runs of training. The models of all keys differ between them."""
CATALOG = "sales"


@dataclass(frozen=True)
class Made:
    """Where the catalog is, and what is asked of it."""

    folder: Path
    keys: int

    @property
    def store(self) -> Path:
        """The store that has it."""
        return self.folder / "store"

    @property
    def rows(self) -> Path:
        """The Parquet file of the rows that models were trained on; key 0 comes first."""
        return self.folder / "rows.parquet"

    def questions(self) -> tuple[np.ndarray, np.ndarray]:
        """Return keys in an order drawn once, shape (keys,), and a row for each, (keys, 8)."""
        chance = np.random.default_rng(1)
        return chance.permutation(self.keys), chance.normal(size=(self.keys, len(COLUMNS)))


def make_catalog(folder: Path, keys: int) -> Made:
    """Train, export and promote what is not there yet; ten thousand keys take some minutes."""
    from partwise import (
        Everything,
        LightGBMTrainer,
        LocalCluster,
        export_models,
        promote_models,
        train_models,
    )

    folder = folder / f"keys-{keys}"
    made, done = Made(folder, keys), folder / "made.json"
    if done.exists():
        return made
    folder.mkdir(parents=True, exist_ok=True)
    given: dict[str, Any] = {
        "store": str(made.store),
        "cluster": LocalCluster(),
        "on_existing_artifacts": "resume",
    }
    for seed, night in enumerate(NIGHTS):
        rows = made.rows if seed == 0 else folder / f"{night}.parquet"
        pq.write_table(_table(keys, seed), rows)
        trainer = LightGBMTrainer(label="y", features=list(COLUMNS), rounds=ROUNDS)
        train_models(str(rows), "key", trainer, run_id=night, **given)
        export_models(night, run_id=f"{night}-onnx", **given)
    promote_models(
        CATALOG, models=f"{NIGHTS[0]}-onnx", rule=Everything(), require="onnx", store=made.store
    )
    done.write_text(json.dumps({"keys": keys}))
    return made


def _table(keys: int, seed: int) -> pa.Table:
    chance = np.random.default_rng(seed)
    matrix = chance.normal(size=(keys * ROWS, len(COLUMNS)))
    label = 2 * matrix[:, 0] + 3 * np.abs(matrix[:, 1]) + chance.normal(size=len(matrix))
    columns = dict(zip(COLUMNS, matrix.T, strict=True))
    return pa.table({"key": np.repeat(np.arange(keys), ROWS), **columns, "y": label})
