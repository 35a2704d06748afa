"""A sketch stands beside the model that was trained on the rows, and nowhere else."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from partwise.connector.context import PartitionContext
from partwise.connector.data_connector import DataConnector
from partwise.engine.works import TrainWork
from partwise.errors import InputError
from partwise.models.serdes import PickleSerde
from partwise.outcomes import Skip
from partwise.runs.bundle import SKETCH_FILENAME
from partwise.runs.stored_models import MODELS, ModelSet
from partwise.tables.roles import with_label_role
from partwise.tables.sketches import decode

TABLE = pa.table({"key": ["a"] * 20, "x": np.arange(20.0), "y": np.arange(20.0)})


class Trainer:
    label = "y"

    def __call__(self, data: Any, context: Any) -> Any:
        return {"mean": 1.0}


def trained(function: Any, tmp_path: Any, table: pa.Table = TABLE, *, sketches: bool = True):
    context = PartitionContext(key_columns=("key",))
    work = TrainWork(function=function, serde=PickleSerde(), sketches=sketches)
    return work(DataConnector(table), context, (), str(tmp_path))


def test_a_sketch_has_all_columns_but_the_keys_and_names_the_label(tmp_path):
    sketch = decode(trained(Trainer(), tmp_path).files[SKETCH_FILENAME])
    assert (sketch.names, sketch.label, sketch.rows) == (("x", "y"), "y", 20)


def test_of_a_function_the_rows_say_which_column_is_the_label(tmp_path):
    def function(data, context):
        return {"mean": 1.0}

    assert decode(trained(function, tmp_path).files[SKETCH_FILENAME]).label == ""
    marked = TABLE.cast(TABLE.schema.set(2, with_label_role(TABLE.schema.field("y"))))
    assert decode(trained(function, tmp_path, marked).files[SKETCH_FILENAME]).label == "y"


@pytest.mark.parametrize("outcome", [None, Skip("too few")])
def test_without_a_model_there_is_none(tmp_path, outcome):
    assert not trained(lambda data, context: outcome, tmp_path).files


def test_it_can_be_left_out(tmp_path):
    assert not trained(Trainer(), tmp_path, sketches=False).files


def test_its_name_is_taken():
    with pytest.raises(InputError, match="that of the model's sketch"):
        PartitionContext().upload(b"", SKETCH_FILENAME)


def test_only_an_evaluation_is_brought_sketches():
    files = dict.fromkeys(("filename", "bundle", "compression", "sha256", "serde"), "x")
    files |= dict.fromkeys(("offset", "size_bytes", "stored_bytes"), 1)
    row = {"hash": 1, "run_id": "r", "owner": "a", "model": files, "sketch": files}
    models = pa.Table.from_pylist([row], schema=MODELS)
    kept = ModelSet(name="run://r", key_columns=(), models=models).without_sketches()
    assert kept.models.schema == MODELS
    assert kept.models.to_pylist()[0]["sketch"] is None
    assert kept.models["model"].equals(models["model"])
