"""Runs for serving: the model of each key multiplies the column "price" by a number of its own."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa

from partwise.models.serdes import serde_name
from partwise.serving.predictor import Predictor
from partwise.serving.served import PredictorOptions
from partwise.store.store import Store
from tests.run_maker import RunMaker


@dataclass(frozen=True)
class Scale:
    """A model as those of scikit-learn are asked."""

    by: float
    feature_names_in_ = ("price",)

    def predict(self, frame: pd.DataFrame) -> Any:
        return frame["price"].to_numpy(float) * self.by


@dataclass(frozen=True)
class Scales:
    """Reads the number at the end of what `RunMaker` writes as a model."""

    filename: str = "note.txt"

    def write(self, model: Scale, file_path: str) -> None:
        Path(file_path).write_text(str(model.by))

    def read(self, file_path: str) -> Scale:
        return Scale(by=float(Path(file_path).read_text().split()[-1]))


def make_predictor(store: Store, values: dict[Any, float], keys: pa.Schema) -> Predictor:
    """Return a predictor of a new run "sales", whose keys have the given numbers."""
    maker = RunMaker(store, "sales", "train", serde_name(Scales()), keys=keys)
    maker.begin()
    maker.commit(*((key, "DONE", value) for key, value in values.items()))
    maker.end(len(values))
    options = PredictorOptions(format="native", serde=Scales())
    return Predictor.open("run://sales", store, options)
