"""`export` and `validate_model_outputs`, as the guides of transformers 4 call them, and as ours do.

There a preprocessor comes first or second, and the opset and the tolerance are arguments. What the
preprocessor makes is compared on besides random inputs.
"""

import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from os import PathLike
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_overloads, overload

from partwise.errors import InputError
from partwise.exports.proof.verdict import Verdict
from partwise.tables.column_names import names_in_words
from partwise.transformers import proof
from partwise.transformers.check import without_signature
from partwise.transformers.export import RealInputs
from partwise.transformers.export import export as export_model
from partwise.transformers.onnx_config import OnnxConfig
from partwise.transformers.options import TransformersOptions
from partwise.transformers.preprocessors import real_inputs_of
from partwise.transformers.report import ExportReport


@overload
def export(
    model: Any,
    config: OnnxConfig,
    output: Path | str,
    options: TransformersOptions | None = None,
    real: RealInputs | None = None,
    *,
    missing: Collection[str] = (),
) -> ExportReport: ...


@overload
def export(
    preprocessor: Any,
    model: Any,
    config: OnnxConfig,
    opset: int,
    output: Path | str,
    tokenizer: Any = None,
    device: str = "cpu",
) -> tuple[list[str], list[str]]: ...


def export(*arguments: Any, **named: Any) -> Any:
    """Export a model, prove its files, and only then move them to where they are wanted.

    The arguments are those of `partwise.transformers.export.export`, which returns a report; or
    those of transformers 4: (preprocessor, model, config, opset, output). Those give the names of
    the inputs and of the outputs, in two lists.

    Raises:
        TransformersMismatchError: A file is not right; nothing of it is kept.
        ExportRefusedError: The model cannot be captured.
        OpsetError: The opset does not suffice, or cannot be written.
    """
    if not {"preprocessor", "tokenizer", "opset"} & set(named) and not (
        len(arguments) > 2 and isinstance(arguments[2], OnnxConfig)
    ):
        return export_model(*arguments, **named)
    given = _by_guide(export, arguments, named)
    if str(given.device) != "cpu":
        raise InputError(
            f"device={str(given.device)!r} is not taken: files are written on the CPU."
        )
    options = TransformersOptions(opset=given.opset)
    export_model(given.model, given.config, given.output, options, _real(given))
    return list(given.config.inputs), list(given.config.outputs)


@overload
def validate_model_outputs(
    config: OnnxConfig,
    model: Any,
    file_path: str,
    options: TransformersOptions | None = None,
    opset: int | None = None,
) -> Verdict: ...


@overload
def validate_model_outputs(
    config: OnnxConfig,
    preprocessor: Any,
    reference_model: Any,
    onnx_model: Path | str,
    onnx_named_outputs: Sequence[str],
    atol: float | None,
    tokenizer: Any = None,
) -> Verdict: ...


def validate_model_outputs(*arguments: Any, **named: Any) -> Verdict:
    """Compare a file with its model, in a process that has not loaded transformers.

    The arguments are those of `partwise.transformers.proof.validate_model_outputs`; or those of
    transformers 4: (config, preprocessor, reference_model, onnx_model, onnx_named_outputs, atol).
    With those the file may be of any writer, and an atol of None is the configuration's own.

    Raises:
        ExportMismatchError: The file does not take or give what the model does.
    """
    if not {"reference_model", "onnx_model", "preprocessor", "atol"} & set(named) and not (
        len(arguments) > 2 and not isinstance(arguments[2], str | PathLike)
    ):
        return proof.validate_model_outputs(*arguments, **named)
    given = _by_guide(validate_model_outputs, arguments, named)
    config, model = given.config, given.reference_model
    if unknown := [name for name in given.onnx_named_outputs if name not in config.outputs]:
        raise InputError(
            f"The model gives no {names_in_words(unknown)} for {config.task!r}: its outputs are "
            f"{names_in_words(list(config.outputs))}."
        )
    options = TransformersOptions(atol=given.atol)
    expected = proof.expect(model, config, options, real=_real(given))
    verdict = proof.judge_file(str(given.onnx_model), model, expected)
    if any(finding.check == "signature" for finding in verdict.findings):
        verdict = without_signature(verdict)
    verdict.check()
    return verdict


def _by_guide(
    function: Callable[..., Any], arguments: Sequence[Any], named: Mapping[str, Any]
) -> SimpleNamespace:
    """Return the arguments of a call by the names that transformers 4 has for them."""
    bound = inspect.signature(get_overloads(function)[1]).bind(*arguments, **named)
    bound.apply_defaults()
    return SimpleNamespace(**bound.arguments)


def _real(given: SimpleNamespace) -> Mapping[str, Any]:
    if given.preprocessor is not None and given.tokenizer is not None:
        raise InputError("Give a preprocessor or a tokenizer, not both.")
    made_by = given.tokenizer if given.preprocessor is None else given.preprocessor
    return {} if made_by is None else real_inputs_of(made_by, given.config).by_case
