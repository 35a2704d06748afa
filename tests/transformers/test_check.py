"""Checks of exports: files of fixed sizes, files of 8 bits, and what is not opened at all."""

import sys
from pathlib import Path

import pytest

from partwise.errors import ExportRefusedError, InputError
from partwise.transformers.check import check_export
from partwise.transformers.checkpoint_export import export_checkpoint
from partwise.transformers.options import TransformersOptions
from tests.lazily import Lazily
from tests.transformers.tiny_checkpoints import save_checkpoint

torch = Lazily("torch")

CLASSIFIER = "sequence-classification"
RANDOM = TransformersOptions(preprocessor="none")


@pytest.fixture(scope="module")
def bert(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("checked") / "bert"
    save_checkpoint(folder, "bert", CLASSIFIER)
    return folder


def fails_on_longer_rows(*_):
    return "On longer rows it fails."


@pytest.mark.slow
@pytest.mark.usefixtures("neuron_sdk")
@pytest.mark.parametrize(("form", "scaled"), [("torchscript", 5e-5), ("neuron", 1e-2)])
def test_what_is_fixed_to_its_sizes_is_compared_on_these(bert, tmp_path, monkeypatch, form, scaled):
    problem = "partwise.transformers.torch_programs._problem"
    monkeypatch.setattr(problem, fails_on_longer_rows)
    options = TransformersOptions(format=form, batch_size=2, sequence_length=16)
    made = export_checkpoint(str(bert), CLASSIFIER, tmp_path / "made", options).files[0]
    found = check_export(tmp_path / "made" / made.name, str(bert), options=RANDOM)
    assert found.is_right, found
    assert found.feature == CLASSIFIER
    (file,) = found.files
    assert file.cases == made.cases
    assert file.notes == ("Its sizes are fixed: compared on 2 rows of 16 tokens only.",)
    assert file.scaled == scaled
    save_checkpoint(tmp_path / "other", "bert", CLASSIFIER)
    other = str(spoilt(tmp_path / "other"))
    assert not check_export(tmp_path / "made" / made.name, other).is_right


def spoilt(folder: Path) -> Path:
    """Move the scores of a classifier."""
    from safetensors.torch import load_file, save_file

    weights = load_file(folder / "model.safetensors")
    weights["classifier.bias"] += 1
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    return folder


def test_without_the_sdk_of_neuron_it_is_said_what_is_missing(bert, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch_neuronx", None)
    monkeypatch.setitem(sys.modules, "torch_neuron", None)
    options = TransformersOptions(format="torchscript", sequence_length=16)
    export_checkpoint(str(bert), CLASSIFIER, tmp_path / "made.pt", options)
    file = (tmp_path / "made.pt").rename(tmp_path / "made.neuron.pt")
    with pytest.raises(ExportRefusedError, match="The AWS Neuron SDK is not installed"):
        check_export(file, str(bert))


@pytest.mark.slow
def test_a_file_of_8_bits_is_known_by_its_graph(bert, tmp_path):
    # From a trace, which is sooner made: what is looked at is what was made of it.
    options = TransformersOptions(quantize="int8", opset=17)
    export_checkpoint(str(bert), CLASSIFIER, tmp_path / "made.onnx", options)
    found = check_export(tmp_path / "made.onnx", str(bert))
    assert found.is_right, found
    assert "Its graph multiplies integers: judged as int8" in found.files[0].notes[0]
    assert 0 < found.files[0].metrics["export_metric_loss"] < 0.1
    strict = TransformersOptions(quantize="none")
    assert not check_export(tmp_path / "made.onnx", str(bert), options=strict).is_right


@pytest.mark.parametrize("name", ["foreign.pt2", "foreign.ts.pt", "foreign.neuron.pt"])
def test_a_foreign_file_that_could_run_code_is_not_opened(bert, tmp_path, name):
    class Dangerous:
        def __reduce__(self):
            return (Path.touch, (tmp_path / "ran",))

    torch.save({"x": Dangerous()}, tmp_path / name)
    with pytest.raises(InputError, match=r"has no signature of partwise, .* it is not opened"):
        check_export(tmp_path / name, str(bert))
    (tmp_path / name).write_text("no archive")
    with pytest.raises(InputError, match=r"is broken or no \.pt"):
        check_export(tmp_path / name, str(bert))
    assert not (tmp_path / "ran").exists()
