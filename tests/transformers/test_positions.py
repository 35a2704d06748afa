"""Positions: every row of a model's table of positions is needed for some case."""

import numpy as np
import onnx
import pytest

from partwise.errors import ExportRefusedError
from partwise.exports.proof.judge import judge
from partwise.transformers import positions
from partwise.transformers.export import export
from partwise.transformers.feature_choice import config_for
from partwise.transformers.options import TransformersOptions
from partwise.transformers.positions import long_texts, most_tokens
from partwise.transformers.proof import expect
from tests.lazily import Lazily
from tests.transformers.tiny_models import TINY, tiny_model

torch, transformers = Lazily("torch"), Lazily("transformers")

PLACES = 64


def small_gpt2():
    torch.manual_seed(0)
    config = transformers.GPT2Config(**TINY["gpt2"] | {"n_layer": 1})
    return transformers.GPT2LMHeadModel(config).eval()


@pytest.fixture(
    scope="module",
    params=["causal-lm", pytest.param("causal-lm-with-past", marks=pytest.mark.slow)],
)
def exported(request, tmp_path_factory):
    """The file of a GPT-2, and what it has to be."""
    model = small_gpt2()
    config = config_for(model.config, request.param)
    folder = tmp_path_factory.mktemp("gpt2")
    report = export(model, config, folder)
    assert report.files[0].metrics["export_most_tokens"] == PLACES
    assert report.files[0].metrics["export_longest_text"] == PLACES
    return folder / "model.onnx", expect(model, config, TransformersOptions(), report.opset)


def change_positions(file, to, change):
    """Copy a file with other rows in its table of positions."""
    model = onnx.load(file)
    (table,) = (each for each in model.graph.initializer if each.name.endswith("wpe.weight"))
    values = onnx.numpy_helper.to_array(table).copy()
    change(values)
    table.CopyFrom(onnx.numpy_helper.from_array(values, table.name))
    onnx.save(model, to)
    return str(to)


@pytest.mark.parametrize("rows", [slice(56, 64), 63, 62, 33, 32, 31, 1, 0], ids=str)
def test_other_positions_are_found_wherever_they_stand(exported, tmp_path, rows):
    file, expected = exported

    def change(values):
        values[rows] = np.random.default_rng(0).standard_normal(values[rows].shape)

    changed = change_positions(file, tmp_path / "changed.onnx", change)

    assert {each.check for each in _judge(expected, changed).findings} == {"values"}


def _judge(expected, file):
    return judge(file, expected.expectation, expected.cases)


@pytest.mark.parametrize(
    ("model_type", "feature", "most"),
    [
        ("bert", "default", 64),
        ("roberta", "default", 62),
        ("gpt-neo", "default-with-past", 64),
        ("bart", "seq2seq-lm", 64),
        ("bart", "seq2seq-lm-with-past", 64),
        ("bart", "causal-lm-with-past", 64),
        ("clip", "default", 64),
    ],
)
def test_a_text_is_as_long_as_the_model_takes(model_type, feature, most):
    model = tiny_model(model_type, feature)
    config = config_for(model.config, feature)

    long = long_texts(model, config, TransformersOptions())

    assert most_tokens(model) == most
    assert long.metrics == {"export_longest_text": most, "export_most_tokens": most}
    assert long.notes == ()
    reached = {_last_position(case, config) for case in long.cases}
    assert most in reached
    if "with-past" in feature:
        assert len(long.cases) == 3


def _last_position(case, config):
    """Return how many tokens a case has, with earlier ones."""
    mask = "decoder_attention_mask" if "decoder_input_ids" in config.inputs else "attention_mask"
    return case.feeds[mask].shape[1]


def test_a_model_of_any_number_of_tokens_is_compared_on_300_or_as_many_as_are_wanted():
    model = tiny_model("t5", "seq2seq-lm")
    config = config_for(model.config, "seq2seq-lm")

    usual = long_texts(model, config, TransformersOptions())
    longer = long_texts(model, config, TransformersOptions(longest_text=400))

    assert (usual.metrics, usual.notes) == ({"export_longest_text": 300}, ())
    assert longer.cases[0].feeds["input_ids"].shape == (1, 400)


def test_a_shorter_text_is_told_of(monkeypatch):
    model = small_gpt2()
    config = config_for(model.config, "causal-lm-with-past")

    wanted = long_texts(model, config, TransformersOptions(longest_text=20))
    monkeypatch.setattr(positions, "CASE_BYTES", 2e5)
    monkeypatch.setattr(positions, "LONG_TEXT", 10)
    affordable = long_texts(model, config, TransformersOptions())

    assert wanted.metrics == {"export_longest_text": 20, "export_most_tokens": 64}
    assert "up to 20 of the 64 tokens that it takes" in wanted.notes[0]
    assert 10 <= affordable.metrics["export_longest_text"] < 64
    assert "of the 64 tokens" in affordable.notes[0]


def test_places_that_a_model_keeps_for_itself_are_found_by_trying():
    model = tiny_model("roberta", "default")
    for part in model.modules():
        if isinstance(part, torch.nn.Embedding):
            part.padding_idx = None
    assert most_tokens(model) == 64

    long = long_texts(model, config_for(model.config, "default"), TransformersOptions())

    assert long.metrics["export_longest_text"] == 62


def test_a_model_that_fails_on_as_many_tokens_as_it_says_is_refused():
    model = small_gpt2()
    model.config.n_positions = 128

    with pytest.raises(
        ExportRefusedError,
        match=r"GPT2LMHeadModel does not run on 128 tokens.* Correct max_position",
    ):
        long_texts(model, config_for(model.config, "causal-lm"), TransformersOptions())


def test_a_file_of_m2m_100_says_where_it_ends():
    model = tiny_model("m2m-100", "seq2seq-lm")

    long = long_texts(model, config_for(model.config, "seq2seq-lm"), TransformersOptions())

    assert "The file fails on more than 64 tokens, where the model itself" in long.notes[0]
