"""What predictions may look like, and what becomes of those that are not finite numbers."""

from decimal import Decimal
from math import inf, nan

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from partwise import Best, DataConnector, Mean, Tuned
from partwise.connector.context import MemoryLink, PartitionContext
from partwise.errors import InputError
from partwise.evaluation import CrossValidation
from partwise.evaluation.predictions import prediction_array
from partwise.evaluation.scores import Predicted, find_metric, measure

METRICS = ("rmse", "mae", "mape", "wape", "smape", "mase", "pinball", "pinball:0.9")
CLASS_METRICS = ("logloss", "accuracy", "auc")
N = 4
NUMBERS = np.array([1.0, 0.0, 0.25, 2.0])
WAYS = {
    "array": np.asarray,
    "column": lambda values: values[:, None],
    "single": lambda values: values.astype(np.float32),
    "list": list,
    "list of columns": lambda values: [[value] for value in values],
    "objects": lambda values: values.astype(object),
    "decimals": lambda values: np.array([Decimal(str(v)) for v in values], object),
    "masked": np.ma.masked_array,
    "series": pd.Series,
    "nullable series": lambda values: pd.Series(values, dtype="Float64"),
    "frame": lambda values: pd.DataFrame({"p": values}),
    "shuffled names": lambda values: pd.Series(values, name=3),
    "arrow": pa.array,
    "chunks": lambda values: pa.chunked_array([values[:1], values[1:]]),
    "slice": lambda values: pa.array([9.0, *values])[1:],
    "table": lambda values: pa.table({"p": values}),
    "mapping": lambda values: {"p": values},
    "polars": lambda values: pl.DataFrame({"p": values}),
}


@pytest.mark.parametrize("way", WAYS)
def test_numbers_of_any_form_are_one_vector(way):
    found = prediction_array(WAYS[way](NUMBERS), N)
    assert found.dtype == np.float64
    np.testing.assert_array_equal(found, NUMBERS)


@pytest.mark.parametrize(
    "missing",
    [
        [1.0, None],
        np.array([1.0, None], object),
        np.array([1.0, pd.NA], object),
        np.ma.masked_array([1, 2], [False, True]),
        pd.Series([1, None], dtype="Int64"),
        pd.Series([1.0, nan]),
        pa.array([1, None]),
        pa.array([1.0, nan]),
        pa.table({"p": pa.array([True, None])}),
    ],
)
def test_what_is_missing_is_nan(missing):
    np.testing.assert_array_equal(prediction_array(missing, 2), [1.0, nan])


def test_several_columns_stay_several_and_one_row_is_no_scalar():
    assert prediction_array(np.ones((N, 2)), N).shape == (N, 2)
    assert prediction_array(pd.DataFrame({"a": [1.0], "b": [2.0]}), 1).shape == (1, 2)
    assert prediction_array([[3.0]], 1).shape == (1,)
    assert prediction_array([], 0).shape == (0,)
    assert prediction_array(np.empty((0, 3)), 0).shape == (0, 3)


@pytest.mark.parametrize(
    "way", [dict, pd.DataFrame, pa.table, pl.DataFrame], ids=lambda way: way.__name__
)
def test_what_stands_beside_a_column_named_prediction_is_no_prediction(way):
    """Of two classes, two columns would be read as probabilities."""
    columns = {"low": NUMBERS - 1, "prediction": NUMBERS, "note": ["a", "b", "c", "d"]}
    np.testing.assert_array_equal(prediction_array(way(columns), N), NUMBERS)


def test_a_single_value_in_a_mapping_is_that_of_all_rows():
    np.testing.assert_array_equal(prediction_array({"prediction": 5.0}, N), np.full(N, 5.0))
    np.testing.assert_array_equal(prediction_array({"prediction": None}, N), np.full(N, nan))
    several = prediction_array({"prediction_0": NUMBERS, "prediction_1": 0.5}, N)
    np.testing.assert_array_equal(several, np.column_stack([NUMBERS, np.full(N, 0.5)]))


@pytest.mark.parametrize(
    "wrong",
    [
        np.ones((1, N)), np.ones(N - 1), np.ones(1), np.ones((N, 1, 1)), np.ones((N, 0)),
        np.float64(1), 1.0, [], pa.array([1.0]), {},
    ],
    ids=str,
)  # fmt: skip
def test_another_shape_is_refused(wrong):
    with pytest.raises(InputError, match="one prediction is needed for each row"):
        prediction_array(wrong, N)


@pytest.mark.parametrize(
    "wrong",
    [
        ["a"] * N, np.array(["1"] * N), np.array(["1"] * N, object), np.ones(N, complex),
        np.zeros(N, "M8[s]"), pa.array(["1"] * N), pd.Series(["1"] * N), [[1], [1, 2], [1], [1]],
        {"a": [1.0], "b": [1.0, 2.0]}, [{}] * N, None,
    ],
    ids=lambda value: type(value).__name__,
)  # fmt: skip
def test_what_is_no_number_is_refused(wrong):
    with pytest.raises(InputError, match=r"are not numbers|one prediction is needed"):
        prediction_array(wrong, N)


@pytest.mark.parametrize("odd", [nan, inf, -inf])
@pytest.mark.parametrize("everywhere", [True, False])
@pytest.mark.parametrize("name", [*METRICS, *CLASS_METRICS, "own", "own upwards"])
def test_a_prediction_that_is_no_finite_number_loses_in_every_metric(name, everywhere, odd):
    is_class = name in CLASS_METRICS
    labels = np.array([1.0, 0, 1, 0]) if is_class else np.array([1.0, 2, 4, 3])
    predictions = np.where([everywhere, everywhere, True, everywhere], odd, labels)
    own = {"own": ("", lambda *_: 0.0), "own upwards": ("maximize", lambda *_: 9.0)}.get(name)
    metric = find_metric(name) if own is None else find_metric(own[1], own[0])
    predicted = Predicted(labels=labels, predictions=predictions, history=labels)
    worst = metric(predicted)
    assert worst == (-inf if metric.maximized else inf)
    assert metric.loss(worst) == inf
    if own is not None:
        return
    measured = measure("binary" if is_class else "regression", predicted)
    assert {*measured.values()} <= {inf, -inf}
    assert name.startswith("pinball") or measured[name] == worst
    if name in ("logloss", "accuracy"):
        several = np.stack([1 - predictions, predictions], axis=1)
        more = Predicted(labels=labels, predictions=several)
        assert metric(more) == worst == measure("multiclass", more)[name]


@pytest.mark.parametrize("name", [*METRICS, "auc"])
def test_a_metric_of_one_number_refuses_several(name):
    predictions = np.full((N, 2), 0.5)
    predicted = Predicted(labels=np.array([0.0, 1, 0, 1]), predictions=predictions, history=NUMBERS)
    with pytest.raises(InputError, match=r"shape \(4, 2\)"):
        find_metric(name)(predicted)


@pytest.mark.parametrize("name", ["logloss", "accuracy"])
def test_a_label_that_the_predictions_have_no_class_of_is_refused(name):
    labels = np.array([0.0, 1, 2, 1])
    with pytest.raises(InputError, match="2 is among the labels"):
        find_metric(name)(Predicted(labels=labels, predictions=np.full(N, 0.5)))
    with pytest.raises(InputError, match="predicts 2 classes"):
        find_metric(name)(Predicted(labels=labels, predictions=np.full((N, 2), 0.5)))
    with pytest.raises(InputError, match=r"multiclass.*shape \(4,\)"):
        measure("multiclass", Predicted(labels=labels, predictions=np.full(N, 0.5)))


@pytest.mark.parametrize("value", [None, "good", "0.5", b"1", [1.0, 2.0], {}])
def test_a_metric_of_yours_has_to_be_a_number(value):
    def own(labels, predictions):
        return value

    predicted = Predicted(labels=NUMBERS, predictions=NUMBERS)
    with pytest.raises(InputError, match=r"The metric 'own' returned .*not a number"):
        find_metric(own)(predicted)
    with pytest.raises(InputError, match=r"The metric '<lambda>' returned a number beyond"):
        find_metric(lambda *_: 10**400)(predicted)


@pytest.mark.parametrize("direction", ["minimize", "maximize"])
@pytest.mark.parametrize("value", [nan, inf, -inf])
def test_a_score_that_is_not_finite_is_the_worst(value, direction):
    assert find_metric(lambda *_: value, direction).loss(value) == inf


class Made:
    """A model of a function: (rows) -> predictions."""

    def __init__(self, function):
        self.function = function


def predict(data, model, context):
    return model.function(data.to_arrow()["x"].to_numpy())


def candidate(function, name="made"):
    def fit(data, context):
        return Made(function)

    fit.__name__ = name
    return fit


def table_of(labels):
    return pa.table({"x": np.arange(len(labels), dtype=float), "y": labels})


def test_a_column_of_perfect_predictions_wins():
    table = table_of(np.arange(50.0))
    best = Best([candidate(lambda x: x[:, None]), Mean()], label="y", predict=predict)
    result = best(DataConnector(table), PartitionContext(link=MemoryLink(), seed=1))
    assert result.candidate == "made"
    assert result.metrics["holdout_rmse"] == 0


@pytest.mark.parametrize("metric", ["rmse", "mae", "smape", "auc", "accuracy", "logloss"])
def test_a_candidate_that_predicts_nan_in_one_window_loses_with_a_reason(metric):
    is_class = metric in CLASS_METRICS
    labels = np.arange(40) % 2 if is_class else np.arange(40.0) + 1
    table = table_of(labels.astype(float))
    # Perfect but for one row of one fold.
    odd = candidate(lambda x: np.where(x == 7, nan, x % 2 if is_class else x + 1))
    mean = Mean(predicts="binary" if is_class else "regression")
    link = MemoryLink()
    context = PartitionContext(link=link, seed=1)
    holdout = CrossValidation(folds=4)
    best = Best([odd, mean], label="y", metric=metric, predict=predict, holdout=holdout)
    result = best(DataConnector(table), context)
    assert result.candidate == "mean"
    assert abs(result.metrics[f"candidate_made_{metric}"]) == inf
    reason = "1 of 10 predictions are not finite numbers, such as nan"
    assert reason in link.artifacts["candidates.json"].decode()

    with pytest.raises(InputError, match=f"made: {reason}"):
        Best([odd], label="y", metric=metric, predict=predict, holdout=holdout)(
            DataConnector(table), context
        )


def test_settings_whose_predictions_are_nan_are_no_choice():
    def fit(data, context):
        return Made(lambda x: x + (nan if context.params.get("depth") == 2 else 0.5))

    tuned = Tuned(fit, settings=[{"depth": 2}, {"depth": 3}], label="y", predict=predict, trials=3)
    context = PartitionContext(link=MemoryLink(), seed=1)
    result = tuned(DataConnector(table_of(np.arange(30.0))), context)
    assert result.metrics["holdout_rmse"] == 0.5
