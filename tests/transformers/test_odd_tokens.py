"""Tokens that a model has no row for: where it raises, its file fails too."""

import numpy as np
import pytest

from partwise.models.onnx_model import OnnxModel
from partwise.transformers.export import export
from partwise.transformers.feature_choice import config_for
from partwise.transformers.options import TransformersOptions
from tests.lazily import Lazily
from tests.transformers.tiny_models import TINY

torch, transformers = Lazily("torch"), Lazily("transformers")


@pytest.fixture(scope="module")
def bert():
    torch.manual_seed(0)
    config = transformers.BertConfig(**TINY["bert"] | {"num_hidden_layers": 1})
    return transformers.BertModel(config).eval()


@pytest.mark.parametrize(
    "options", [{}, pytest.param({"external_data": "always"}, marks=pytest.mark.slow)], ids=str
)
def test_a_file_fails_on_tokens_that_its_model_does_not_know(bert, tmp_path, options):
    config = config_for(bert.config, "default")

    report = export(bert, config, tmp_path, TransformersOptions(**options))

    (file,) = report.files
    assert file.metrics["export_cases_raising"] == 4
    assert file.metrics["export_weights_proved"] == file.metrics["export_weights"]
    assert any("refuses values below 0 in 'input_ids'" in note for note in file.notes)
    model = OnnxModel.from_file(str(tmp_path / "model.onnx"))
    feeds = config.generate_dummy_inputs(config.sizes_for_export)
    assert np.isfinite(model.run(feeds)["last_hidden_state"]).all()
    for name, value in (("input_ids", -1), ("input_ids", 99), ("token_type_ids", -1)):
        odd = {**feeds, name: feeds[name].copy()}
        odd[name][1, 2] = value
        with pytest.raises(Exception, match=r"(?i)out of|refuse"):
            model.run(odd)
