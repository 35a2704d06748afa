"""What an evaluation knows of models before any work."""

import pyarrow as pa

from partwise.evaluation.scores import find_metric
from partwise.planning.evaluation import _with_values
from partwise.runs.stored_models import MODELS, ModelSet


def test_what_a_built_in_metric_was_is_not_what_a_function_of_its_name_was(local_store):
    def mae(labels, predictions):
        return 0.0

    models = pa.table({field.name: pa.nulls(2, field.type) for field in MODELS})
    # A run that is not there: nothing is looked up.
    models = ModelSet(name="run://night", key_columns=(), models=models)
    found = _with_values(models, (), find_metric(mae), local_store).models
    assert (
        found.select(["value_then", "rows_then"]).to_pylist()
        == [{"value_then": None, "rows_then": None}] * 2
    )
