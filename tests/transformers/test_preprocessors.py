"""Preprocessors: what they make for a model is what it takes, or it is said why not."""

import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from partwise.errors import CheckpointError
from partwise.transformers.check import check_export
from partwise.transformers.checkpoint_export import export_checkpoint
from partwise.transformers.export import TransformersMismatchError
from partwise.transformers.feature_choice import config_for
from partwise.transformers.options import TransformersOptions
from partwise.transformers.preprocessors import CASE, make_real_inputs, real_inputs_of
from tests.lazily import Lazily
from tests.transformers.tiny_checkpoints import (
    save_checkpoint,
    save_image_processor,
    save_tokenizer,
)
from tests.transformers.tiny_models import TINY

transformers = Lazily("transformers")


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A tokenizer and an image processor for images of 32."""
    path = tmp_path_factory.mktemp("preprocessors")
    save_tokenizer(path)
    save_image_processor(path, 32)
    return path


def made(folder: Path, model_type: str, feature: str, preprocessor: str = "auto", **settings):
    name = model_type.replace("-", "_")
    model_config = transformers.AutoConfig.for_model(name, **TINY[model_type] | settings)
    config = config_for(model_config, feature)
    options = TransformersOptions(preprocessor=preprocessor)
    found = make_real_inputs(folder, config, options).by_case
    assert not found or list(found[CASE]) == list(config.inputs)
    return found.get(CASE)


@pytest.mark.parametrize("preprocessor", ["auto", "tokenizer"])
def test_two_sentences_are_padded(folder, preprocessor):
    feeds = made(folder, "bert", "sequence-classification", preprocessor)
    lengths = feeds["attention_mask"].sum(axis=1)
    assert lengths[0] < lengths[1] == feeds["input_ids"].shape[1]
    assert (feeds["input_ids"][0, lengths[0] :] == 1).all()
    assert len(np.unique(feeds["input_ids"][1])) > 9
    assert {values.dtype for values in feeds.values()} == {np.dtype(np.int64)}


def test_of_two_choices_each_has_a_text(folder):
    feeds = made(folder, "bert", "multiple-choice", "tokenizer")
    shapes = {values.shape for values in feeds.values()}
    assert len(shapes) == 1
    assert shapes.pop()[:2] == (2, 2)
    first, second = feeds["input_ids"][0]
    assert not np.array_equal(first, second)


def test_a_decoder_without_a_token_for_padding_gets_an_empty_past(tmp_path):
    save_tokenizer(tmp_path, pad_token=None)
    feeds = made(tmp_path, "gpt2", "causal-lm-with-past", "tokenizer")
    assert feeds["past_key_values.0.key"].shape == (2, 4, 0, 8)
    assert feeds["attention_mask"].shape == feeds["input_ids"].shape
    assert 0 < feeds["attention_mask"].mean() < 1


def test_a_decoder_gets_the_text_of_its_encoder(folder):
    feeds = made(folder, "bart", "seq2seq-lm", "tokenizer")
    assert np.array_equal(feeds["decoder_input_ids"], feeds["input_ids"])
    assert np.array_equal(feeds["decoder_attention_mask"], feeds["attention_mask"])


def test_what_goes_on_after_an_encoder_takes_no_text(folder):
    assert made(folder, "bart", "seq2seq-lm-with-past") is None


@pytest.mark.parametrize("preprocessor", ["auto", "image_processor", "feature_extractor"])
def test_images_have_the_size_of_their_processor(folder, preprocessor):
    feeds = made(folder, "vit", "image-classification", preprocessor)
    assert feeds["pixel_values"].shape == (2, 3, 32, 32)
    assert feeds["pixel_values"].dtype == np.float32
    assert feeds["pixel_values"].std() > 0.01


def test_text_and_images_are_made_together(folder):
    feeds = made(folder, "clip", "default")
    assert len(feeds["input_ids"]) == len(feeds["pixel_values"]) == 2
    assert feeds["input_ids"].shape[1] <= TINY["clip"]["text_config"]["max_position_embeddings"]


def test_the_one_input_of_perceiver_is_text_or_an_image(tmp_path):
    save_tokenizer(tmp_path)
    save_image_processor(tmp_path, 16)
    text = made(tmp_path, "perceiver", "masked-lm")
    assert text["inputs"].ndim == 2
    assert text["inputs"].dtype == np.int64
    image = made(tmp_path, "perceiver", "image-classification")
    assert image["inputs"].shape == (2, 3, 16, 16)


def test_auto_takes_nothing_where_nothing_is(tmp_path):
    assert made(tmp_path, "bert", "default") is None
    assert made(tmp_path, "vit", "default") is None


def test_none_takes_nothing_of_what_there_is(folder):
    assert made(folder, "bert", "default", "none") is None


@pytest.mark.parametrize(
    ("model_type", "preprocessor", "message"),
    [
        ("bert", "tokenizer", "There is no tokenizer in .*, such as"),
        ("vit", "image_processor", "There is no image processor in .*, such as"),
        ("clip", "processor", "The processor in .* cannot be read"),
        ("vit", "tokenizer", "vit takes no text for 'default', so its tokenizer has nothing"),
        ("bert", "image_processor", "bert takes no images for 'default', so its image processor"),
    ],
)
def test_a_named_one_that_is_not_there_is_an_error(tmp_path, model_type, preprocessor, message):
    with pytest.raises(CheckpointError, match=message):
        made(tmp_path, model_type, "default", preprocessor)


def test_tokens_beyond_the_vocabulary_are_refused(tmp_path):
    save_tokenizer(tmp_path, first_token=200)
    with pytest.raises(CheckpointError, match=r"makes tokens up to 2\d\d, but the model knows 99 "):
        made(tmp_path, "bert", "default")


def test_images_of_another_size_are_refused_where_it_is_fixed(folder):
    message = r"makes images of \(3, 32, 32\), but the model takes \(3, 64, 64\)"
    with pytest.raises(CheckpointError, match=message):
        made(folder, "levit", "default")


def test_a_broken_one_is_no_error_unless_it_is_named(folder, tmp_path):
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    (tmp_path / "tokenizer.json").write_text("{")
    assert made(tmp_path, "bert", "default") is None
    feeds = made(tmp_path, "clip", "default")
    assert feeds["pixel_values"].shape == (2, 3, 32, 32)
    with pytest.raises(CheckpointError, match=r"The tokenizer in .* cannot be read"):
        made(tmp_path, "bert", "default", "tokenizer")


@pytest.mark.slow
def test_a_broken_one_is_told_with_the_report(tmp_path):
    folder = tmp_path / "bert"
    save_checkpoint(folder, "bert", "default")
    save_tokenizer(folder)
    (folder / "tokenizer.json").write_text("{")
    file = tmp_path / "made.onnx"
    message = rf"Compared on random text only\. The tokenizer in {folder} cannot be read: \S.*\."
    # From a trace, which is sooner made.
    told = [
        export_checkpoint(str(folder), "default", file, TransformersOptions(opset=17)),
        check_export(file, str(folder)),
    ]
    exact = TransformersOptions(opset=17, atol=0, rtol=0)
    with pytest.raises(TransformersMismatchError) as caught:
        export_checkpoint(str(folder), "default", file, exact)
    for report in (*told, caught.value.report):
        assert "preprocessed" not in report.files[0].cases
        assert [note for note in report.files[0].notes if re.fullmatch(message, note)]


def test_the_tokenizer_of_a_caller_stays_without_a_token_for_padding(tmp_path):
    save_tokenizer(tmp_path, pad_token=None)
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path)
    config = config_for(transformers.GPT2Config(**TINY["gpt2"]), "causal-lm")

    (feeds,) = real_inputs_of(tokenizer, config).by_case.values()

    assert 0 < feeds["attention_mask"].mean() < 1, "it padded a row"
    assert tokenizer.pad_token is None
