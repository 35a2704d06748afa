"""The weights of a file are those of the model: rows of tokens that are in no case as well."""

import numpy as np
import onnx
import pytest

from partwise.errors import ExportMismatchError
from partwise.exports.proof.judge import judge
from partwise.transformers import validate_model_outputs
from partwise.transformers.export import export
from partwise.transformers.feature_choice import config_for
from partwise.transformers.options import TransformersOptions
from partwise.transformers.proof import expect, judge_file
from tests.lazily import Lazily
from tests.transformers.tiny_models import TINY

torch, transformers = Lazily("torch"), Lazily("transformers")

TOKENS = 5000


@pytest.fixture(scope="module", params=["auto", pytest.param("always", marks=pytest.mark.slow)])
def exported(request, tmp_path_factory):
    """A BERT of more tokens than cases hold, with its weights in the file and beside it."""
    torch.manual_seed(0)
    changed = {"vocab_size": TOKENS, "num_hidden_layers": 1}
    model = transformers.BertModel(transformers.BertConfig(**TINY["bert"] | changed)).eval()
    config = config_for(model.config, "default")
    folder = tmp_path_factory.mktemp("bert")
    options = TransformersOptions(external_data=request.param)
    report = export(model, config, folder, options)
    return model, config, folder, report, expect(model, config, options, report.opset)


def change_table(folder, to, change):
    """Copy a file with another table of tokens, its weights in the file."""
    model = onnx.load(folder / "model.onnx")
    (table,) = (t for t in model.graph.initializer if t.name.endswith("word_embeddings.weight"))
    values = onnx.numpy_helper.to_array(table).copy()
    change(values)
    table.CopyFrom(onnx.numpy_helper.from_array(values, table.name))
    onnx.save(model, to)
    return str(to)


def unused_token(expected):
    used = np.concatenate([case.feeds["input_ids"].reshape(-1) for case in expected.cases])
    return int(np.setdiff1d(np.arange(TOKENS), used)[100])


def test_every_number_of_a_file_is_proved_and_counted(exported):
    model, _, _, report, _ = exported
    metrics = report.files[0].metrics
    assert metrics["export_weights_proved"] == metrics["export_weights"] > 10
    assert metrics["export_weight_values_proved"] == metrics["export_weight_values"]
    assert metrics["export_weight_values"] > model.embeddings.word_embeddings.weight.numel()
    assert not any("initializers" in note for note in report.files[0].notes)


@pytest.mark.parametrize("difference", ["1e-3", "1 ulp", "another row", "zeros"])
def test_a_row_of_a_token_that_no_case_holds_may_not_differ(exported, tmp_path, difference):
    model, config, folder, _, expected = exported
    token = unused_token(expected)

    def change(values):
        match difference:
            case "1e-3":
                values[token, 3] += 1e-3
            case "1 ulp":
                values[token, 3] = np.nextafter(values[token, 3], np.float32(9))
            case "another row":
                values[token] = values[token + 1]
            case "zeros":
                values[token] = 0

    file = change_table(folder, tmp_path / "changed.onnx", change)

    assert judge(file, expected.expectation, expected.cases).findings == ()
    (finding,) = judge_file(file, model, expected).findings
    assert finding.check == "weights"
    assert f"({token}, " in finding.message
    with pytest.raises(ExportMismatchError, match=r"embeddings\.word_embeddings\.weight") as caught:
        validate_model_outputs(config, model, file)
    assert caught.value.check == "weights"


def test_a_file_of_the_same_weights_is_right_whoever_wrote_it(exported, tmp_path):
    model, _, folder, _, expected = exported
    file = change_table(folder, tmp_path / "same.onnx", lambda _: None)

    assert judge_file(file, model, expected).findings == ()


def test_a_file_that_cannot_be_read_has_no_weights_to_prove(exported, tmp_path):
    model, _, _, _, expected = exported
    (tmp_path / "broken.onnx").write_bytes(b"no model")

    (finding,) = judge_file(str(tmp_path / "broken.onnx"), model, expected).findings

    assert finding.check == "load"
