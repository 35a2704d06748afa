"""Hugging Face models as files that run without transformers, each proved before it is kept.

The library's own exporters capture the graph. What stands here is what transformers 5 dropped:
which architectures have which features, what a model takes and gives, inputs to capture and to
compare with, and the proof.
"""

from typing import Any

from partwise.transformers.architectures import ARCHITECTURES, Architecture
from partwise.transformers.calls_of_guides import export, validate_model_outputs
from partwise.transformers.checkpoint_export import export_checkpoint
from partwise.transformers.export import TransformersMismatchError
from partwise.transformers.feature_choice import architecture_of, config_for
from partwise.transformers.features import FEATURES, Feature, feature_of
from partwise.transformers.features_manager import FeaturesManager
from partwise.transformers.onnx_config import (
    OnnxConfig,
    OnnxConfigWithPast,
    OnnxSeq2SeqConfigWithPast,
)
from partwise.transformers.options import TransformersOptions
from partwise.transformers.report import ExportReport
from partwise.transformers.sizes import Sizes

__all__ = [
    "ARCHITECTURES",
    "Architecture",
    "architecture_of",
    "config_for",
    "FEATURES",
    "Feature",
    "feature_of",
    "FeaturesManager",
    "OnnxConfig",
    "OnnxConfigWithPast",
    "OnnxSeq2SeqConfigWithPast",
    "Sizes",
    "TransformersOptions",
    "export",
    "export_checkpoint",
    "ExportReport",
    "TransformersMismatchError",
    "validate_model_outputs",
]

_SUFFIX = "OnnxConfig"


def __getattr__(name: str) -> Any:
    """Return an architecture's configuration by the name of its class in transformers 4.

    `DistilBertOnnxConfig` is that of "distilbert".
    """
    wanted = name.removesuffix(_SUFFIX).lower()
    for model_type, row in ARCHITECTURES.items():
        if name.endswith(_SUFFIX) and model_type.replace("-", "") == wanted:
            return row.family
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
