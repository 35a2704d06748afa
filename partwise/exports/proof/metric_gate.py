"""How well an export predicts, compared with its model: for those whose values do differ.

float16 and int8 change every value a little, so no tolerance parts good exports from bad ones.
What counts is the error on the held-out rows, as a fraction of the model's own.
"""

from collections.abc import Mapping

import numpy as np

from partwise.choices import Task
from partwise.evaluation.metrics import default_metric, task_metrics
from partwise.exports.proof.verdict import Finding, MetricGate
from partwise.models.signature import Signature


def judge_metric(
    gate: MetricGate,
    signature: Signature,
    expected: Mapping[str, np.ndarray],
    given: Mapping[str, np.ndarray],
) -> tuple[list[Finding], dict[str, float], list[str]]:
    """Compare errors, or where no labels are known, the predictions themselves.

    Without labels, the error is the root of the mean squared difference between both predictions,
    as a fraction of the standard deviation of the model's own.

    Returns:
        What does not hold; export_metric_loss, and with labels export_metric and
        export_metric_native, for classes export_label_agreement; notes.
    """
    output = signature.prediction
    if output not in given or expected[output].shape != given[output].shape:
        return [], {}, []  # A finding of its own.
    if not len(expected[output]):
        message = "How well the export predicts is not known: there are no held-out rows."
        return [Finding(check="vacuous", message=message, case=gate.case)], {}, []
    wanted = _as_task(signature.predictions(expected), gate.task)
    found = _as_task(signature.predictions(given), gate.task)
    metrics: dict[str, float] = {}
    labelled = _labelled_rows(gate, wanted)
    if labelled is None or gate.labels is None:
        loss, summary = _relative_difference(wanted, found)
        notes = ["The held-out rows have no labels that fit: predictions were compared."]
    else:
        notes = []
        labels = np.asarray(gate.labels, np.float64)[labelled]
        name = default_metric(gate.task)
        native = task_metrics(gate.task, labels, wanted[labelled])[name]
        error = task_metrics(gate.task, labels, found[labelled])[name]
        metrics |= {"export_metric_native": native, "export_metric": error}
        loss = _relative_loss(native, error)
        summary = f"its {name} is {error:.6g}, the model's own {native:.6g}"
    metrics["export_metric_loss"] = loss
    findings = []
    # Written so that NaN fails.
    if not loss <= gate.max_loss:
        findings.append(
            Finding(
                check="metric",
                message=f"The export predicts the held-out rows worse than its model: {summary}, a "
                f"loss of {loss:.4g}, where {gate.max_loss:g} is allowed.",
                case=gate.case,
                output=output,
                max_difference=loss,
            )
        )
    if gate.task != "regression" and len(wanted):
        differing = int(np.count_nonzero(_classes(wanted) != _classes(found)))
        metrics["export_label_agreement"] = 1 - differing / len(wanted)
        if gate.labels is None and not differing <= gate.max_loss * len(wanted):
            findings.append(
                Finding(
                    check="metric",
                    message=f"The export gives {differing} of {len(wanted)} held-out rows another "
                    f"class than its model, where a fraction of {gate.max_loss:g} is allowed.",
                    case=gate.case,
                    output=output,
                    count=differing,
                )
            )
    return findings, metrics, notes


def _as_task(predictions: np.ndarray, task: Task) -> np.ndarray:
    """Return predictions in double, (n, 1) as (n,) where the task has one number a row."""
    predictions = predictions.astype(np.float64)
    if task != "multiclass" and predictions.ndim > 1 and predictions.size == len(predictions):
        return predictions.reshape(-1)
    return predictions


def _labelled_rows(gate: MetricGate, predictions: np.ndarray) -> np.ndarray | None:
    """Return where labels stand, or None when there are none that fit the predictions."""
    if gate.labels is None or len(gate.labels) != len(predictions):
        return None
    if predictions.ndim != (2 if gate.task == "multiclass" else 1):
        return None
    labelled = np.isfinite(np.asarray(gate.labels, np.float64))
    if gate.task == "multiclass":
        labelled &= (gate.labels >= 0) & (gate.labels < predictions.shape[1])
    return labelled if labelled.any() else None


def _relative_loss(native: float, error: float) -> float:
    if native > 0:
        return (error - native) / native
    return 0.0 if error <= 0 else float(np.inf) if error > 0 else float(np.nan)


def _relative_difference(expected: np.ndarray, given: np.ndarray) -> tuple[float, str]:
    difference = float(np.sqrt(np.mean((given - expected) ** 2)))
    spread = float(np.std(expected))
    summary = f"its predictions differ from the model's by {difference:.6g} (root mean square), "
    summary += f"which themselves vary by {spread:.6g}"
    if spread > 0:
        return difference / spread, summary
    return _relative_loss(0.0, difference), summary


def _classes(predictions: np.ndarray) -> np.ndarray:
    return predictions.argmax(axis=1) if predictions.ndim == 2 else predictions > 0.5
