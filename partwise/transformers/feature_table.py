"""The features of one architecture, as a person or a program reads them."""

import re
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict

from partwise.transformers.feature_choice import architecture_of, config_for
from partwise.transformers.features import Axes

_LAYER = re.compile(r"\.(\d+)\.")


class FeatureRow(BaseModel):
    """What an architecture takes and gives for a feature."""

    model_config = ConfigDict(frozen=True)

    feature: str
    auto_class: str
    """The class of transformers that loads it."""
    inputs: dict[str, dict[int, str]]
    """By name, the free axes. Of tensors of each layer the number is `{layer}`."""
    outputs: dict[str, dict[int, str]]
    opset: int
    scaled: float
    rtol: float


class FeatureTable(BaseModel):
    """The features of an architecture."""

    model_config = ConfigDict(frozen=True)

    model_type: str
    name: str
    features: tuple[FeatureRow, ...]


def describe_features(model_type: str) -> FeatureTable:
    """Return what an architecture takes and gives for each feature, as its default model has it."""
    architecture = architecture_of(model_type)
    model_config = _default_config(model_type)
    rows = []
    for feature in architecture.features:
        config = config_for(model_config, feature)
        rows.append(
            FeatureRow(
                feature=feature,
                auto_class=config.auto_class,
                inputs=_folded(config.inputs),
                outputs=_folded(config.outputs),
                opset=config.default_onnx_opset,
                scaled=config.scaled_for_validation,
                rtol=config.rtol_for_validation,
            )
        )
    return FeatureTable(model_type=model_type, name=architecture.name, features=tuple(rows))


def _default_config(model_type: str) -> Any:
    import transformers

    from partwise.transformers.quiet import quiet

    names = (model_type, model_type.replace("-", "_"), model_type.replace("_", "-"))
    known = next(name for name in names if name in transformers.CONFIG_MAPPING)
    with quiet():
        return transformers.AutoConfig.for_model(known)


def _folded(tensors: Mapping[str, Axes]) -> dict[str, dict[int, str]]:
    """Return tensors with those of all layers as one."""
    return {_LAYER.sub(".{layer}.", name): dict(axes) for name, axes in tensors.items()}
