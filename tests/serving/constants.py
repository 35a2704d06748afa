"""Catalogs without any flow, whose models say one number each."""

from pathlib import Path
from typing import Any

import numpy as np

from partwise.models.plain_models import ConstantModel
from partwise.models.serdes import serde_name
from partwise.runs.run import Run
from partwise.serving.predictor import Predictor
from partwise.serving.served import PredictorOptions
from partwise.store.store import Store
from tests.one_catalog import Values
from tests.run_maker import TEXTS, RunMaker


class Constants:
    """Reads what `RunMaker` writes as a model, "key value", as a model that says the value."""

    filename = "note.txt"

    def write(self, model: Any, file_path: str) -> None:
        raise NotImplementedError

    def read(self, file_path: str) -> ConstantModel:
        value = float(Path(file_path).read_text().rsplit(" ", 1)[1])
        return ConstantModel(values=np.array([value]))


class Typed(Constants):
    """The same, whose keys say the types of their predictions, such as float32."""

    def read(self, file_path: str) -> ConstantModel:
        dtype = Path(file_path).read_text().split()[0]
        values = super().read(file_path).values
        return ConstantModel(values=values.astype(dtype))


def train(
    store: Store, run_id: str, values: Values, keys=TEXTS, serde: Constants | None = None
) -> Run:
    maker = RunMaker(store, run_id, "train", serde_name(serde or Constants()), keys=keys)
    maker.begin("overwrite")
    maker.commit(*((key, "DONE", value) for key, value in values.items()))
    return maker.end(len(values))


def predictor(store: Store, reference: str = "catalog://sales", **options: Any) -> Predictor:
    given = {"format": "native", "serde": Constants(), **options}
    return Predictor.open(reference, store, PredictorOptions(**given))
