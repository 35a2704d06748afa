"""BigBird, whose block-sparse attention no file has: refused, or made full where that is wanted."""

import pytest

from partwise.errors import ExportRefusedError
from partwise.transformers.checkpoint_export import export_checkpoint
from partwise.transformers.checkpoints import open_checkpoint
from partwise.transformers.export import export
from partwise.transformers.feature_choice import config_for
from partwise.transformers.options import TransformersOptions
from partwise.transformers.quiet import quiet
from tests.lazily import Lazily
from tests.transformers.tiny_models import TINY

torch, transformers = Lazily("torch"), Lazily("transformers")

SPARSE = {"attention_type": "block_sparse", "block_size": 4, "num_random_blocks": 1}
FULL = TransformersOptions(full_attention=True)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    """A BigBird that looks at blocks of texts of more than 28 tokens."""
    folder = tmp_path_factory.mktemp("big-bird")
    torch.manual_seed(0)
    config = transformers.BigBirdConfig(**TINY["big-bird"] | SPARSE | {"num_hidden_layers": 1})
    with quiet():
        transformers.BigBirdForMaskedLM(config).eval().save_pretrained(folder)
    return folder


def test_block_sparse_attention_is_refused_by_name(checkpoint, tmp_path):
    refused = (
        r"The big_bird has attention_type='block_sparse', which cannot be exported\. For texts of "
        r"up to 28 tokens .*pass full_attention=True \(--full-attention\)"
    )
    with pytest.raises(ExportRefusedError, match=refused):
        export_checkpoint(str(checkpoint), "masked-lm", tmp_path / "out")
    model = transformers.BigBirdForMaskedLM.from_pretrained(checkpoint)
    with pytest.raises(ExportRefusedError, match=refused):
        export(model, config_for(model.config, "masked-lm"), tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_full_attention_is_a_wish_that_the_report_tells_of(checkpoint):
    found = open_checkpoint(str(checkpoint), "masked-lm", FULL)
    sparse = transformers.BigBirdForMaskedLM.from_pretrained(checkpoint).eval()

    assert found.model.config.attention_type == "original_full"
    (note,) = found.notes
    assert "texts of more than 28 tokens it gives other values" in note
    tokens = torch.arange(4, 36)[None]
    with torch.no_grad(), quiet():
        assert not torch.allclose(found.model(tokens).logits, sparse(tokens).logits, atol=1e-4)
        short = tokens[:, :28]
        torch.testing.assert_close(found.model(short).logits, sparse(short).logits)


@pytest.mark.slow
def test_a_file_of_full_attention_is_proved_up_to_the_last_position(checkpoint, tmp_path):
    # From a trace, which is sooner made and proved alike.
    options = TransformersOptions(full_attention=True, opset=17)
    report = export_checkpoint(str(checkpoint), "masked-lm", tmp_path / "out", options)

    (file,) = report.files
    assert file.metrics["export_longest_text"] == 64
    assert [note for note in file.notes if "full_attention" in note]


def test_other_models_need_no_wish(tmp_path):
    transformers.BertModel(transformers.BertConfig(**TINY["bert"])).save_pretrained(tmp_path)

    assert open_checkpoint(str(tmp_path), "default", FULL).notes == ()
