"""A checkpoint's export: read, proved, and written with what is needed to serve it."""

from collections.abc import Collection
from pathlib import Path

from partwise.errors import InputError
from partwise.store.entry_locks import passing_folder
from partwise.transformers.checkpoint_files import local_path, weights_in
from partwise.transformers.checkpoints import Checkpoint, OwnConfig, open_checkpoint
from partwise.transformers.export import (
    DRAFT,
    TransformersMismatchError,
    existing,
    export,
    place,
    writing,
)
from partwise.transformers.options import TransformersOptions
from partwise.transformers.report import ExportReport


def export_checkpoint(
    name: str | Path,
    feature: str,
    output: Path | str,
    options: TransformersOptions | None = None,
    own_config: OwnConfig | None = None,
) -> ExportReport:
    """Export a model as it lies in a directory, or on the hub.

    Where the output is a folder, the model's configuration and its preprocessor are written beside
    the exported files, so that they can be served together; those of an earlier export go.

    Args:
        name: A directory with config.json and weights, or the ID of a model on the hub.
        feature: Such as "sequence-classification".
        output: A folder, which is made, or the path of the one file, with a suffix.
        options: How it is exported, and compared.
        own_config: What the model takes and gives, where it is not in the table of architectures.

    Raises:
        InputError: The output has the suffix of another format, or holds another model's weights.
        CheckpointError: The model cannot be read.
        UnknownModelTypeError: Its architecture is not in the table.
        UnknownFeatureError: Its architecture has no such feature.
        OpsetError: The opset does not suffice.
        ExportRefusedError: The model cannot be captured.
        TransformersMismatchError: A file is not right; nothing of it is kept.
        StoreError: The disk is full, or may not be written to.

    Example:
        >>> export_checkpoint("models/bert", "default", "onnx")  # doctest: +SKIP
    """
    options, name, output = options or TransformersOptions(), str(name), Path(output)
    # Before the weights are read, which may have gigabytes.
    folder, file_name = place(output, options)
    is_file = folder / file_name == output
    if not is_file:
        _refuse_another_model(folder, name)
    checkpoint = open_checkpoint(name, feature, options, own_config)
    if is_file:
        return _export(checkpoint, output, options)
    with writing(output), passing_folder(existing(folder), DRAFT, is_shared=True) as draft:
        # Before the export: a full disk shows here, and to move them then takes no room.
        copies = checkpoint.save_beside(draft)
        return _export(checkpoint, output, options, copies)


def _refuse_another_model(folder: Path, name: str) -> None:
    """Refuse to write where another checkpoint lies: its configuration would be replaced."""
    weights = weights_in(folder)
    if weights is not None and folder.resolve() != local_path(name).resolve():
        raise InputError(
            f"The folder {folder} holds another model than {name} ({weights.name}), whose "
            "config.json and tokenizer the export would replace: name another folder, or the path "
            "of one file."
        )


def _export(
    checkpoint: Checkpoint,
    output: Path,
    options: TransformersOptions,
    beside: Collection[Path] = (),
) -> ExportReport:
    try:
        report = export(
            checkpoint.model,
            checkpoint.config,
            output,
            options,
            checkpoint.real,
            missing=checkpoint.missing,
            beside=beside,
        )
    except TransformersMismatchError as error:
        error.report = checkpoint.noted(error.report)
        raise
    return checkpoint.noted(report)
