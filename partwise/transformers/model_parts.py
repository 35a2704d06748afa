"""Parts of a model's configuration: of one for text and images, each has its own."""

from typing import Any


def text_part(config: Any) -> Any:
    """Return the part of a `transformers.PreTrainedConfig` that is about text."""
    return getattr(config, "text_config", None) or getattr(config, "decoder", None) or config


def vision_part(config: Any) -> Any:
    """Return the part of a `transformers.PreTrainedConfig` that is about images."""
    return getattr(config, "vision_config", None) or getattr(config, "encoder", None) or config
