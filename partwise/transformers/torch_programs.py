"""Models of transformers as TorchScript, as .pt2, and compiled for AWS Neuron.

All three run where torch is installed, without transformers. A trace has the path that one input
took, so its file says which sizes it holds for: those that it was compared on, or only its own.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from partwise.errors import ExportRefusedError, IntegrityError
from partwise.exports.networks import refusing
from partwise.exports.neuron import NEURON_TOLERANCE
from partwise.exports.proof.comparison import Comparison
from partwise.exports.proof.verdict import Case, Expectation
from partwise.exports.torch.capture import capturing, forget_origin
from partwise.formatting import reason
from partwise.models.signature import Signature
from partwise.models.torch_programs import (
    NeuronModel,
    Pt2Model,
    TorchScriptModel,
    neuron_tracer,
    run_program,
    tensors_of,
)
from partwise.transformers.cases import make_cases
from partwise.transformers.features import is_with_past
from partwise.transformers.flat_model import positional_model, prepared, run_model
from partwise.transformers.onnx_config import OnnxConfig
from partwise.transformers.options import TransformersOptions
from partwise.transformers.patches import patched
from partwise.transformers.proof import Expected
from partwise.transformers.sizes import Sizes
from partwise.transformers.traced_sizes import sizes_in_words, sizes_of_free_trace, traced_sizes

_FORMATS_OF_OPTIONS = {
    "opset": ("onnx",),
    "quantize": ("onnx",),
    "external_data": ("onnx",),
    "batch_size": ("torchscript", "neuron"),
    "sequence_length": ("torchscript", "neuron"),
}
_FIXED_CASES = 3
_FILLED_IN = {"attention_mask": "ones_like", "token_type_ids": "zeros_like"}
"""Inputs that models fill in where they are not given, and the functions of torch that do so."""


def check_format(config: OnnxConfig, options: TransformersOptions) -> None:
    """Refuse what a format cannot have, before any work."""
    defaults = TransformersOptions()
    for option, formats in _FORMATS_OF_OPTIONS.items():
        value = getattr(options, option)
        if options.format not in formats and value != getattr(defaults, option):
            raise ExportRefusedError(
                f"{option}={value!r} is an option of {' and '.join(formats)}: leave it out for "
                f"{options.format}."
            )
    if options.format != "neuron":
        return
    if is_with_past(config.task):
        raise ExportRefusedError(
            f"{config.task!r} cannot be compiled for neuron: its sizes are fixed, and the past "
            f"grows with each token. Choose {config.task.removesuffix('-with-past')!r}."
        )
    for name, axes in config.outputs.items():
        if [place for place, axis in axes.items() if axis == "batch"] != [0]:
            raise ExportRefusedError(
                f"{config.config.model_type} cannot be compiled for neuron: its output {name!r} "
                "compares the rows of a call, and neuron's calls have a fixed number of them."
            )
    neuron_tracer()


def write_torchscript(
    model: Any,
    config: OnnxConfig,
    expected: Expected,
    options: TransformersOptions,
    file_path: Path,
) -> Expected:
    """Trace a model, and write it as TorchScript with the sizes that the trace holds for.

    Tied weights stay tied: the file has them once. `expected` is what the file has to be if the
    trace holds for any sizes; of the tokens that the options say, no more are traced than the model
    takes.

    Returns:
        What the file has to be, with a note on its sizes: compared on the sizes of the trace and
        on longer ones too, or fixed to those of the trace where it is wrong on others.
    """
    sizes, most = traced_sizes(model, config, options)
    program = _trace(model, config, sizes)
    traced = f"Traced with {sizes_in_words(config, sizes, most)}".rstrip(",")
    cases = make_cases(model, config, sizes_of_free_trace(config, sizes, most), {})
    free = replace(expected, cases=(*cases, *expected.cases))
    problem = _problem(program, free.expectation, free.cases)
    if problem is None:
        first = next(iter(config.inputs))
        compared = f"as compared with {first} of {_shapes(free.cases[1:], first)}"
        note = f"{traced}; right for other sizes as well, {compared}."
        proved = replace(free, notes=(*expected.notes, note))
    elif is_with_past(config.task):
        raise ExportRefusedError(
            f"A trace of {type(model).__name__} holds for its own sizes only, and with past they "
            f'grow: export as "onnx" or "pt2". {problem}'
        )
    else:
        note = f"{traced}, and holds for these sizes only: pad to them. {problem}"
        proved = fixed_to(model, config, expected, sizes, note)
    try:
        TorchScriptModel(program, proved.expectation.signature).save(str(file_path))
    except RuntimeError as error:
        raise ExportRefusedError(
            f"The trace of {type(model).__name__} cannot be written as TorchScript: "
            f'{reason(error)} Export as "onnx" or "pt2".'
        ) from error
    return proved


def _trace(model: Any, config: OnnxConfig, sizes: Sizes) -> Any:
    import torch

    optional = _optional_inputs(model, config)

    def trace(module: Any, inputs: tuple[Any, ...]) -> Any:
        # torch would compare it on the traced inputs once more; the proof does, and on others.
        traced = torch.jit.trace(module, inputs, check_trace=False)
        return _with_names(traced, list(config.inputs), optional)

    return _program(model, config, sizes, trace, "torch.jit.trace does not capture")


def _with_names(traced: Any, names: Sequence[str], optional: Mapping[str, str]) -> Any:
    """Return a program whose arguments have names, and of which some may be left out.

    A trace has the names of a function's arguments, and ours takes any number of them.
    """
    import torch

    class Named(torch.nn.Module):  # type: ignore[misc]  # mypy does not read torch
        def __init__(self) -> None:
            super().__init__()
            self.traced = traced

    words = [name.replace(".", "_") for name in names]
    arguments = [
        f"{word}: Optional[Tensor] = None" if name in optional else f"{word}: Tensor"
        for name, word in zip(names, words, strict=True)
    ]
    lines = [f"def forward(self, {', '.join(arguments)}):"]
    for name, function in optional.items():
        lines += [f"    if {name} is None:", f"        {name} = torch.{function}({names[0]})"]
    lines += [f"    return self.traced({', '.join(words)})", ""]
    program = torch.jit.script(Named().eval())
    program.define("\n".join(lines))
    return program


def _optional_inputs(model: Any, config: OnnxConfig) -> dict[str, str]:
    """Return the last inputs that a model fills in itself, with torch's functions that do so.

    The others come first, as arguments without a default do.
    """
    first, *others = config.inputs
    optional: dict[str, str] = {}
    for name in reversed(others):
        if name not in _FILLED_IN or config.inputs[name] != config.inputs[first]:
            break
        optional[name] = _FILLED_IN[name]
    feeds = config.generate_dummy_inputs(config.sizes_for_export)
    for name, function in optional.items():
        feeds[name] = getattr(np, function)(feeds[first])
    given = {name: values for name, values in feeds.items() if name not in optional}
    filled = run_model(model, config, feeds)
    try:
        own = run_model(model, config, given)
    except Exception:  # a model of one's own may want each of them, and says so as it likes
        return {}
    # XLM adds nothing where it is given no types, and a row of its table where it is given zeros.
    is_same = all(np.allclose(own[name], filled[name], atol=1e-6) for name in filled)
    return dict(reversed(optional.items())) if is_same else {}


def write_pt2(model: Any, config: OnnxConfig, signature: Signature, file_path: Path) -> None:
    """Capture a model with torch.export, and write it as .pt2, its sizes free as declared.

    Many models need the patches of `transformers.exporters`, which are in force meanwhile. Neither
    inputs nor stack traces, which name folders of this machine, go into the file.
    """
    import torch
    from transformers.exporters.exporter_dynamo import reset_model_state
    from transformers.exporters.utils import apply_patches

    free = tuple(dict.fromkeys(axes, torch.export.Dim.AUTO) for axes in config.inputs.values())

    def capture(module: Any, inputs: tuple[Any, ...]) -> Any:
        with apply_patches("dynamo"), reset_model_state(model):
            return torch.export.export(module, inputs, dynamic_shapes=(free,), strict=False)

    program = _program(
        model, config, config.sizes_for_export, capture, "torch.export does not capture"
    )
    # Before it is written: the ranges are part of the file, and checked when it is called.
    _allow_small_sizes(program, config)
    forget_origin(program)
    Pt2Model(program, signature).save(str(file_path))
    # torch writes all of these files, and does not read all of them again.
    if any("unbacked_bindings" in node.meta for node in program.graph.nodes):
        try:
            Pt2Model.from_file(str(file_path))
        except IntegrityError as error:
            raise ExportRefusedError(
                f"{type(model).__name__} has sizes that depend on values, and torch does not read "
                f"such a .pt2 file of {config.task!r} again: {reason(error)} Export as "
                '"onnx" or "torchscript".'
            ) from error


def write_neuron(
    model: Any,
    config: OnnxConfig,
    expected: Expected,
    options: TransformersOptions,
    file_path: Path,
) -> Expected:
    """Compile a model for AWS Neuron, with the rows and tokens that the options say, and write it.

    `expected` is what the file would have to be if its sizes were free; of the tokens that the
    options say, no more are taken than the model takes.

    Returns:
        What the file has to be: fixed to these sizes, with the compiler's tolerance where the
        options say none.
    """
    sizes, most = traced_sizes(model, config, options)
    trace = neuron_tracer()
    program = _program(model, config, sizes, trace, "Neuron's compiler does not take")
    note = f"Compiled for {sizes_in_words(config, sizes, most)} and no other sizes: pad to these."
    proved = fixed_to(model, config, expected, sizes, note)
    NeuronModel(program, proved.expectation.signature).save(str(file_path))
    return with_neuron_tolerance(proved, options)


def with_neuron_tolerance(expected: Expected, options: TransformersOptions) -> Expected:
    """Return the same with the compiler's tolerance where the options say none."""
    tolerance = NEURON_TOLERANCE.given(options.atol, options.rtol)
    return replace(expected, expectation=replace(expected.expectation, tolerance=tolerance))


def _program(
    model: Any,
    config: OnnxConfig,
    sizes: Sizes,
    capture: Callable[[Any, tuple[Any, ...]], Any],
    refusal: str,
) -> Any:
    """Return what a function makes of a module of positional tensors and such tensors."""
    inputs = tensors_of(config.generate_dummy_inputs(sizes))
    what = f"{refusal} {type(model).__name__} for {config.task!r}"
    with refusing(what), prepared(model, config), capturing(model), patched():
        return capture(positional_model(model, config), inputs)


def _problem(program: Any, expectation: Expectation, cases: Sequence[Case]) -> str | None:
    """Return the first thing that a program does not do right, in a sentence."""
    for case in cases:
        comparison = Comparison(expectation, cases)
        try:
            given = run_program(program, expectation.signature, case.feeds)
        except Exception as error:  # operators raise anything for sizes that do not fit
            # TorchScript's errors end with what failed.
            what = str(error).strip().splitlines()[-1:] or [type(error).__name__]
            return f"On the case {case.name!r} it fails: {what[0]}"
        comparison.add(case, given)
        findings = comparison.verdict().findings
        # One case alone may well have one value everywhere; all together are judged later.
        wrong = [finding for finding in findings if finding.check != "vacuous"]
        if wrong:
            return wrong[0].message
    return None


def fixed_to(
    model: Any, config: OnnxConfig, expected: Expected, sizes: Sizes, note: str
) -> Expected:
    """Return the same of inputs and outputs of these sizes only, compared on such."""
    names = [f"fixed sizes {place + 1}" for place in range(_FIXED_CASES)]
    cases = make_cases(model, config, dict.fromkeys(names, sizes), {})
    first, signature = cases[0], expected.expectation.signature
    shapes = {name: values.shape for name, values in {**first.feeds, **first.expected}.items()}
    fixed = signature.model_copy(
        update={
            side: tuple(
                tensor.model_copy(update={"shape": shapes[tensor.name]})
                for tensor in getattr(signature, side)
            )
            for side in ("inputs", "outputs")
        }
    )
    # Real inputs that happen to have these sizes still count.
    fitting = [
        case
        for case in expected.cases
        if all(case.feeds[tensor.name].shape == tensor.shape for tensor in fixed.inputs)
    ]
    return Expected(
        expectation=replace(expected.expectation, signature=fixed),
        cases=(*cases, *fitting),
        notes=(*config.notes, note),
    )


def _allow_small_sizes(program: Any, config: OnnxConfig) -> None:
    """Let every free axis be as small as 1: whether the graph holds for that, the proof says.

    torch takes it that no size is 0 or 1. It takes that back for the sizes of inputs, but not for
    what follows of it: a sum of two would have to be 4, and an image that is halved five times 64.
    """
    inputs = program.graph_signature.user_inputs
    nodes = {node.name: node for node in program.graph.nodes if node.op == "placeholder"}
    ranges = program.range_constraints
    for name, axes in zip(inputs, config.inputs.values(), strict=True):
        for place in axes:
            size = nodes[name].meta["val"].shape[place]
            symbol = getattr(getattr(size, "node", None), "expr", None)
            if symbol in ranges and ranges[symbol].lower > 1:
                ranges[symbol] = type(ranges[symbol])(1, ranges[symbol].upper)


def _shapes(cases: Sequence[Case], name: str) -> str:
    return ", ".join(" x ".join(map(str, case.feeds[name].shape)) for case in cases)
