import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from partwise.evaluation.metrics import binary_metrics, multiclass_metrics, regression_metrics


def test_regression():
    metrics = regression_metrics(np.array([1.0, 2.0, 4.0]), np.array([1.0, 4.0, 3.0]))
    assert metrics == pytest.approx({"rmse": (5 / 3) ** 0.5, "mae": 1.0, "mape": 1.25 / 3})
    assert "mape" not in regression_metrics(np.array([0.0, 1.0]), np.array([1.0, 1.0]))


@given(
    st.lists(
        st.tuples(st.sampled_from([0.0, 1.0]), st.sampled_from([0.0, 0.2, 0.5, 0.7, 1.0])),
        min_size=1,
        max_size=30,
    )
)
@settings(max_examples=60)
def test_binary(rows):
    labels, predictions = (np.array(column) for column in zip(*rows, strict=True))
    metrics = binary_metrics(labels, predictions)
    pairs = [
        (a > b) + (a == b) / 2 for a in predictions[labels == 1] for b in predictions[labels == 0]
    ]
    assert metrics.get("auc") == (pytest.approx(np.mean(pairs)) if pairs else None)
    assert metrics["accuracy"] == pytest.approx(np.mean((predictions > 0.5) == labels))
    assert np.isfinite(metrics["logloss"])


def test_sure_and_right_has_no_loss():
    assert binary_metrics(np.array([1.0, 0.0]), np.array([1.0, 0.0]))["logloss"] == 0
    half = binary_metrics(np.array([1.0, 0.0]), np.array([0.5, 0.5]))
    assert half == pytest.approx({"logloss": np.log(2), "accuracy": 0.5, "auc": 0.5})


def test_multiclass():
    predictions = np.array([[0.5, 0.25, 0.25], [0.1, 0.1, 0.8]])
    metrics = multiclass_metrics(np.array([1.0, 2.0]), predictions)
    assert metrics == pytest.approx({"logloss": -np.log(0.25 * 0.8) / 2, "accuracy": 0.5})


def test_a_metric_beyond_all_numbers_is_infinite():
    metrics = regression_metrics(np.array([5e-324, 1.0]), np.array([1.0, 1e300]))
    assert metrics["mape"] == metrics["rmse"] == np.inf
