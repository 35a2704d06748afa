"""Architectures that are not in the table: configurations of one's own."""

from importlib import import_module
from typing import ClassVar

import numpy as np
import pytest

from partwise.errors import ExportRefusedError, InputError, OpsetError, UnknownFeatureError
from partwise.models.onnx_model import OnnxModel
from partwise.transformers import (
    OnnxConfig,
    OnnxConfigWithPast,
    TransformersMismatchError,
    TransformersOptions,
    architecture_of,
    config_for,
    export,
    validate_model_outputs,
)
from partwise.transformers.patches import patched, shift_tokens_right
from tests.lazily import Lazily
from tests.transformers.tiny_models import TINY

torch, transformers = Lazily("torch"), Lazily("transformers")

pytestmark = pytest.mark.slow  # many models

TOKENS = {0: "batch", 1: "sequence"}


class TimesOnnxConfig(OnnxConfig):
    """Of a model that forecasts numbers: an input that no built-in one knows how to make."""

    @property
    def inputs(self):
        return {"past_values": {0: "batch"}}

    @property
    def outputs(self):
        return {"prediction_outputs": {0: "batch"}}

    def generate_dummy_inputs(self, sizes, seed=0):
        random = np.random.default_rng(seed)
        shape = (sizes.batch, self.config.context_length, self.config.num_input_channels)
        return {"past_values": random.standard_normal(shape, np.float32)}


@pytest.fixture(scope="module")
def forecaster():
    torch.manual_seed(0)
    config = transformers.PatchTSMixerConfig(
        context_length=32,
        prediction_length=4,
        patch_length=8,
        patch_stride=8,
        num_layers=1,
        d_model=8,
    )
    return transformers.PatchTSMixerForPrediction(config).eval()


def test_a_configuration_of_ones_own_is_all_that_another_architecture_needs(forecaster, tmp_path):
    config = TimesOnnxConfig.from_model_config(forecaster.config)

    report = export(forecaster, config, tmp_path / "out")
    verdict = validate_model_outputs(config, forecaster, str(tmp_path / "out" / "model.onnx"))

    assert report.files[0].inputs == ("past_values",)
    assert report.is_right
    assert verdict.metrics["export_values"] > 0


def test_a_tolerance_of_ones_own_decides(forecaster, tmp_path):
    config = TimesOnnxConfig.from_model_config(forecaster.config)
    options = TransformersOptions(atol=0, rtol=0)

    with pytest.raises(
        TransformersMismatchError, match="'prediction_outputs' differs in"
    ) as caught:
        export(forecaster, config, tmp_path / "out", options)

    (file,) = caught.value.report.files
    (output,) = file.outputs
    assert "allowed is 0: 0 + 0 * |expected|" in output.findings[0]
    assert "from what it gives in double precision" in file.notes[0], "what arithmetic allows for"
    assert list(tmp_path.iterdir()) == []


def test_a_decoder_that_shares_heads_needs_no_configuration_of_ones_own(tmp_path):
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=99,
        hidden_size=32,
        intermediate_size=37,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=64,
    )
    model = transformers.LlamaForCausalLM(config).eval()

    report = export(model, OnnxConfigWithPast.with_past(config, "causal-lm"), tmp_path / "out")

    assert report.files[0].metrics["export_generated_tokens"] == 8
    assert "past_key_values.1.value" in report.files[0].inputs


def test_tolerances_can_be_overridden_in_every_way():
    class ByAttribute(TimesOnnxConfig):
        atol_for_validation = 0.5

    class ByProperty(TimesOnnxConfig):
        @property
        def atol_for_validation(self):
            return 0.25

    config = transformers.PatchTSMixerConfig()
    assert ByAttribute(config).atol_for_validation == 0.5
    assert ByProperty(config).atol_for_validation == 0.25
    assert TimesOnnxConfig(config).atol_for_validation is None
    assert TimesOnnxConfig(config).scaled_for_validation == 5e-5


def test_an_axis_that_nobody_knows_is_named():
    class Unknown(OnnxConfig):
        @property
        def inputs(self):
            return {"input_ids": {0: "batch", 1: "seq_len"}}

    config = Unknown(transformers.BertConfig())
    with pytest.raises(InputError, match=r"no axis 'seq_len': choose one of batch, choice, seq"):
        config.generate_dummy_inputs(config.sizes_for_export)


def test_a_model_without_a_padding_token_classifies_as_it_does_by_itself(tmp_path):
    torch.manual_seed(0)
    config = transformers.GPT2Config(
        vocab_size=99, n_positions=64, n_embd=32, n_layer=1, n_head=4, num_labels=3
    )
    model = transformers.GPT2ForSequenceClassification(config).eval()

    export(model, config_for(config, "sequence-classification"), tmp_path / "out")

    tokens = np.array([[5, 7, 0, 0]])
    feeds = {"input_ids": tokens, "attention_mask": np.ones_like(tokens)}
    given = OnnxModel.from_file(str(tmp_path / "out" / "model.onnx")).run(feeds)
    own = model(**{name: torch.tensor(values) for name, values in feeds.items()})
    np.testing.assert_allclose(given["logits"], own.logits.detach().numpy(), atol=1e-5)
    assert model.config.pad_token_id is None


def test_a_model_of_half_precision_is_refused(tmp_path):
    model = transformers.BertModel(transformers.BertConfig(num_hidden_layers=1, hidden_size=12))
    config = config_for(model.config, "default")

    with pytest.raises(
        ExportRefusedError, match=r"BertModel has weights of torch\.float16: export mod"
    ):
        export(model.half(), config, str(tmp_path / "out"))


@pytest.mark.parametrize("family", ["mbart", "plbart"])
def test_tokens_are_shifted_as_the_library_does_it(family):
    module = import_module(f"transformers.models.{family}.modeling_{family}")
    tokens = torch.tensor([[5, 6, 7, 2], [5, 2, 1, 1], [8, -100, 2, 1]])
    original = module.shift_tokens_right

    torch.testing.assert_close(shift_tokens_right(tokens, 1), original(tokens, 1))
    with patched():
        assert module.shift_tokens_right is shift_tokens_right
    assert module.shift_tokens_right is original


def test_a_patched_activation_gives_what_the_library_gives():
    module = import_module("transformers.models.bloom.modeling_bloom")
    values = torch.linspace(-4, 4, 50)
    original = module.BloomGelu()(values)

    with patched():
        torch.testing.assert_close(module.BloomGelu()(values), original, rtol=0, atol=0)


def test_an_input_that_nobody_knows_how_to_make_is_named():
    class Unknown(OnnxConfig):
        default_onnx_opset: ClassVar[int] = 19

        @property
        def inputs(self):
            return {"smell": TOKENS}

    config = Unknown(transformers.BertConfig())
    with pytest.raises(InputError, match=r"'smell' is not known.*Override generate_dummy_inputs"):
        config.generate_dummy_inputs(config.sizes_for_export)


def test_look_ups_name_what_there_is():
    assert architecture_of("gpt_neo") is architecture_of("gpt-neo")
    with pytest.raises(InputError, match=r"'llama' is not in the table.*albert, bart.*OnnxConfig"):
        architecture_of("llama")
    with pytest.raises(UnknownFeatureError, match=r"ViT .* choose 'default', 'image-class"):
        config_for(transformers.ViTConfig(), "causal-lm")
    with pytest.raises(
        UnknownFeatureError, match=r"no feature 'fill-mask': choose one of 'default'"
    ):
        config_for(transformers.BertConfig(), "fill-mask")


def test_an_opset_that_does_not_suffice_is_refused_before_any_work(tmp_path):
    model = transformers.BertModel(transformers.BertConfig(num_hidden_layers=1, hidden_size=12))
    config = config_for(model.config, "default")

    with pytest.raises(OpsetError, match="Opset 10 is not sufficient for bert: choose one from 11"):
        export(model, config, tmp_path / "out", TransformersOptions(opset=10))
    with pytest.raises(
        OpsetError, match="Opset 99 cannot be written for bert: choose one from 11 to 25"
    ):
        export(model, config, tmp_path / "out", TransformersOptions(opset=99))
    assert list(tmp_path.iterdir()) == []


def test_a_logit_near_zero_is_judged_by_the_size_of_the_others(tmp_path):
    """Of an untied T5 one of 29,700 logits differs by 1.2e-5 where |expected| is almost 0."""
    torch.manual_seed(0)
    config = transformers.T5Config(**TINY["t5"], tie_word_embeddings=False)
    model = transformers.T5ForConditionalGeneration(config).eval()

    # From a trace, which is sooner made.
    options = TransformersOptions(opset=17)
    report = export(model, config_for(config, "seq2seq-lm"), tmp_path / "out", options)

    assert report.files[0].metrics["export_max_abs_diff"] < 1e-4


def test_outputs_that_hardly_vary_are_refused(forecaster, tmp_path):
    config = TimesOnnxConfig.from_model_config(forecaster.config)
    with pytest.raises(TransformersMismatchError, match="less than 2 times what is allowed"):
        export(forecaster, config, tmp_path / "out", TransformersOptions(atol=1e3))
