"""Checkpoints: models of transformers as they lie in a directory, or on a hub."""

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from partwise.transformers import loading
from partwise.transformers.attention import check_attention, look_at_all_tokens
from partwise.transformers.checkpoint_files import (
    find_checkpoint,
    find_weights,
    read_config,
    served_files,
)
from partwise.transformers.feature_choice import architecture_of, check_opset, config_for
from partwise.transformers.features import feature_of
from partwise.transformers.installed import check_installed
from partwise.transformers.onnx_config import OnnxConfig
from partwise.transformers.options import TransformersOptions
from partwise.transformers.preprocessors import make_real_inputs
from partwise.transformers.report import ExportReport

OwnConfig = Callable[[Any, str], OnnxConfig]
"""Makes an `OnnxConfig` of a `transformers.PreTrainedConfig` and a feature: its class, mostly."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """A model that was read, and what it takes and gives for a feature."""

    model: Any
    """A `transformers.PreTrainedModel` in single precision on the CPU."""
    config: OnnxConfig
    real: Mapping[str, Mapping[str, np.ndarray]] = field(default_factory=dict)
    """Inputs that its preprocessor made, by the name of the case."""
    folder: Path
    """Where it was read from."""
    missing: frozenset[str] = frozenset()
    """Names of weights that the checkpoint lacks, and that the feature does not need."""
    notes: tuple[str, ...] = ()
    """What a person should know of how it was read."""

    def noted(self, report: ExportReport) -> ExportReport:
        """Return a report of this model with the notes added to its last file."""
        *files, last = report.files
        noted = last.model_copy(update={"notes": (*last.notes, *self.notes)})
        return report.model_copy(update={"files": (*files, noted)})

    def save_beside(self, folder: Path) -> list[Path]:
        """Copy what a server needs besides the model: its configuration and preprocessor."""
        return [
            Path(shutil.copyfile(file, folder / file.name)) for file in served_files(self.folder)
        ]


def open_checkpoint(
    name: str, feature: str, options: TransformersOptions, own_config: OwnConfig | None = None
) -> Checkpoint:
    """Read a model for a feature, in single precision, which its weights need not have.

    Weights may be one file or several, safetensors or pytorch_model.bin, of which only tensors are
    read. Those that the feature does not need may be missing or be too many.

    Raises:
        CheckpointError: There is no such directory, or something in it is missing or broken.
        UnknownModelTypeError: Its architecture is not in the table.
        UnknownFeatureError: Its architecture has no such feature.
        OpsetError: The opset of the options does not suffice.
        ExportRefusedError: It has block-sparse attention, and the options do not ask for full
            attention.
    """
    check_installed()
    feature_of(feature)
    trusts_code = options.trust_remote_code
    folder = find_checkpoint(name, trusts_code=trusts_code)
    said = read_config(folder)
    if own_config is None and ("auto_map" not in said or trusts_code):
        architecture_of(said["model_type"])
    model_config = loading.load_config(folder, trusts_code=trusts_code)
    # Before the weights, which may have gigabytes.
    notes = look_at_all_tokens(model_config) if options.full_attention else ()
    check_attention(model_config)
    config = (own_config or config_for)(model_config, feature)
    if options.format == "onnx":
        check_opset(config, options.opset)
    find_weights(name, folder)
    real = make_real_inputs(folder, config, options)
    model, missing = loading.load_model(
        folder, model_config, config.auto_class, trusts_code=trusts_code
    )
    loading.check_missing(model, config, missing, folder)
    return Checkpoint(
        model=model,
        config=config,
        real=real.by_case,
        folder=folder,
        missing=missing,
        notes=(*notes, *real.notes),
    )
