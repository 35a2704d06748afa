"""ONNX files of opsets 11 to 17, which are written from a trace."""

from itertools import product

import onnx
import pytest

from partwise.errors import ExportRefusedError
from partwise.transformers.export import export
from partwise.transformers.feature_choice import config_for
from partwise.transformers.flat_model import run_model
from partwise.transformers.options import TransformersOptions
from partwise.transformers.patches import patched
from partwise.transformers.sizes import Sizes
from partwise.transformers.traced_onnx import attend_plainly, trace_onnx
from tests.lazily import Lazily
from tests.transformers.tiny_models import tiny_model

torch = Lazily("torch")
numpy = Lazily("numpy")


@pytest.mark.parametrize(
    ("model_type", "feature", "opset"),
    [
        ("bert", "default", 11),
        pytest.param("gpt2", "causal-lm-with-past", 11, marks=pytest.mark.slow),
        pytest.param("data2vec-vision", "image-classification", 13, marks=pytest.mark.slow),
        pytest.param("t5", "seq2seq-lm-with-past", 12, marks=pytest.mark.slow),
        pytest.param("whisper", "speech2seq-lm", 17, marks=pytest.mark.slow),
    ],
)
def test_a_file_of_an_older_opset_is_proved_as_any_other(model_type, feature, opset, tmp_path):
    model = tiny_model(model_type, feature, one_layer="past" not in feature)

    report = export(
        model, config_for(model.config, feature), tmp_path, TransformersOptions(opset=opset)
    )

    assert report.opset == opset
    (entry,) = onnx.load(tmp_path / "model.onnx").opset_import
    assert (entry.domain, entry.version) == ("", opset)
    for file in report.files:
        assert f"Opset {opset} was written from a trace" in " ".join(file.notes)
        assert file.metrics["export_max_abs_diff"] < 1e-5
        assert file.metrics["export_weights_proved"] == file.metrics["export_weights"]
    if feature.endswith("lm-with-past"):
        assert report.files[-1].metrics["export_generated_tokens"] == 8


def test_what_an_opset_has_no_operator_for_is_refused_in_one_line(capfd, tmp_path):
    model = tiny_model("t5", "seq2seq-lm", one_layer=True)

    with pytest.raises(
        ExportRefusedError, match=r"T5\w+ for 'seq2seq-lm' with opset 11: .*Min.*Choose 18 or more"
    ) as refused:
        trace_onnx(model, config_for(model.config, "seq2seq-lm"), 11, tmp_path)

    assert "\n" not in str(refused.value)
    assert tuple(capfd.readouterr()) == ("", "")


def test_an_operator_that_is_not_there_prints_no_graph(capfd, tmp_path):
    model = tiny_model("perceiver", "masked-lm")
    config = config_for(model.config, "masked-lm")

    with pytest.raises(ExportRefusedError, match="with opset 7: "):
        trace_onnx(model, config, 7, tmp_path)

    assert tuple(capfd.readouterr()) == ("", "")


@pytest.mark.parametrize(
    ("mask", "is_causal", "heads"),
    [
        (None, False, 4),
        ("bool", False, 4),
        ("float", False, 4),
        (None, True, 4),
        ("bool", False, 2),
    ],
)
def test_plain_attention_gives_what_torchs_does(mask, is_causal, heads):
    random = torch.Generator().manual_seed(0)
    query = torch.randn(2, 4, 5, 8, generator=random)
    key, value = torch.randn(2, 2, heads, 7, 8, generator=random)
    given = None
    if mask:
        given = torch.rand(2, 1, 5, 7, generator=random) > 0.4
        # Of a token that sees none: zeros.
        given[1, 0, 2] = False
    if mask == "float":
        given = torch.randn(2, 1, 5, 7, generator=random)
    options = {"attn_mask": given, "is_causal": is_causal, "enable_gqa": heads == 2, "scale": 0.3}

    expected = torch.nn.functional.scaled_dot_product_attention(query, key, value, **options)

    torch.testing.assert_close(attend_plainly(query, key, value, **options), expected)


def test_longformer_by_masks_gives_what_it_gives_by_windows():
    model = tiny_model("longformer", "default")
    config = config_for(model.config, "default")
    for rows, length in product((1, 3), (1, 4, 13)):
        feeds = config.generate_dummy_inputs(Sizes(batch=rows, sequence=length), seed=length)
        expected = run_model(model, config, feeds)
        with patched():
            found = run_model(model, config, feeds)
        for name, values in expected.items():
            numpy.testing.assert_allclose(found[name], values, rtol=1e-4, atol=1e-5)
