"""Models of transformers as TorchScript, as .pt2 and for Neuron: written, proved, run elsewhere."""

import os
import subprocess
import sys
import time
import warnings
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from partwise.errors import ExportRefusedError, InputError
from partwise.exports.proof.judge import judge
from partwise.models.torch_programs import NeuronModel, Pt2Model, TorchScriptModel
from partwise.transformers.check import check_export
from partwise.transformers.checkpoint_export import export_checkpoint
from partwise.transformers.export import TransformersMismatchError, export
from partwise.transformers.feature_choice import config_for
from partwise.transformers.features import TOKENS
from partwise.transformers.flat_model import run_model
from partwise.transformers.onnx_config import OnnxConfig
from partwise.transformers.options import TransformersOptions
from partwise.transformers.proof import expect
from partwise.transformers.report import ExportReport
from partwise.transformers.sizes import Sizes
from partwise.transformers.torch_programs import write_pt2, write_torchscript
from tests.lazily import Lazily
from tests.transformers.tiny_models import TINY, tiny_model

torch, transformers = Lazily("torch"), Lazily("transformers")
models = Lazily("tests.transformers.own_models")

pytestmark = pytest.mark.slow  # many models

MODELS = {"torchscript": TorchScriptModel, "pt2": Pt2Model, "neuron": NeuronModel}
FILES = {"torchscript": "model.ts.pt", "pt2": "model.pt2", "neuron": "model.neuron.pt"}


def small_model(model_type: str, feature: str) -> Any:
    """Return a model of one layer, for capturing takes a second for each."""
    torch.manual_seed(0)
    match model_type:
        case "gpt2":
            config = transformers.GPT2Config(**TINY["gpt2"] | {"n_layer": 1})
            return transformers.GPT2LMHeadModel(config).eval()
        case "bart":
            layers = {"encoder_layers": 1, "decoder_layers": 1}
            config = transformers.BartConfig(**TINY["bart"] | layers)
            return transformers.BartForConditionalGeneration(config).eval()
        case "bert" if feature == "sequence-classification":
            layers = {"num_hidden_layers": 1, "num_labels": 3}
            config = transformers.BertConfig(**TINY["bert"] | layers)
            return transformers.BertForSequenceClassification(config).eval()
        case _:
            return tiny_model(model_type, feature, one_layer=True)


def exported(
    model: Any, feature: str, folder: Path, form: str, **options: Any
) -> tuple[ExportReport, OnnxConfig, Any]:
    config = config_for(model.config, feature)
    report = export(model, config, folder, TransformersOptions(format=form, **options))
    return report, config, MODELS[form].from_file(str(folder / FILES[form]))


def check_values(model: Any, config: OnnxConfig, loaded: Any, sizes: Sizes) -> None:
    feeds = config.generate_dummy_inputs(sizes, seed=7)
    expected = run_model(model, config, feeds)
    found = loaded.run(feeds)
    assert list(found) == list(config.outputs)
    for name, values in expected.items():
        assert found[name].shape == values.shape
        np.testing.assert_allclose(found[name], values, rtol=1e-4, atol=1e-5)
        assert np.ptp(values) > 1e-3


@pytest.mark.parametrize(
    ("form", "model_type", "feature"),
    [
        ("torchscript", "bert", "masked-lm"),
        ("torchscript", "gpt2", "causal-lm"),
        ("torchscript", "gpt2", "causal-lm-with-past"),
        ("torchscript", "deberta", "question-answering"),
        ("torchscript", "vit", "image-classification"),
        ("pt2", "gpt2", "causal-lm-with-past"),
        ("pt2", "levit", "default"),
    ],
)
def test_a_file_gives_what_its_model_does_for_sizes_that_it_was_not_captured_with(
    form, model_type, feature, tmp_path, capfd
):
    model = small_model(model_type, feature)
    capfd.readouterr()

    report, config, loaded = exported(model, feature, tmp_path, form)

    assert report.is_right
    assert [path.name for path in tmp_path.iterdir()] == [FILES[form]]
    height, width = (64, 64) if model_type == "levit" else (48, 80)
    check_values(model, config, loaded, Sizes(batch=4, sequence=11, height=height, width=width))
    if "past" in feature:
        assert report.files[0].metrics["export_generated_tokens"] == 8
    assert tuple(capfd.readouterr()) == ("", "")


@pytest.mark.parametrize("form", ["torchscript", "pt2"])
def test_an_encoder_and_a_decoder_with_past_generate_the_models_own_tokens(form, tmp_path):
    model = small_model("bart", "seq2seq-lm-with-past")

    report, config, loaded = exported(model, "seq2seq-lm-with-past", tmp_path, form)

    prefill = FILES[form].replace("model", "prefill")
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([prefill, FILES[form]])
    assert report.files[1].metrics["export_generated_tokens"] == 8
    check_values(model, config, loaded, Sizes(batch=1, sequence=4, decoder_sequence=1, past=1))
    if form == "torchscript":
        starts = [file.notes[0].split(";")[0] for file in report.files]
        assert starts == [
            "Traced with 1 row of 64 tokens, the most that it takes",
            "Traced with 1 row of 59 tokens after 5 earlier ones, the most that it takes",
        ]


@pytest.mark.parametrize(
    ("model_type", "options", "note"),
    [
        (
            "bert",
            {},
            (
                "Traced with 1 row of 64 tokens, the most that it takes; right for other sizes as "
                "well, as compared with input_ids of 1 x 1, 3 x 9, 2 x 24, 1 x 64."
            ),
        ),
        (
            "roberta",
            {"sequence_length": 30, "batch_size": 2},
            (
                "Traced with 2 rows of 30 tokens; right for other sizes as well, as compared with "
                "input_ids of 3 x 60, 1 x 1, 3 x 9, 2 x 24, 1 x 62."
            ),
        ),
        (
            "roberta",
            {"sequence_length": 1000},
            (
                "Traced with 1 row of 62 tokens, the most that it takes; right for other sizes as "
                "well, as compared with input_ids of 1 x 1, 3 x 9, 2 x 24, 1 x 62."
            ),
        ),
    ],
)
def test_the_sizes_of_a_trace_are_told(model_type, options, note, tmp_path):
    model = tiny_model(model_type, "default", one_layer=True)

    report, _, _ = exported(model, "default", tmp_path, "torchscript", **options)

    assert report.files[0].notes == (note,)


@pytest.mark.parametrize(
    ("model_type", "feature"), [("plbart", "sequence-classification"), ("bloom", "causal-lm")]
)
def test_a_trace_of_what_is_patched_is_right(model_type, feature, tmp_path):
    """PLBart squeezes a single row away; BLOOM has a function that brings its own gradient."""
    model = tiny_model(model_type, feature, one_layer=True)

    report, config, loaded = exported(model, feature, tmp_path, "torchscript", sequence_length=12)

    assert report.files[0].notes[0].startswith("Traced with 1 row of 12 tokens; right for other")
    check_values(model, config, loaded, Sizes(batch=2, sequence=5))


def test_tied_weights_stay_tied_in_the_file_and_in_the_model(tmp_path):
    model = tiny_model("gpt2", "causal-lm", one_layer=True).train()
    before = {name: values.clone() for name, values in model.state_dict().items()}
    attributes = set(vars(model)), set(vars(model.config))

    exported(model, "causal-lm", tmp_path, "torchscript")

    embeddings = model.transformer.wte.weight
    assert model.lm_head.weight is embeddings
    assert model.training
    assert (set(vars(model)), set(vars(model.config))) == attributes
    after = model.state_dict()
    assert all(torch.equal(values, after[name]) for name, values in before.items())
    with zipfile.ZipFile(tmp_path / "model.ts.pt") as file:
        content = [file.read(name) for name in file.namelist()]
    assert content.count(embeddings.detach().numpy().tobytes()) == 1


def test_a_trace_that_holds_for_its_sizes_only_says_so_and_takes_no_others(tmp_path):
    torch.manual_seed(0)
    model = models.OfOneLength(transformers.BertConfig(**TINY["bert"], num_labels=3)).eval()
    sizes = Sizes(batch=2, sequence=16)

    report, config, loaded = exported(
        model,
        "sequence-classification",
        tmp_path,
        "torchscript",
        sequence_length=16,
        batch_size=2,
    )

    (note,) = report.files[0].notes
    assert note.startswith(
        "Traced with 2 rows of 16 tokens, and holds for these sizes only: pad to them. "
    )
    assert "differ" in note
    assert report.files[0].cases == ("fixed sizes 1", "fixed sizes 2", "fixed sizes 3")
    assert {tensor.shape for tensor in loaded.signature.inputs} == {(2, 16)}
    check_values(model, config, loaded, sizes)
    for other in (replace(sizes, batch=1), replace(sizes, sequence=17)):
        with pytest.raises(InputError, match=r"'input_ids' has the shape .* takes 2 x 16 only"):
            loaded.run(config.generate_dummy_inputs(other))


def test_with_past_such_a_trace_is_refused(tmp_path):
    torch.manual_seed(0)
    model = models.OfOneLengthWithPast(transformers.GPT2Config(**TINY["gpt2"])).eval()

    with pytest.raises(ExportRefusedError, match=r"with past they grow: export as .onnx. or .pt2"):
        exported(model, "causal-lm-with-past", tmp_path / "new", "torchscript", sequence_length=9)

    assert list(tmp_path.iterdir()) == []


def test_what_cannot_be_written_is_refused_in_one_line(tmp_path):
    model = models.WithOwnGradient(transformers.BertConfig(**TINY["bert"])).eval()

    with pytest.raises(
        ExportRefusedError, match=r"trace of WithOwnGradient .* 'Doubled'"
    ) as refused:
        exported(model, "sequence-classification", tmp_path / "new", "torchscript")

    assert "\n" not in str(refused.value)
    assert list(tmp_path.iterdir()) == []


def test_what_torch_does_not_read_again_is_refused(tmp_path):
    layers = {"encoder_layers": 1, "decoder_layers": 1, "num_labels": 3}
    config = transformers.BartConfig(**TINY["bart"] | layers)
    model = transformers.BartForSequenceClassification(config).eval()

    with pytest.raises(
        ExportRefusedError, match=r"sizes that depend on values.*unbacked"
    ) as refused:
        exported(model, "sequence-classification", tmp_path / "new", "pt2")

    assert "\n" not in str(refused.value)
    assert list(tmp_path.iterdir()) == []


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, OnnxConfig, Path, Any]:
    """A model with its two files and what they have to be."""
    model = small_model("bert", "sequence-classification")
    config = config_for(model.config, "sequence-classification")
    folder = tmp_path_factory.mktemp("bert")
    options = TransformersOptions(format="pt2")
    proved = expect(model, config, options)
    write_pt2(model, config, proved.expectation.signature, folder / FILES["pt2"])
    script = TransformersOptions(format="torchscript")
    traced = write_torchscript(
        model, config, expect(model, config, script), script, folder / FILES["torchscript"]
    )
    return model, config, folder, {"pt2": proved, "torchscript": traced}


@pytest.mark.parametrize("form", ["torchscript", "pt2"])
def test_a_corrupted_weight_is_found(form, bert, tmp_path):
    _, _, folder, proved = bert
    whole = judge(str(folder / FILES[form]), proved[form].expectation, proved[form].cases)
    loaded = MODELS[form].from_file(str(folder / FILES[form]))
    weights = loaded.program.state_dict
    weights = weights if isinstance(weights, dict) else weights()
    (name,) = [name for name in weights if name.endswith("classifier.weight")]
    with torch.no_grad():
        weights[name][0, 0] += 0.5
    loaded.save(str(tmp_path / "m"))

    broken = judge(str(tmp_path / "m"), proved[form].expectation, proved[form].cases)

    assert whole.findings == ()
    assert {finding.check for finding in broken.findings} == {"values"}


def test_a_mismatch_leaves_no_file_nor_does_a_killed_export(tmp_path):
    model = tiny_model("bert", "default", one_layer=True)
    config = config_for(model.config, "default")
    options = TransformersOptions(format="torchscript", sequence_length=8)
    given = iter(range(100))
    own = model.forward

    def forward(**inputs: Any) -> Any:
        found = own(**inputs)
        found.last_hidden_state = found.last_hidden_state + next(given)
        return found

    model.forward = forward
    # What a process left that was killed a day ago.
    (tmp_path / ".partwise-dead" / "made").mkdir(parents=True)
    (lock := tmp_path / ".partwise-dead.lock").touch()
    os.utime(lock, 2 * (time.time() - 90_000,))
    with pytest.raises(TransformersMismatchError, match="differ"):
        export(model, config, tmp_path / "new", options)

    assert list(tmp_path.iterdir()) == []


def test_files_run_without_transformers_and_name_no_folder_of_this_machine(bert):
    """In one process for both, since torch takes long to start."""
    model, config, folder, _ = bert
    feeds = config.generate_dummy_inputs(Sizes(batch=1, sequence=2), seed=5)
    code = f"""
import sys, numpy
sys.modules["transformers"] = None
from partwise.models.torch_programs import Pt2Model
from partwise.models.torch_programs import TorchScriptModel
feeds = {{name: numpy.array(values) for name, values in {
        ({name: values.tolist() for name, values in feeds.items()})
    }.items()}}
for model, path in zip((TorchScriptModel, Pt2Model), sys.argv[1:], strict=True):
    print(*model.from_file(path).run(feeds)["logits"].ravel().tolist())
"""
    paths = [str(folder / FILES[form]) for form in ("torchscript", "pt2")]
    command = [sys.executable, "-W", "error", "-c", code, *paths]
    output = subprocess.run(command, capture_output=True, text=True, timeout=240)

    assert output.stderr == ""
    expected = run_model(model, config, feeds)["logits"].ravel()
    for line in output.stdout.splitlines():
        np.testing.assert_allclose(np.array(line.split(), float), expected, rtol=1e-4, atol=1e-5)
    assert len(output.stdout.splitlines()) == 2
    with zipfile.ZipFile(folder / FILES["pt2"]) as file:
        assert not any(b"site-packages" in file.read(name) for name in file.namelist())


@pytest.mark.parametrize(
    ("form", "option", "only"),
    [
        ("torchscript", {"opset": 18}, "onnx"),
        ("pt2", {"quantize": "int8"}, "onnx"),
        ("neuron", {"external_data": "always"}, "onnx"),
        ("onnx", {"batch_size": 2}, "torchscript and neuron"),
        ("pt2", {"sequence_length": 16}, "torchscript and neuron"),
    ],
)
def test_options_of_other_formats_are_refused(form, option, only, tmp_path):
    model = tiny_model("bert", "default", one_layer=True)

    with pytest.raises(
        ExportRefusedError, match=f"is an option of {only}: leave it out for {form}"
    ):
        exported(model, "default", tmp_path / "new", form, **option)

    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("neuron_sdk")
def test_neuron_files_have_the_sizes_of_the_options(tmp_path):
    model = tiny_model("bert", "sequence-classification", one_layer=True)

    report, config, loaded = exported(
        model,
        "sequence-classification",
        tmp_path,
        "neuron",
        batch_size=2,
        sequence_length=16,
    )

    (file,) = report.files
    assert file.notes == ("Compiled for 2 rows of 16 tokens and no other sizes: pad to these.",)
    assert (file.scaled, file.rtol, len(file.cases)) == (1e-2, 1e-2, 3)
    assert {tensor.shape for tensor in loaded.signature.inputs} == {(2, 16)}
    assert [tensor.shape for tensor in loaded.signature.outputs] == [(2, 3)]
    for rows in (1, 2, 5):  # in calls of two, the last filled up
        check_values(model, config, loaded, Sizes(batch=rows, sequence=16))
    with pytest.raises(InputError, match="takes 2 x 16 only"):
        loaded.run(config.generate_dummy_inputs(Sizes(batch=2, sequence=15)))


@pytest.mark.usefixtures("neuron_sdk")
@pytest.mark.parametrize(
    ("model_type", "feature", "reason"),
    [
        ("gpt2", "causal-lm-with-past", "the past grows with each token. Choose 'causal-lm'"),
        ("clip", "default", "'logits_per_image' compares the rows of a call"),
    ],
)
def test_what_has_no_fixed_sizes_is_refused_for_neuron(model_type, feature, reason, tmp_path):
    with pytest.raises(ExportRefusedError, match=reason):
        exported(tiny_model(model_type, feature), feature, tmp_path / "new", "neuron")


def test_without_the_sdk_of_neuron_nothing_is_done(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "torch_neuronx", None)
    monkeypatch.setitem(sys.modules, "torch_neuron", None)
    model = tiny_model("bert", "default", one_layer=True)
    monkeypatch.setattr(model, "forward", lambda **_: pytest.fail("the model was run"))

    with pytest.raises(
        ExportRefusedError, match=r"install torch-neuronx .* AWS' own package index"
    ):
        exported(model, "default", tmp_path / "new", "neuron")

    assert list(tmp_path.iterdir()) == []


@pytest.fixture(scope="module")
def traced_bert(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, ExportReport, Path]:
    model = tiny_model("bert", "default", one_layer=True)
    folder = tmp_path_factory.mktemp("traced-bert")
    report, _, _ = exported(model, "default", folder, "torchscript")
    return model, report, folder / FILES["torchscript"]


def loaded_by_torch(file: Path) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return torch.jit.load(file)


def test_the_lines_that_load_a_trace_of_bert_run_as_they_are(traced_bert):
    """Two tensors by their place, and two outputs by theirs."""
    model, report, file = traced_bert
    tokens_tensor = torch.tensor([[11, 12, 13, 14, 15, 16, 17]])
    segments_tensors = torch.tensor([[0, 0, 0, 1, 1, 1, 1]])
    dummy_input = [tokens_tensor, segments_tensors]

    loaded = loaded_by_torch(file)
    loaded.eval()
    all_encoder_layers, pooled_output = loaded(*dummy_input)

    own = model(*dummy_input)
    torch.testing.assert_close(all_encoder_layers, own.last_hidden_state)
    torch.testing.assert_close(pooled_output, own.pooler_output)
    assert [each.name for each in report.files[0].outputs] == ["last_hidden_state", "pooler_output"]


def test_a_trace_has_the_names_of_its_inputs_and_fills_in_what_the_model_does(traced_bert):
    model, _, file = traced_bert
    tokens, types = torch.tensor([[11, 12, 13], [14, 15, 16]]), torch.tensor([[0, 0, 1]] * 2)

    loaded = loaded_by_torch(file)

    assert "Tensor input_ids, Tensor? attention_mask=None, Tensor? token_type_ids=None" in str(
        loaded.forward.schema
    )
    torch.testing.assert_close(loaded(tokens)[0], model(tokens)[0])
    for given in ({"token_type_ids": types}, {"attention_mask": 1 - types}):
        torch.testing.assert_close(loaded(tokens, **given)[1], model(tokens, **given)[1])


def test_a_model_that_adds_nothing_for_no_types_has_to_be_given_them(tmp_path):
    """XLM adds a row of its table of tokens for a type of 0, and none where there are no types."""
    model = tiny_model("xlm", "default", one_layer=True)
    exported(model, "default", tmp_path, "torchscript", sequence_length=12)

    schema = str(loaded_by_torch(tmp_path / FILES["torchscript"]).forward.schema)

    assert "Tensor input_ids, Tensor attention_mask, Tensor token_type_ids)" in schema


class MaskedTextOnnxConfig(OnnxConfig):
    """Of a model that is in no table."""

    inputs = dict.fromkeys(("input_ids", "attention_mask"), TOKENS)


def test_a_model_of_ones_own_that_fills_nothing_in_is_traced_with_all_inputs(tmp_path):
    config = transformers.BertConfig(**TINY["bert"])
    model = models.WithNothingFilledIn(config).eval()
    options = TransformersOptions(format="torchscript", sequence_length=8)

    report = export(model, MaskedTextOnnxConfig(config), tmp_path / "out", options)

    assert report.is_right
    program = TorchScriptModel.from_file(str(tmp_path / "out" / "model.ts.pt")).program
    with pytest.raises(RuntimeError, match="missing value for argument 'attention_mask'"):
        program(torch.ones((1, 8), dtype=torch.int64))


def test_an_output_of_weights_that_are_missing_is_left_out(tmp_path):
    tiny_model("bert", "masked-lm", one_layer=True).save_pretrained(tmp_path / "bert")
    options = TransformersOptions(format="torchscript", sequence_length=8)

    report = export_checkpoint(str(tmp_path / "bert"), "default", tmp_path / "out", options)

    (file,) = report.files
    assert [each.name for each in file.outputs] == ["last_hidden_state"]
    assert "It gives no 'pooler_output', whose weights are missing." in file.notes


def test_a_trace_of_all_outputs_is_checked_with_them(traced_bert, tmp_path):
    model, _, file = traced_bert
    model.save_pretrained(tmp_path)

    report = check_export(file, str(tmp_path))

    assert (report.feature, report.is_right) == ("default", True)
    assert len(report.files[0].outputs) == 2
