"""Formats besides ONNX: what opens their files is found by its name, and held to the same."""

import sys
from dataclasses import replace
from types import ModuleType

import pytest

from partwise.exports.proof.judge_process import examine
from tests.exports.proof.onnx_examples import WEIGHTS, linear

NAMES = {
    "torchscript": "TorchScriptModel",
    "pt2": "Pt2Model",
    "neuron": "NeuronModel",
    "native": "NativeModel",
}


class StandIn:
    """What a format's own class does, for a file that holds a factor."""

    def __init__(self, file_path, signature):
        with open(file_path) as file:
            self.factor = float(file.read())
        self.signature = signature

    def run(self, feeds):
        given = feeds["features"] @ WEIGHTS * self.factor
        return {"prediction": given[:, :1], "slope": given[:, 1:]}


@pytest.fixture(params=list(NAMES))
def form(request, monkeypatch):
    native = request.param == "native"
    module = ModuleType("partwise.exports.native" if native else "partwise.models.torch_programs")
    signature = linear().expectation.signature

    def from_file(file_path, *given):
        assert given == (("lightgbm", signature) if native else ())
        return StandIn(file_path, signature)

    kind = type(NAMES[request.param], (), {"from_file": staticmethod(from_file)})
    setattr(module, NAMES[request.param], kind)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return request.param


@pytest.mark.parametrize(("content", "found"), [("1", []), ("1.5", ["values"]), ("?", ["load"])])
def test_a_format_is_judged_by_its_own_class(form, tmp_path, content, found):
    (tmp_path / "model").write_text(content)
    example = linear().expecting(format=form, serde="lightgbm", opset=None)
    steps = []
    verdict = examine(
        str(tmp_path / "model"),
        example.expectation,
        example.cases,
        lambda *step: steps.append(step),
    )
    assert sorted({finding.check for finding in verdict.findings}) == found
    runs = [] if content == "?" else [("run", case.name) for case in example.cases]
    assert steps == [("load", ""), *runs]


@pytest.mark.parametrize("form", ["torchscript", "pt2", "neuron"], indirect=True)
def test_another_signature_is_told(form, tmp_path):
    """A native file has none of its own."""
    (tmp_path / "model").write_text("1")
    example = linear().expecting(format=form, serde="lightgbm")
    other = example.expectation.signature.model_copy(update={"model_type": "other"})
    expectation = replace(example.expectation, signature=other)
    verdict = examine(str(tmp_path / "model"), expectation, example.cases, lambda *_: None)
    assert [finding.check for finding in verdict.findings] == ["signature"]
    assert "model_type = 'tests.Linear', where 'other' is expected" in verdict.findings[0].message
