"""Which configuration a model has for a feature: look-ups in the table of architectures."""

from typing import Any

from partwise.errors import OpsetError, UnknownFeatureError, UnknownModelTypeError
from partwise.formatting import did_you_mean
from partwise.tables.column_names import names_in_words
from partwise.transformers.architectures import ARCHITECTURES, Architecture
from partwise.transformers.features import feature_of
from partwise.transformers.onnx_config import (
    HIGHEST_OPSET,
    LOWEST_OPSET,
    LOWEST_TRACED_OPSET,
    OnnxConfig,
)


def architecture_of(model_type: str) -> Architecture:
    """Return the row of the table for a model type, in either spelling.

    Example:
        >>> architecture_of("gpt_neo").name
        'GPT Neo'
    """
    found = ARCHITECTURES.get(model_type.replace("_", "-"))
    if found is None:
        raise UnknownModelTypeError(
            f"The model type {model_type!r} is not in the table of architectures; there are "
            f"{', '.join(ARCHITECTURES)}. For one of your own, pass an OnnxConfig."
            f"{did_you_mean(model_type, ARCHITECTURES)}"
        )
    return found


def check_feature(model_type: str, feature: str) -> Architecture:
    """Return the row of the table for a model type, which has this feature."""
    architecture = architecture_of(model_type)
    feature_of(feature)
    if feature not in architecture.features:
        raise UnknownFeatureError(
            f"{architecture.name} ({model_type}) has no feature {feature!r}: choose "
            f"{names_in_words(list(architecture.features))}."
        )
    return architecture


def config_for(model_config: Any, feature: str) -> OnnxConfig:
    """Return what a model takes and gives for a feature."""
    architecture = check_feature(model_config.model_type, feature)
    return architecture.family(model_config, feature)


def check_opset(config: OnnxConfig, opset: int | None) -> int:
    """Return the version of ONNX' operators to export with."""
    default, highest = config.default_onnx_opset, HIGHEST_OPSET
    lowest = LOWEST_TRACED_OPSET if default == LOWEST_OPSET else default
    chosen = opset or default
    if not lowest <= chosen <= highest:
        problem = "is not sufficient" if chosen < lowest else "cannot be written"
        raise OpsetError(
            f"Opset {chosen} {problem} for {config.config.model_type}: choose one from {lowest} to "
            f"{highest}, or leave it out."
        )
    return chosen
