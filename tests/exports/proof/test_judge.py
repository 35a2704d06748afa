"""Right files pass, and each wrong one fails by the check that is meant for it."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest

from partwise.errors import ExportMismatchError
from partwise.exports.proof.judge import judge
from partwise.exports.proof.probes import make_probes
from partwise.exports.proof.verdict import Case, MetricGate
from partwise.exports.protocol import ModelDescription, Tolerance
from partwise.models.signature import METADATA_KEY, Feature
from tests.exports.proof.onnx_examples import (
    ROWS,
    TREES,
    WEIGHTS,
    Example,
    classifier,
    linear,
    tree,
    tree_outputs,
    wide,
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "model.onnx"


def checks(found) -> set[str]:
    return {finding.check for finding in found.findings}


def verdict_of(example: Example, path: Path):
    return judge(example.save(path), example.expectation, example.cases)


@pytest.mark.parametrize("make", [linear, classifier, tree])
def test_a_right_file_passes_with_its_numbers(path, make):
    example = make()
    verdict = verdict_of(example, path)
    verdict.check()
    assert verdict.findings == ()
    assert verdict.metrics["export_cases"] == len(example.cases)
    assert verdict.metrics["export_rows"] == sum(
        len(case.feeds["features"]) for case in example.cases
    )
    assert verdict.metrics["export_max_abs_diff"] < 1e-5
    assert verdict.metrics["export_differing"] == 0


def test_a_corrupted_weight_is_told_with_its_output_and_where(path):
    weights = WEIGHTS.copy()
    weights[1, 0] += 0.25
    found = verdict_of(linear(weights), path)
    assert checks(found) == {"values"}
    first = found.findings[0]
    row = int(np.abs(ROWS[:, 1]).argmax())
    largest = 0.25 * abs(float(ROWS[row, 1]))
    assert row == 26
    assert (first.output, first.case, first.count) == ("prediction", "held-out rows", len(ROWS))
    assert first.max_difference == pytest.approx(largest, rel=1e-5)
    assert found.metrics["export_max_abs_diff"] == first.max_difference
    assert largest == pytest.approx(0.500598, rel=1e-4)
    told = r"'prediction' differs in 40 of 40 values: by 0.500598 at most, at row 26"
    with pytest.raises(ExportMismatchError, match=told) as raised:
        found.check()
    assert raised.value.check == "values"
    assert raised.value.metrics == found.metrics


def test_every_wrong_output_is_told(path):
    found = verdict_of(linear(WEIGHTS * 1.5), path)
    assert {(finding.case, finding.output) for finding in found.findings} == {
        (case, output)
        for case in ("held-out rows", "one row")
        for output in ("prediction", "slope")
    }


def test_swapped_outputs_are_told(path):
    swapped = verdict_of(linear(outputs=("slope", "prediction")), path)
    assert checks(swapped) == {"swapped"}
    assert "'prediction' has the values of the output 'slope'" in swapped.findings[0].message
    assert {finding.output for finding in swapped.findings} == {"prediction", "slope"}
    reordered = verdict_of(linear(names=("slope", "prediction")), path)
    assert checks(reordered) == {"outputs"}
    assert r"['slope', 'prediction'], where ['prediction', 'slope']" in (
        reordered.findings[0].message
    )


def test_a_hard_coded_batch_is_told(path):
    found = verdict_of(linear(batch=40), path)
    assert checks(found) == {"inputs", "outputs"}
    assert "its batch is fixed at 40" in found.findings[0].message


def test_a_batch_that_is_hard_coded_inside_the_graph_is_told(path):
    example = linear()
    shape = onnx.numpy_helper.from_array(np.array([len(ROWS), 3], np.int64), "shape")
    example.graph.initializer.append(shape)
    reshape = onnx.helper.make_node("Reshape", ["features", "shape"], ["fixed"])
    for node in example.graph.node:
        node.input[0] = "fixed"
    example.graph.node.insert(0, reshape)
    found = verdict_of(example, path)
    # onnxruntime finds the outputs' sizes by itself.
    assert checks(found) == {"outputs", "run"}
    assert [finding.case for finding in found.findings if finding.check == "run"] == [
        "one row",
        "empty batch",
    ]


def test_a_dropped_input_is_told(path):
    found = verdict_of(linear(WEIGHTS[:2], n_features=2), path)
    assert checks(found) == {"inputs"}
    assert "(N, 2), where (any, 3) is expected" in found.findings[0].message


def test_a_wrong_opset_is_told(path):
    found = verdict_of(replace(linear(), opset=17), path)
    assert checks(found) == {"opset"}
    assert "'ai.onnx': 17" in found.findings[0].message
    assert "ai.onnx 18 is expected" in found.findings[0].message


def test_missing_metadata_are_told(path):
    example = linear()
    model = onnx.load(example.save(path))
    model.ClearField("metadata_props")
    onnx.save(model, path)
    found = judge(str(path), example.expectation, example.cases)
    assert checks(found) == {"signature"}
    assert METADATA_KEY in found.findings[0].message


def test_changed_metadata_are_told_by_the_field(path):
    example = linear()
    example.save(path)
    renamed = tuple(Feature(name=name) for name in "abd")
    expected = example.expectation.signature.model_copy(update={"features": renamed})
    found = judge(str(path), replace(example.expectation, signature=expected), example.cases)
    assert checks(found) == {"signature"}
    assert "features" in found.findings[0].message


def test_metadata_of_another_form_are_told(path):
    example = linear()
    model = onnx.load(example.save(path))
    model.metadata_props[0].value = '{"format_version": 99}'
    onnx.save(model, path)
    found = judge(str(path), example.expectation, example.cases)
    assert checks(found) == {"signature"}
    assert "has a form that this release does not know" in found.findings[0].message


def test_a_wrong_dtype_is_told(path):
    example = linear(WEIGHTS.astype(np.float64))
    found = verdict_of(example, path)
    assert {"inputs", "outputs"} == checks(found)
    assert "is float64, where float32 is expected" in found.findings[0].message
    tensors = tuple(
        tensor.model_copy(update={"dtype": "float64"})
        for tensor in linear().expectation.signature.outputs
    )
    expected = linear().expectation.signature.model_copy(update={"outputs": tensors})
    wider = [
        replace(case, expected={n: v.astype(np.float64) for n, v in case.expected.items()})
        for case in linear().cases
    ]
    example = replace(linear().expecting(signature=expected), cases=wider)
    assert checks(verdict_of(example, path)) == {"outputs", "dtype"}


def test_nan_in_other_places_is_told(path):
    rows = ROWS.copy()
    rows[7, 1] = np.nan
    expected = {"prediction": ROWS @ WEIGHTS[:, :1], "slope": rows @ WEIGHTS[:, 1:]}
    case = Case(name="missing", feeds={"features": rows}, expected=expected)
    found = verdict_of(replace(linear(), cases=[case]), path)
    assert [(finding.check, finding.output) for finding in found.findings] == [
        ("nan", "prediction")
    ]
    assert "in 1 of 40 values: first at row 7" in found.findings[0].message
    assert found.findings[0].count == 1


def test_flipped_labels_are_told(path):
    found = verdict_of(classifier(labels=("yes", "no")), path)
    assert checks(found) == {"labels"}
    assert found.findings[0].output == "label"
    assert found.findings[0].count == len(ROWS)
    assert "'no' is expected and 'yes' given" in found.findings[0].message or (
        "'yes' is expected and 'no' given" in found.findings[0].message
    )
    assert found.metrics["export_labels_differing"] == len(ROWS)


def test_labels_of_equal_probability_are_no_mistake(path):
    example = classifier(WEIGHTS[:, :1].repeat(2, axis=1))
    (case,) = example.cases
    halves = np.full((len(ROWS), 2), 0.5, np.float32)
    labels = np.array(["yes"] * len(ROWS), object)
    tied = replace(case, expected={"label": labels, "probabilities": halves})
    found = verdict_of(replace(example.expecting(is_constant=True), cases=[tied]), path)
    assert found.findings == ()
    assert found.metrics["export_label_ties"] == len(ROWS)
    assert any("equally likely" in note for note in found.notes)


@pytest.mark.parametrize("kept", [0.0, 0.5, 0.9])
def test_a_truncated_file_is_told(path, kept):
    example = linear()
    content = Path(example.save(path)).read_bytes()
    path.write_bytes(content[: int(len(content) * kept)])
    found = judge(str(path), example.expectation, example.cases)
    assert found.findings
    assert checks(found) <= {"load", "checker"}


def test_a_file_that_is_not_there_is_told(path):
    example = linear()
    found = judge(str(path), example.expectation, example.cases)
    assert checks(found) == {"load"}
    assert "No such file" in found.findings[0].message


def test_weights_beside_the_file_are_read_but_not_by_a_link(path):
    example = wide()
    example.save(path, embedded_bytes=0)
    weights = path.with_name("model.onnx.data")
    assert weights.stat().st_size == 1600
    assert judge(str(path), example.expectation, example.cases).findings == ()
    weights.with_name("again").hardlink_to(weights)
    found = judge(str(path), example.expectation, example.cases)
    assert checks(found) == {"load"}
    assert "2 hard links" in found.findings[0].message


def test_a_graph_that_the_checker_refuses_is_told(path):
    example = linear()
    example.graph.node[0].op_type = "NoSuchOperator"
    found = verdict_of(example, path)
    assert checks(found) == {"checker"}
    assert "NoSuchOperator" in found.findings[0].message


def test_a_reference_that_never_varies_proves_nothing(path):
    example = linear(np.zeros_like(WEIGHTS))
    zeros = [
        replace(case, expected={n: np.zeros_like(v) for n, v in case.expected.items()})
        for case in example.cases
    ]
    found = verdict_of(replace(example, cases=zeros), path)
    assert checks(found) == {"vacuous"}
    assert "prediction is 0.0" in found.findings[0].message
    assert found.metrics["export_differing"] == 0
    allowed = verdict_of(replace(example, cases=zeros).expecting(is_constant=True), path)
    assert allowed.findings == ()
    assert len(allowed.notes) == 2


def test_one_constant_output_is_a_note(path):
    weights = WEIGHTS.copy()
    weights[:, 1] = 0
    still = [
        replace(case, expected={**case.expected, "slope": 0 * case.expected["slope"]})
        for case in linear().cases
    ]
    found = verdict_of(replace(linear(weights), cases=still), path)
    assert found.findings == ()
    assert found.notes == ("The output 'slope' is 0.0 for all 41 rows.",)


def test_no_rows_prove_nothing(path):
    example = linear()
    empty = [case for case in example.cases if case.name == "empty batch"]
    for cases in ([], empty):
        found = verdict_of(replace(example.expecting(is_constant=True), cases=cases), path)
        assert checks(found) == {"vacuous"}


@pytest.mark.parametrize(("factor", "is_right"), [(1.0001, True), (1.5, False)])
def test_a_gate_takes_the_place_of_the_tolerance(path, factor, is_right):
    example = linear((WEIGHTS * factor).astype(np.float32))
    noise = np.random.default_rng(1).normal(size=len(ROWS))
    gate = MetricGate(
        case="held-out rows",
        labels=(ROWS @ WEIGHTS)[:, 0] + noise,
        task="regression",
        max_loss=0.01,
    )
    found = verdict_of(example.expecting(gate=gate), path)
    assert (found.findings == ()) == is_right
    assert checks(found) <= {"metric"}
    assert found.metrics["export_differing"] > 0
    assert found.metrics["export_metric_native"] == pytest.approx(np.sqrt(np.mean(noise**2)))


class TestProbedTree:
    """A threshold that is wrong by one unit in the last place shows on the probes alone."""

    def example(self, **changes) -> Example:
        example = tree(**changes)
        description = ModelDescription(
            signature=example.expectation.signature,
            tolerance=Tolerance(atol=0, rtol=0),
            trees=TREES,
        )
        probes = make_probes(description, {"features": ROWS})
        cases = [
            Case(name=name, feeds=feeds, expected=tree_outputs(feeds["features"]))
            for name, feeds in probes.cases.items()
        ]
        return replace(example, cases=[*example.cases, *cases])

    def test_the_right_tree_passes(self, path):
        found = verdict_of(self.example(), path)
        assert found.findings == ()
        assert found.metrics["export_cases"] == 6

    @pytest.mark.parametrize("toward", [-np.inf, np.inf])
    def test_a_threshold_beside_the_right_one_is_told(self, path, toward):
        beside = np.nextafter(np.float32(0.5), np.float32(toward))
        example = self.example(threshold=float(beside))
        found = verdict_of(example, path)
        assert {(finding.check, finding.case) for finding in found.findings} == {
            ("values", "branches")
        }
