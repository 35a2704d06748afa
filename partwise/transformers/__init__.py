"""Hugging Face models as files that run without transformers, each proved before it is kept.

The library's own exporters capture the graph. What stands here is what transformers 5 dropped:
which architectures have which features, what a model takes and gives, inputs to capture and to
compare with, and the proof.
"""

from partwise.transformers.architectures import ARCHITECTURES, Architecture
from partwise.transformers.checkpoint_export import export_checkpoint
from partwise.transformers.export import TransformersMismatchError, export
from partwise.transformers.feature_choice import architecture_of, config_for
from partwise.transformers.features import FEATURES, Feature, feature_of
from partwise.transformers.onnx_config import (
    OnnxConfig,
    OnnxConfigWithPast,
    OnnxSeq2SeqConfigWithPast,
)
from partwise.transformers.options import TransformersOptions
from partwise.transformers.proof import validate_model_outputs
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
