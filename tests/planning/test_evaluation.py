"""What an evaluation knows of models before any work."""

from typing import Any

import pyarrow as pa
import pytest

from partwise.evaluation.scores import Metric, find_metric
from partwise.planning.evaluation import _predicted, _with_values
from partwise.runs.stored_models import MODELS, ModelSet
from partwise.store.store import Store
from tests.run_maker import RunMaker


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


@pytest.mark.parametrize(
    ("known", "beside", "found"),
    [
        (["prediction", "key"], ["key"], ["prediction"]),
        (["prediction_0", "prediction_1", "key"], ["key"], ["prediction_0", "prediction_1"]),
        # Features of a model that was given the predictions of another one.
        (["prediction", "prediction_0"], ["prediction"], ["prediction_0"]),
        (["prediction", "prediction_7"], ["prediction_7"], ["prediction"]),
        (["prediction_7", "prediction_0"], ["prediction_7"], ["prediction_0"]),
        # What stands beside is meant where it alone has the name.
        (["prediction", "other"], ["prediction"], ["prediction"]),
    ],
)  # fmt: skip
def test_what_is_kept_beside_predictions_is_none_of_them(known, beside, found):
    assert _predicted("prediction", known, beside, "the run") == found


def trained_with(trainer: Any) -> dict[str, Any]:
    """Return a call whose trainer another process can import."""
    return {"call": {"flow": "train_models", "arguments": {"trainer": trainer}}}


def value_then(store: Store, known: dict[str, Any], metric: Metric, *asked: str) -> list[Any]:
    """Return what a run of one key, with a value of 7 of the metric, is known for."""
    maker = RunMaker(store, "night", kind="train", metric=f"holdout_{metric.name}")
    maker.begin(**known)
    maker.commit(("a", "DONE", 7.0))
    ledger = maker.end(1).ledger
    models = pa.table(
        {field.name: pa.nulls(1, field.type) for field in MODELS}
        | {"owner": ledger["partition_id"]}
    )
    of_run = ModelSet(name="run://night", key_columns=maker.columns, models=models)
    found = _with_values(of_run, maker.columns, metric, store, *asked).models
    return found["value_then"].to_pylist()


@pytest.mark.parametrize(
    ("known", "value"),
    [
        (trained_with({"kind": "best", "metric": "mae"}), 7.0),
        (trained_with({"kind": "lightgbm"}), 7.0),
        (trained_with("shop.models:fit"), 7.0),
        (trained_with({"kind": "best", "metric": "shop.scores:rmse"}), 7.0),
        (trained_with({"kind": "best", "metric": "shop.scores:mae"}), None),
        # Functions of a script are not written down but by their fingerprints.
        (
            {
                "call_known": {"flow": "train_models", "arguments": {}},
                "code_parts": {"function __main__:scored.<locals>.mae": "0"},
            },
            None,
        ),
        ({"code_parts": {"trainer=": "0", "function __main__:fit": "1"}}, 7.0),
    ],
)
def test_a_function_that_chose_models_is_not_the_built_in_metric_of_its_name(
    local_store: Store, known: dict[str, Any], value: float | None
) -> None:
    assert value_then(local_store, known, find_metric("mae")) == [value]


@pytest.mark.parametrize(
    ("known", "value"),
    [
        (trained_with({"kind": "best", "metric": "shop.scores:loss"}), 7.0),
        (trained_with({"kind": "best", "metric": "till.scores:loss"}), None),
        (trained_with("shop.models:fit"), 7.0),
        ({"code_parts": {"function shop.scores:loss": "0"}}, 7.0),
        ({"code_parts": {"function __main__:loss": "0"}}, None),
    ],
)
def test_a_function_of_another_module_is_another_metric(
    local_store: Store, known: dict[str, Any], value: float | None
) -> None:
    def loss(labels: Any, predictions: Any) -> float:
        return 0.0

    assert value_then(local_store, known, find_metric(loss), "shop.scores:loss") == [value]
