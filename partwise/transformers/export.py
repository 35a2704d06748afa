"""Export: a model of transformers as files in a folder, which appear there once they are proved."""

import errno
import fcntl
import os
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from partwise.choices import TransformersFormat
from partwise.errors import CheckpointError, ExportMismatchError, InputError, StoreError
from partwise.exports.proof.verdict import Verdict
from partwise.models.serdes import SERDES
from partwise.store.entry_locks import passing_folder
from partwise.store.no_room import NO_ROOM
from partwise.transformers.all_outputs import FORMATS_OF_ALL, with_all_outputs
from partwise.transformers.attention import check_attention
from partwise.transformers.capture import write_onnx
from partwise.transformers.checkpoint_files import read_config, served_files
from partwise.transformers.feature_choice import check_opset
from partwise.transformers.onnx_config import LOWEST_OPSET, OnnxConfig
from partwise.transformers.options import TransformersOptions
from partwise.transformers.precision import check_precision, precision_notes
from partwise.transformers.proof import Expected, configs_of, expect, judge_file, judge_generation
from partwise.transformers.report import ExportReport, FileReport, OutputReport
from partwise.transformers.torch_programs import (
    check_format,
    write_neuron,
    write_pt2,
    write_torchscript,
)

DRAFT = ".partwise-"
"""What names of folders begin with in which files stand until they are proved."""

_MODEL, _PREFILL = "model.", "prefill."
"""What names of files begin with: of a model, and of what reads the prompt that it goes on with."""

LIBRARIES = ("torch", "transformers", "onnx", "onnxscript", "onnxruntime")

RealInputs = Mapping[str, Mapping[str, np.ndarray]]
"""Inputs that a preprocessor made, by the name of the case."""


class TransformersMismatchError(ExportMismatchError):
    """An export of transformers that is not right; its report says all that was found."""

    def __init__(self, report: ExportReport, verdict: Verdict) -> None:
        first = verdict.findings[0]
        super().__init__(first.message, first.check, verdict.metrics)
        self.report = report
        """Every finding, by file and output."""


def export(
    model: Any,
    config: OnnxConfig,
    output: Path | str,
    options: TransformersOptions | None = None,
    real: RealInputs | None = None,
    *,
    missing: Collection[str] = (),
    beside: Collection[Path] = (),
) -> ExportReport:
    """Export a model, prove its files, and only then move them to where they are wanted.

    As torchscript and for neuron, a model without a head gives all that it has, BERT a pooled one.

    Args:
        model: A `transformers.PreTrainedModel` on the CPU.
        config: What it takes and gives for a feature; see `config_for`.
        output: A folder, which is made, or the path of the one file, with a suffix.
        options: How it is exported, and compared.
        real: Inputs to compare on in addition to random ones.
        missing: Names of weights that are random numbers, for the model was read without them.
        beside: Files on the disk of the output that are moved there with the model, in place of
            those that an earlier export had beside it: its configuration and preprocessor.

    Example:
        >>> config = config_for(model.config, "sequence-classification")  # doctest: +SKIP
        >>> export(model, config, Path("onnx")).files[0].name  # doctest: +SKIP
        'model.onnx'
    """
    options, output = options or TransformersOptions(), Path(output)
    check_format(config, options)
    check_precision(model)
    check_attention(model.config)
    opset = check_opset(config, options.opset) if options.format == "onnx" else None
    if options.format in FORMATS_OF_ALL:
        config = with_all_outputs(model, config, missing)
    folder, file_name = place(output, options)
    start = time.monotonic()
    # On the disk of the output, where moving a file is one step; a mismatch leaves nothing of it.
    with writing(output), passing_folder(existing(folder), DRAFT, is_shared=True) as draft:
        reports, verdicts, files = [], [], []
        for each in configs_of(config):
            name = file_name if each is config else prefill_name(file_name)
            expected = expect(model, each, options, opset, real if each is config else None)
            file = draft / name
            expected = _write(model, each, expected, options, opset or 0, file)
            verdict = judge_file(str(file), model, expected, is_new=True)
            files.append(file)
            verdict = judge_generation(
                verdict,
                model,
                each,
                expected.expectation,
                file,
                files[0],
                options.generated_tokens,
            )
            if any(finding.check == "values" for finding in verdict.findings):
                expected = replace(
                    expected, notes=(*expected.notes, *precision_notes(model, each, expected))
                )
            verdicts.append(verdict)
            reports.append(report_file(file, each, expected, verdict))
        report = ExportReport(
            model_type=config.config.model_type,
            feature=config.task,
            format=options.format,
            opset=opset,
            seconds=time.monotonic() - start,
            versions={name: version(name) for name in LIBRARIES},
            files=tuple(reports),
        )
        # All files are judged before one is moved: a pair of which one is wrong is not published.
        for verdict in verdicts:
            if verdict.findings:
                raise TransformersMismatchError(report, verdict)
        _publish(draft, folder, file_name, beside)
    return report


def _write(
    model: Any,
    config: OnnxConfig,
    expected: Expected,
    options: TransformersOptions,
    opset: int,
    file: Path,
) -> Expected:
    """Write a model in the format of the options, and return what the file has to be."""
    signature = expected.expectation.signature
    match options.format:
        case "onnx":
            write_onnx(model, config, signature, options, opset, file)
            if opset < LOWEST_OPSET:
                note = (
                    f"Opset {opset} was written from a trace: right for the sizes that it was "
                    "compared on."
                )
                return replace(expected, notes=(*expected.notes, note))
        case "torchscript":
            return write_torchscript(model, config, expected, options, file)
        case "pt2":
            write_pt2(model, config, signature, file)
        case "neuron":
            return write_neuron(model, config, expected, options, file)
    return expected


def _publish(draft: Path, folder: Path, file_name: str, beside: Collection[Path]) -> None:
    """Move the files to the folder, and remove those of an earlier export that these have not."""
    folder.mkdir(parents=True, exist_ok=True)
    prefill = prefill_name(file_name)
    with _alone_in(folder):
        # The model goes first and comes last, so that it never stands beside files of another one.
        for name in (file_name, f"{file_name}.data", prefill, f"{prefill}.data"):
            (folder / name).unlink(missing_ok=True)
        # A tokenizer's file that the new model lacks would be read in place of its own. Where no
        # configuration of a model lies, no export was: what has such a name there is somebody's.
        with suppress(CheckpointError):
            for old in served_files(folder) if beside and read_config(folder) else ():
                if old.name not in {file.name for file in beside}:
                    old.unlink()
        for file in beside:
            os.replace(file, folder / file.name)
        for file in sorted(draft.iterdir(), key=lambda file: file.name == file_name):
            os.replace(file, folder / file.name)


@contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """Let no other export move files to the folder meanwhile, where the file system has locks."""
    opened = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):
            fcntl.flock(opened, fcntl.LOCK_EX)
        yield
    finally:
        os.close(opened)


def prefill_name(file_name: str) -> str:
    """Return the name of the file beside this one that reads the prompt.

    Example:
        >>> prefill_name("model.onnx"), prefill_name("t5.onnx")
        ('prefill.onnx', 't5-prefill.onnx')
    """
    if file_name.startswith(_MODEL):
        return f"{_PREFILL}{file_name.removeprefix(_MODEL)}"
    path = Path(file_name)
    return f"{path.stem}-{_PREFILL.removesuffix('.')}{path.suffix}"


def place(output: Path, options: TransformersOptions) -> tuple[Path, str]:
    """Return the folder that is written to, and the name of the model's file in it."""
    named = format_by_name(output)
    if named is None or os.path.isdir(output):
        return output, SERDES[options.format]().filename
    if named != options.format:
        (suffix,) = (each for each, form in _SUFFIXES.items() if form == options.format)
        raise InputError(
            f"{output} has the suffix of another format than {options.format!r}: end it in "
            f"{suffix}, or name a folder."
        )
    return output.parent, output.name


_SUFFIXES: dict[str, TransformersFormat] = {
    ".onnx": "onnx",
    ".pt2": "pt2",
    ".neuron.pt": "neuron",
    ".pt": "torchscript",
}


def format_by_name(file: Path) -> TransformersFormat | None:
    """Return the format of an export by its name; None: it is that of none."""
    return next((form for suffix, form in _SUFFIXES.items() if file.name.endswith(suffix)), None)


def existing(folder: Path) -> Path:
    """Return the nearest folder above that exists, so that a file in it can be moved here."""
    found = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    if not found.is_dir():
        raise StoreError(f"The export cannot be written to {folder}: {found} is a file.")
    return found


@contextmanager
def writing(output: Path) -> Iterator[None]:
    """Say where nothing could be written."""
    try:
        yield
    except OSError as error:
        # numpy says that it could not write, and not why.
        if isinstance(error, StoreError) or error.errno not in (*_DISK_ERRORS, None):
            raise
        raise StoreError(
            f"The export to {output} could not be written: {error.strerror or error}. Nothing was "
            "kept."
        ) from error


_DISK_ERRORS = (
    *(*NO_ROOM, errno.EFBIG),
    *(errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.ENOENT),
    *(errno.EISDIR, errno.ENAMETOOLONG),
)


def report_file(file: Path, config: OnnxConfig, expected: Expected, verdict: Verdict) -> FileReport:
    """Return what a person reads of a file."""
    largest = max(expected.cases, key=lambda case: sum(v.size for v in case.expected.values()))
    tolerance = expected.expectation.tolerance
    found = [finding for finding in verdict.findings if finding.output in config.outputs]
    external = file.with_name(f"{file.name}.data")
    return FileReport(
        name=file.name,
        bytes=sum(path.stat().st_size for path in (file, external) if path.exists()),
        inputs=tuple(config.inputs),
        outputs=tuple(
            OutputReport(
                name=name,
                shape=largest.expected[name].shape,
                findings=tuple(each.message for each in found if each.output == name),
            )
            for name in config.outputs
        ),
        cases=tuple(case.name for case in expected.cases),
        atol=tolerance.atol,
        rtol=tolerance.rtol,
        scaled=tolerance.scaled,
        metrics={**expected.metrics, **verdict.metrics},
        notes=(*expected.notes, *verdict.notes),
        findings=tuple(each.message for each in verdict.findings if each not in found),
    )
