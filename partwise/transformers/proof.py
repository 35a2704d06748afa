"""The proof of an export: its file against its model, at sizes that it was not captured with."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeGuard

import numpy as np

from partwise.exports.proof.cases import Cases
from partwise.exports.proof.guarding import judge_and_guard
from partwise.exports.proof.judge import judge
from partwise.exports.proof.judge_process import open_export
from partwise.exports.proof.onnx_checks import brief
from partwise.exports.proof.verdict import Case, Expectation, Finding, Verdict
from partwise.exports.proof.weights import prove_weights
from partwise.exports.torch.modules import weights_of
from partwise.transformers.cases import make_cases, make_expectation
from partwise.transformers.generation import compare_generation
from partwise.transformers.odd_tokens import odd_token_cases
from partwise.transformers.onnx_config import (
    OnnxConfig,
    OnnxConfigWithPast,
    OnnxSeq2SeqConfigWithPast,
)
from partwise.transformers.options import TransformersOptions
from partwise.transformers.positions import long_texts


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """What a file has to be, and what it is compared on."""

    expectation: Expectation
    cases: tuple[Case, ...]
    odd: tuple[Case, ...] = ()
    """Those that a file of ours fails on, as its model does; files of other writers may not."""
    notes: tuple[str, ...] = ()
    """What is to be known of the file, such as the sizes that it holds for."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    """How far the cases reach."""


def expect(
    model: Any,
    config: OnnxConfig,
    options: TransformersOptions,
    opset: int | None = None,
    real: Mapping[str, Mapping[str, np.ndarray]] | None = None,
) -> Expected:
    """Return what an export of a model has to be.

    `opset` is the version of ONNX' operators that it is to declare; None: any. `real` are inputs
    that a preprocessor made, by the name of the case.
    """
    made = make_cases(model, config, config.sizes_for_validation, real or {})
    # The sizes of neuron are fixed.
    long = Cases() if options.format == "neuron" else long_texts(model, config, options)
    cases = (*made, *long.cases)
    return Expected(
        expectation=make_expectation(model, config, options, cases, opset),
        cases=cases,
        odd=() if options.format == "neuron" else tuple(odd_token_cases(model, config)),
        notes=(*config.notes, *long.notes),
        metrics=long.metrics,
    )


def validate_model_outputs(
    config: OnnxConfig,
    model: Any,
    file_path: str,
    options: TransformersOptions | None = None,
    opset: int | None = None,
) -> Verdict:
    """Compare a file with its model, in a process that has not loaded transformers.

    That the tokens which it generates are the model's own is left to `export`. `opset` is as
    `expect` has it.

    Raises:
        ExportMismatchError: The file does not take or give what the model does.
    """
    expected = expect(model, config, options or TransformersOptions(), opset)
    verdict = judge_file(file_path, model, expected)
    verdict.check()
    return verdict


def judge_file(file_path: str, model: Any, expected: Expected, *, is_new: bool = False) -> Verdict:
    """Compare a file with its model on all cases, and of ONNX files all weights.

    Cases hold few of the tokens that a model knows: of the others' rows the weights are the proof.
    `is_new`: we have just written the file. Then it has to fail on odd tokens, and gets guards
    where it does not.
    """
    expectation = expected.expectation
    if is_new:
        verdict = judge_and_guard(file_path, expectation, (*expected.cases, *expected.odd))
    else:
        verdict = judge(file_path, expectation, expected.cases)
    is_unread = any(finding.check in ("load", "checker") for finding in verdict.findings)
    # int8 keeps of a weight what its scale leaves.
    if expectation.format != "onnx" or expectation.gate is not None or is_unread:
        return verdict
    return prove_weights(file_path, weights_of(model)).added_to(verdict)


def judge_generation(
    verdict: Verdict,
    model: Any,
    config: OnnxConfig,
    expectation: Expectation,
    file: Path,
    prefill: Path,
    count: int,
) -> Verdict:
    """Generate text with an export that takes the past, and compare it with the model's own.

    Where `verdict`, what came of its values, found something, no text is generated. `expectation`
    is that of `file`, the graph that takes the past; `prefill`, which may be the same, reads the
    prompt. Returned is what came of both.
    """
    if verdict.findings or not count or not _goes_on(config) or not config.feature.gives_tokens:
        return verdict
    if expectation.gate is not None:
        # With less precision another token may be the likeliest; how far outputs move is judged.
        return verdict
    try:
        decode = open_export(str(file), expectation)
        start = decode if prefill == file else open_export(str(prefill), expectation)
        finding = compare_generation(model, config, decode.run, start.run, count)
    except Exception as error:  # each library that runs a graph has its own
        message = f"The export generates no text: {brief(error)}"
        finding = Finding(check="run", message=message, case="generation")
    return replace(
        verdict,
        findings=(finding,) if finding else (),
        metrics={**verdict.metrics, "export_generated_tokens": float(count)},
    )


def _goes_on(config: OnnxConfig) -> TypeGuard[OnnxConfigWithPast]:
    """Return whether a graph takes the past, and so goes on with a text."""
    is_prefill = isinstance(config, OnnxSeq2SeqConfigWithPast) and config.is_prefill
    return isinstance(config, OnnxConfigWithPast) and config.use_past and not is_prefill


def configs_of(config: OnnxConfig) -> list[OnnxConfig]:
    """Return the configuration, after that of the graph which starts what it goes on with."""
    if isinstance(config, OnnxSeq2SeqConfigWithPast) and config.use_past:
        return [config.prefill(), config]
    return [config]
