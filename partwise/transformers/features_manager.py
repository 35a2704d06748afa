"""FeaturesManager: the look-ups of `transformers.onnx` in version 4, by its names, in our table."""

import os
from collections.abc import Callable
from typing import Any, ClassVar

from partwise.errors import InputError
from partwise.transformers.architectures import ARCHITECTURES, Architecture
from partwise.transformers.checkpoint_files import find_checkpoint, find_weights, local_path
from partwise.transformers.checkpoints import open_checkpoint
from partwise.transformers.feature_choice import architecture_of, check_feature
from partwise.transformers.features import WITH_PAST, feature_of
from partwise.transformers.onnx_config import OnnxConfig
from partwise.transformers.options import TransformersOptions

MakesConfig = Callable[[Any], OnnxConfig]
"""Makes of a model's configuration what it takes and gives."""


class FeaturesManager:
    """Which architecture can do what. Errors are those of `config_for` and `open_checkpoint`.

    Example:
        >>> list(FeaturesManager.get_supported_features_for_model_type("clip"))
        ['default']
    """

    AVAILABLE_FEATURES: ClassVar[list[str]] = sorted(
        {feature for row in ARCHITECTURES.values() for feature in row.features}
    )

    @staticmethod
    def get_supported_features_for_model_type(
        model_type: str,
        model_name: str | None = None,  # noqa: ARG004 (that of version 4, for its message)
    ) -> dict[str, MakesConfig]:
        """Return the features of an architecture, each with what makes its configuration."""
        row = architecture_of(model_type.lower())
        return {feature: _maker(row, feature) for feature in row.features}

    @staticmethod
    def feature_to_task(feature: str) -> str:
        """Return a feature without the ending that says that it takes the past."""
        return feature.removesuffix(WITH_PAST)

    @staticmethod
    def get_model_class_for_feature(feature: str, framework: str = "pt") -> Any:
        """Return the class of transformers that loads a model for a feature."""
        import transformers

        _check_framework(framework)
        return getattr(transformers, feature_of(feature).auto_class)

    @staticmethod
    def determine_framework(model: str, framework: str | None = None) -> str:
        """Return "pt", of a folder after a look at its weights: transformers 5 has torch only."""
        if framework is not None:
            _check_framework(framework)
        elif os.path.isdir(local_path(model)):
            find_weights(model, find_checkpoint(model))
        return "pt"

    @staticmethod
    def get_model_from_feature(
        feature: str, model: str, framework: str | None = None, cache_dir: str | None = None
    ) -> Any:
        """Return a model that was read for a feature, from a directory or the hub."""
        FeaturesManager.determine_framework(model, framework)
        if cache_dir is not None:
            raise InputError(
                f"cache_dir={cache_dir!r} is not taken here: set the environment variable "
                "HF_HUB_CACHE to that folder."
            )
        return open_checkpoint(model, feature, TransformersOptions(preprocessor="none")).model

    @staticmethod
    def check_supported_model_or_raise(
        model: Any, feature: str = "default"
    ) -> tuple[str, MakesConfig]:
        """Return a model's type, and what makes the configuration of a feature that it has."""
        model_type = model.config.model_type
        return model_type, FeaturesManager.get_config(model_type, feature)

    @staticmethod
    def get_config(model_type: str, feature: str) -> MakesConfig:
        """Return what makes the configuration of an architecture for a feature."""
        return _maker(check_feature(model_type, feature), feature)


def _maker(row: Architecture, feature: str) -> MakesConfig:
    return lambda model_config: row.family(model_config, feature)


def _check_framework(framework: str) -> None:
    if framework != "pt":
        raise InputError(
            f"The framework {framework!r} is not there: transformers 5 has torch only, "
            '"pt". Save a model of TensorFlow as one of torch with transformers 4, by '
            "from_pretrained(..., from_tf=True)."
        )
