"""Exports of less precision: each output is judged, on all cases."""

import numpy as np
import pytest

from partwise.exports.proof.comparison import Comparison
from partwise.exports.proof.verdict import Case, Expectation, MetricGate
from partwise.exports.protocol import Tolerance
from partwise.models.signature import Signature, Tensor

NAMES = ("start", "end")


def judged(given_of, outputs="all"):
    """Return the verdict on what an export gave for two cases of two outputs."""
    tensors = tuple(Tensor(name=name, dtype="float32", shape=(None, 3)) for name in NAMES)
    signature = Signature(
        inputs=tensors, outputs=tensors, layout="custom", prediction="start", model_type="a.B"
    )
    expectation = Expectation(
        format="onnx",
        signature=signature,
        tolerance=Tolerance(atol=0, rtol=0),
        gate=MetricGate(
            case="large", labels=None, task="regression", max_loss=0.1, outputs=outputs
        ),
    )
    comparison = Comparison(expectation)
    random = np.random.default_rng(0)
    for name, rows in (("large", 50), ("small", 2)):
        expected = {each: random.normal(size=(rows, 3)).astype(np.float32) for each in NAMES}
        case = Case(name=name, feeds={}, expected=expected)
        comparison.add(case, given_of(name, expected))
    return comparison.verdict()


def test_small_movements_are_measured_for_each_output():
    verdict = judged(lambda case, expected: {n: v + np.float32(0.01) for n, v in expected.items()})

    assert verdict.findings == ()
    for name in NAMES:
        assert verdict.metrics[f"export_movement_{name}"] == pytest.approx(0.01, rel=0.2)


def test_an_output_beside_the_prediction_that_is_wrong_is_found():
    def end_is_wrong(case, expected):
        return {"start": expected["start"], "end": expected["end"][:, ::-1]}

    (finding,) = judged(end_is_wrong).findings

    assert (finding.check, finding.output) == ("metric", "end")
    assert "'end' moves by" in finding.message
    assert judged(end_is_wrong, outputs="prediction").findings == ()


def test_a_case_beside_the_largest_one_that_is_wrong_is_found():
    def small_is_wrong(case, expected):
        return {n: v if case == "large" else v + 9 for n, v in expected.items()}

    assert {finding.output for finding in judged(small_is_wrong).findings} == set(NAMES)
