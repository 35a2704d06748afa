"""The gate for exports whose values do differ."""

import numpy as np
import pytest

from partwise.exports.proof.metric_gate import judge_metric
from partwise.exports.proof.verdict import MetricGate
from partwise.models.signature import Signature, Tensor

RNG = np.random.default_rng(0)
TRUTH = RNG.normal(size=200)
NATIVE = TRUTH + RNG.normal(scale=0.5, size=200)


def signature(column=None) -> Signature:
    return Signature(
        inputs=(),
        outputs=(Tensor(name="y", dtype="float32", shape=(None,)),),
        layout="custom",
        prediction="y",
        prediction_column=column,
        model_type="tests.None",
    )


def judged(task, labels, native, export, max_loss=0.01, column=None):
    gate = MetricGate(case="held-out rows", labels=labels, task=task, max_loss=max_loss)
    return judge_metric(gate, signature(column), {"y": native}, {"y": export})


@pytest.mark.parametrize("shape", [(-1,), (-1, 1)])
def test_a_regression_is_judged_by_its_rmse(shape):
    native = NATIVE.reshape(shape)
    rmse = np.sqrt(np.mean((NATIVE - TRUTH) ** 2))
    findings, metrics, notes = judged("regression", TRUTH, native, native + 1e-4)
    assert (findings, notes) == ([], [])
    assert metrics["export_metric_native"] == pytest.approx(rmse)
    assert abs(metrics["export_metric_loss"]) < 0.01
    (finding,), metrics, _ = judged("regression", TRUTH, native, native + 0.5)
    worse = np.sqrt(np.mean((NATIVE + 0.5 - TRUTH) ** 2))
    assert metrics["export_metric_loss"] == pytest.approx((worse - rmse) / rmse)
    assert (finding.check, finding.output) == ("metric", "y")
    assert f"its rmse is {worse:.6g}, the model's own {rmse:.6g}" in finding.message


def test_an_export_that_is_better_passes():
    findings, metrics, _ = judged("regression", TRUTH, NATIVE, TRUTH)
    assert findings == []
    assert metrics["export_metric_loss"] == -1


@pytest.mark.parametrize("column", [None, 1])
def test_two_classes_are_judged_by_their_logloss(column):
    labels = (TRUTH > 0).astype(float)
    of_one = 1 / (1 + np.exp(-NATIVE))
    native, export, far = (
        of_one if column is None else np.column_stack([1 - of_one, of_one])
        for of_one in (of_one, np.clip(of_one + 1e-4, 0, 1), 1 - of_one)
    )
    findings, metrics, _ = judged("binary", labels, native, export, column=column)
    assert findings == []
    assert metrics["export_label_agreement"] > 0.99
    findings, metrics, _ = judged("binary", labels, native, far, column=column)
    assert [finding.check for finding in findings] == ["metric"]
    assert "logloss" in findings[0].message
    assert metrics["export_label_agreement"] == 0


def test_several_classes_are_judged_by_their_logloss():
    labels = RNG.integers(0, 3, 200).astype(float)
    native = np.eye(3)[labels.astype(int)] * 0.8 + 0.2 / 3
    assert judged("multiclass", labels, native, native)[0] == []
    rolled = np.roll(native, 1, axis=1)
    findings, metrics, _ = judged("multiclass", labels, native, rolled)
    assert [finding.check for finding in findings] == ["metric"]
    assert metrics["export_label_agreement"] == 0


def test_rows_without_a_label_are_left_out():
    labels = TRUTH.copy()
    labels[::2] = np.nan
    _, metrics, _ = judged("regression", labels, NATIVE, NATIVE)
    known = ~np.isnan(labels)
    rmse = np.sqrt(np.mean((NATIVE[known] - TRUTH[known]) ** 2))
    assert metrics["export_metric_native"] == pytest.approx(rmse)


@pytest.mark.parametrize("labels", [None, np.full(200, np.nan)])
def test_without_labels_predictions_are_compared_by_their_spread(labels):
    spread = NATIVE.std()
    findings, metrics, notes = judged("regression", labels, NATIVE, NATIVE + 0.005 * spread)
    assert findings == []
    assert metrics["export_metric_loss"] == pytest.approx(0.005)
    assert "export_metric" not in metrics
    assert "no labels" in notes[0]
    findings, metrics, _ = judged("regression", labels, NATIVE, NATIVE + 0.05 * spread)
    assert metrics["export_metric_loss"] == pytest.approx(0.05)
    assert [finding.check for finding in findings] == ["metric"]


def test_without_labels_classes_have_to_agree():
    native = np.full(200, 0.4999)
    native[:100] = 0.9
    export = np.where(native < 0.5, 0.5001, 0.9)
    findings, metrics, _ = judged("binary", None, native, export)
    assert metrics["export_label_agreement"] == 0.5
    assert ["100 of 200" in finding.message for finding in findings] == [True]


@pytest.mark.parametrize("labels", [None, TRUTH])
def test_nan_is_never_good_enough(labels):
    export = NATIVE.copy()
    export[0] = np.nan
    findings, _, _ = judged("regression", labels, NATIVE, export, max_loss=1e9)
    assert [finding.check for finding in findings] == ["metric"]


def test_no_rows_prove_nothing():
    findings, _, _ = judged("regression", None, NATIVE[:0], NATIVE[:0])
    assert [finding.check for finding in findings] == ["vacuous"]


def test_a_model_without_error_leaves_no_room():
    assert judged("regression", TRUTH, TRUTH, TRUTH)[0] == []
    findings, metrics, _ = judged("regression", TRUTH, TRUTH, TRUTH + 1e-9, max_loss=1e9)
    assert metrics["export_metric_loss"] == np.inf
    assert len(findings) == 1


@pytest.mark.parametrize("odd", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("task", ["binary", "regression"])
def test_an_export_that_predicts_no_number_is_worse_than_any(task, odd):
    labels = (TRUTH > 0).astype(float)
    native = 1 / (1 + np.exp(-NATIVE))
    (finding,), metrics, _ = judged(
        task, labels, native, np.where(np.arange(200) == 7, odd, native)
    )
    assert finding.check == "metric"
    assert metrics["export_metric"] == np.inf
