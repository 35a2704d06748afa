"""What the guides of transformers 4 do with `transformers.onnx`, from `partwise.transformers`."""

from collections import OrderedDict
from pathlib import Path

import numpy as np
import onnx
import pytest

from partwise.errors import (
    CheckpointError,
    ExportMismatchError,
    InputError,
    UnknownFeatureError,
    UnknownModelTypeError,
)
from partwise.exports.torch.graph import strip
from partwise.models.signature import METADATA_KEY
from partwise.transformers import (
    ARCHITECTURES,
    FeaturesManager,
    OnnxConfig,
    TransformersOptions,
    export,
    validate_model_outputs,
)
from tests.lazily import Lazily
from tests.transformers.tiny_checkpoints import save_checkpoint, save_tokenizer

transformers, torch = Lazily("transformers"), Lazily("torch")
onnxruntime = Lazily("onnxruntime")

CLASSIFIER = "sequence-classification"


class OwnDistilBertOnnxConfig(OnnxConfig):
    """As the guide writes it, but for a shorter way to two equal entries."""

    @property
    def inputs(self):
        axes = {0: "batch", 1: "sequence"}
        return OrderedDict([("input_ids", axes), ("attention_mask", axes)])


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("guides") / "local-pt-checkpoint"
    save_checkpoint(folder, "distilbert", CLASSIFIER)
    save_tokenizer(folder)
    return folder


@pytest.fixture(scope="module")
def exported(checkpoint):
    """The lines of "exporting a model for an unsupported architecture", and what they made."""
    onnx_path = checkpoint.parent / "model.onnx"
    config = transformers.AutoConfig.from_pretrained(checkpoint)
    onnx_config = OwnDistilBertOnnxConfig(config, task=CLASSIFIER)
    base_model = transformers.AutoModelForSequenceClassification.from_pretrained(checkpoint)
    tokenizer = transformers.AutoTokenizer.from_pretrained(checkpoint)

    onnx_inputs, onnx_outputs = export(
        tokenizer, base_model, onnx_config, onnx_config.default_onnx_opset, onnx_path
    )

    return onnx_config, tokenizer, base_model, onnx_path, onnx_inputs, onnx_outputs


def test_the_features_of_an_architecture_are_listed():
    distilbert_features = list(
        FeaturesManager.get_supported_features_for_model_type("distilbert").keys()
    )

    assert distilbert_features == list(ARCHITECTURES["distilbert"].features)
    assert set(distilbert_features) < set(FeaturesManager.AVAILABLE_FEATURES)
    assert FeaturesManager.feature_to_task("causal-lm-with-past") == "causal-lm"
    auto = FeaturesManager.get_model_class_for_feature("seq2seq-lm-with-past")
    assert auto is transformers.AutoModelForSeq2SeqLM


def test_outputs_are_read_from_the_configuration_of_an_architecture():
    from partwise.transformers import DistilBertOnnxConfig, GPT2OnnxConfig

    onnx_config = DistilBertOnnxConfig(transformers.DistilBertConfig())
    assert list(onnx_config.outputs.keys()) == ["last_hidden_state"]
    with_past = GPT2OnnxConfig.with_past(transformers.GPT2Config(n_layer=1), task="causal-lm")
    assert list(with_past.outputs) == ["logits", "present.0.key", "present.0.value"]
    with pytest.raises(ImportError, match="LlamaOnnxConfig"):
        from partwise.transformers import LlamaOnnxConfig  # noqa: F401


def test_a_model_is_loaded_for_a_feature_and_finds_its_configuration(checkpoint):
    framework = FeaturesManager.determine_framework(str(checkpoint))
    model = FeaturesManager.get_model_from_feature(CLASSIFIER, str(checkpoint), framework=framework)
    model_kind, model_onnx_config = FeaturesManager.check_supported_model_or_raise(
        model, feature=CLASSIFIER
    )
    onnx_config = model_onnx_config(model.config)

    assert (framework, model_kind) == ("pt", "distilbert")
    assert type(model) is transformers.DistilBertForSequenceClassification
    assert (onnx_config.task, list(onnx_config.outputs)) == (CLASSIFIER, ["logits"])


@pytest.mark.parametrize(
    ("call", "arguments", "error", "message"),
    [
        ("get_supported_features_for_model_type", ("llama",), UnknownModelTypeError, "albert"),
        ("get_config", ("bert", "seq2seq-lm"), UnknownFeatureError, "masked-lm"),
        ("get_model_class_for_feature", ("default", "tf"), InputError, "has torch only"),
        ("determine_framework", ("bert", "jax"), InputError, "'jax' is not there"),
        ("get_model_from_feature", ("default", "bert", "pt", "c"), InputError, "HF_HUB_CACHE"),
    ],
)
def test_what_there_is_not_is_said_as_elsewhere(call, arguments, error, message):
    with pytest.raises(error, match=message):
        getattr(FeaturesManager, call)(*arguments)


def test_a_folder_without_weights_of_torch_has_no_framework(tmp_path):
    with pytest.raises(CheckpointError, match="has no weights"):
        FeaturesManager.determine_framework(str(tmp_path))


def test_the_file_of_the_guides_lines_runs(exported):
    _, tokenizer, base_model, onnx_path, onnx_inputs, onnx_outputs = exported
    assert (onnx_inputs, onnx_outputs) == (["input_ids", "attention_mask"], ["logits"])
    onnx.checker.check_model(onnx.load(onnx_path))

    session = onnxruntime.InferenceSession(onnx_path)
    inputs = tokenizer("Using DistilBERT with ONNX Runtime!", return_tensors="np")
    feeds = {name: inputs[name].astype(np.int64) for name in onnx_inputs}
    (logits,) = session.run(output_names=["logits"], input_feed=feeds)

    own = base_model(**{name: torch.tensor(values) for name, values in feeds.items()}).logits
    np.testing.assert_allclose(logits, own.detach().numpy(), rtol=1e-4, atol=1e-5)


def test_the_guides_line_validates_files_of_any_writer(exported, tmp_path):
    onnx_config, tokenizer, base_model, onnx_path, _, onnx_outputs = exported
    validate_model_outputs(
        onnx_config, tokenizer, base_model, onnx_path, onnx_outputs, onnx_config.atol_for_validation
    )

    foreign = onnx.load(onnx_path)
    strip(foreign)
    assert METADATA_KEY not in {entry.key for entry in foreign.metadata_props}
    onnx.save(foreign, tmp_path / "foreign.onnx")
    arguments = (onnx_config, tokenizer, base_model, tmp_path / "foreign.onnx", onnx_outputs, 1e-5)
    assert "partwise did not write it" in " ".join(validate_model_outputs(*arguments).notes)

    weight = next(each for each in foreign.graph.initializer if ".classifier.w" in each.name)
    spoilt = onnx.numpy_helper.to_array(weight) + np.float32(0.25)
    weight.CopyFrom(onnx.numpy_helper.from_array(spoilt, weight.name))
    onnx.save(foreign, tmp_path / "foreign.onnx")
    with pytest.raises(ExportMismatchError, match="'logits' differs"):
        validate_model_outputs(*arguments)
    with pytest.raises(InputError, match=r"gives no 'scores' .* its outputs are 'logits'"):
        validate_model_outputs(*arguments[:4], ["scores"], 1e-5)


def test_both_orders_of_arguments_are_taken_by_name_too(exported, tmp_path):
    onnx_config, tokenizer, base_model, *_ = exported

    names = export(
        preprocessor=tokenizer,
        model=base_model,
        config=onnx_config,
        opset=11,
        output=tmp_path / "old.onnx",
    )
    verdict = validate_model_outputs(
        onnx_config, base_model, str(tmp_path / "old.onnx"), TransformersOptions(), 11
    )

    assert names == (["input_ids", "attention_mask"], ["logits"])
    assert verdict.findings == ()


def test_what_the_tokenizer_makes_is_compared_on(exported, tmp_path):
    """One that makes tokens which the model does not know is found by that."""
    onnx_config, _, base_model, onnx_path, _, onnx_outputs = exported
    save_tokenizer(tmp_path, first_token=90)
    foreign = transformers.AutoTokenizer.from_pretrained(tmp_path)

    with pytest.raises(CheckpointError, match="they do not belong together"):
        validate_model_outputs(onnx_config, foreign, base_model, onnx_path, onnx_outputs, None)
    with pytest.raises(InputError, match="a preprocessor or a tokenizer, not both"):
        export(foreign, base_model, onnx_config, 18, tmp_path / "m.onnx", tokenizer=foreign)
    with pytest.raises(InputError, match="'cuda' is not taken"):
        export(foreign, base_model, onnx_config, 18, tmp_path / "m.onnx", device="cuda")


def test_dummy_inputs_are_asked_for_as_the_guides_do(exported):
    onnx_config, tokenizer, base_model, *_ = exported
    inputs = onnx_config.generate_dummy_inputs(tokenizer, framework="pt")
    assert {name: tuple(each.shape) for name, each in inputs.items()} == {
        "input_ids": (2, 8),
        "attention_mask": (2, 8),
    }
    assert base_model(**inputs).logits.shape[0] == 2
    by_place = onnx_config.generate_dummy_inputs(tokenizer, 3, 5, -1, False, "pt")
    by_name = onnx_config.generate_dummy_inputs(tokenizer, batch_size=3, seq_length=5)
    assert type(by_name["input_ids"]) is np.ndarray
    for found in (by_place, by_name):
        assert found["input_ids"].shape == (3, 5)
    with pytest.raises(InputError, match="'tf' is not there"):
        onnx_config.generate_dummy_inputs(tokenizer, framework="tf")


def test_a_past_is_asked_for_as_the_guides_do():
    from partwise.transformers import GPT2OnnxConfig

    config = transformers.GPT2Config(n_layer=1, n_embd=16, n_head=2)
    for onnx_config in (
        GPT2OnnxConfig(config, task="causal-lm", use_past=True),
        GPT2OnnxConfig(config, task="causal-lm-with-past", use_past=True),
        GPT2OnnxConfig.with_past(config, task="causal-lm"),
    ):
        assert (onnx_config.use_past, onnx_config.task) == (True, "causal-lm-with-past")
        found = onnx_config.generate_dummy_inputs(None, framework="pt")
        assert found["past_key_values.0.key"].shape == (2, 2, 5, 8)
    assert not GPT2OnnxConfig(config, task="causal-lm", use_past=False).use_past
