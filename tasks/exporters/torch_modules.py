"""PyTorch modules as what exporters need: named inputs, a flat tuple of outputs, rows as the axis.

What torch.onnx.export, torch.jit.trace, torch.export.export and Neuron's trace share.
"""

import inspect
import io
import logging
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import fields, is_dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from partwise.tasks.errors import ExportRefused
from partwise.tasks.exporters.options import ExportOptions
from partwise.tasks.exporters.protocol import ModelDescription, Tolerance
from partwise.tasks.exporters.signature import (
    Feature,
    Feeds,
    Outputs,
    Signature,
    Tensor,
    feature_tensors,
    feeds_of_rows,
)

CAPTURED_ROWS = 3
"""Graphs are captured with so many rows: torch treats sizes of 0 and 1 as constants."""

_BATCH = "batch"

# Sums of products are taken in another order elsewhere. Of k terms the error grows as
# sqrt(k) * eps (Higham & Mary 2019, doi:10.1137/18M1226312): eps is 6e-8 for single numbers, and
# layers of a thousand inputs in a chain stay below 1e-5; exp, tanh and erf add some units in the
# last place. 1e-4 of a value is what PyTorch's own ONNX tests allow in the mean.
_TOLERANCES = {
    "float16": Tolerance(atol=1e-2, rtol=1e-2),
    "float32": Tolerance(atol=1e-5, rtol=1e-4),
    "float64": Tolerance(atol=1e-12, rtol=1e-9),
}


def describe_module(
    model: Any, rows: pa.Table, feeds: Feeds | None, options: ExportOptions
) -> ModelDescription:
    """Return what a module takes and gives; it runs on 1, 2 and 3 rows for that.

    Args:
        model: A `torch.nn.Module` on the CPU.
        rows: Rows of the partition. Without `feeds` they have the columns that the module's
            attribute `feature_names_in_` lists, which become one matrix of the module's own
            floating-point type.
        feeds: What the user's function made of rows: in the order of the module's positional
            arguments, or under the names of its arguments.
        options: How to export.

    Raises:
        ExportRefused: It does not run on one row, or an output has another first axis than that of
            rows, or is no tensor that the formats know.
        ColumnError: The rows lack a feature of the module.
    """
    _check_device_and_dtypes(model)
    draft = _signature_of_inputs(model, feeds, options.inputs)
    some = feeds_of_rows(draft, rows.slice(0, CAPTURED_ROWS)) if feeds is None else feeds
    tries = [_run_on(model, draft, take_rows(some, count)) for count in (1, 2, 3)]
    outputs = tuple(
        _output_tensor(model, name, [found.get(name) for found in tries]) for name in tries[0]
    )
    first = outputs[0]
    signature = draft.model_copy(
        update={
            "outputs": outputs,
            "prediction": first.name,
            "prediction_column": 0 if first.shape[1:] == (1,) else None,
        }
    )
    return ModelDescription(signature=signature, tolerance=_tolerance(model, signature))


def _check_device_and_dtypes(model: Any) -> None:
    import torch

    for name, values in [*model.named_parameters(), *model.named_buffers()]:
        if values.device.type != "cpu":
            raise ExportRefused(
                f"{name!r} of {_type_name(model)} is on {values.device}: export model.cpu()."
            )
        if values.dtype == torch.bfloat16:
            raise ExportRefused(
                f"{name!r} of {_type_name(model)} is bfloat16, which numpy does not have: export "
                "model.float()."
            )


def _signature_of_inputs(
    model: Any, feeds: Feeds | None, layout: Literal["tensor", "columns"]
) -> Signature:
    """Return a signature without outputs."""
    if feeds is not None:
        inputs = tuple(_input_tensor(name, values) for name, values in feeds.items())
        counts = {name: len(values) for name, values in feeds.items()}
        if len(set(counts.values())) != 1:
            raise ExportRefused(
                f"Inputs of a module have one row for each row of the data; these have {counts}."
            )
        return _draft(model, inputs, "custom", ())
    names = getattr(model, "feature_names_in_", None)
    if names is None or not len(names):
        raise ExportRefused(
            f"Nothing says which columns {_type_name(model)} takes: pass inputs=, a function that "
            "makes its inputs of rows, or set the attribute feature_names_in_ of the module to a "
            "list of columns when it is trained."
        )
    features = tuple(Feature(name=str(name)) for name in names)
    double = "float64" in _float_dtypes(model)
    tensors = feature_tensors(features, "float64" if double else "float32", layout)
    return _draft(model, tensors, layout, features)


def _draft(
    model: Any,
    inputs: tuple[Tensor, ...],
    layout: Literal["tensor", "columns", "custom"],
    features: tuple[Feature, ...],
) -> Signature:
    return Signature(
        inputs=inputs,
        outputs=(),
        layout=layout,
        features=features,
        prediction="",
        model_type=_type_name(model),
    )


def _input_tensor(name: str, values: np.ndarray) -> Tensor:
    if values.dtype.kind not in "biuf" or not values.ndim:
        raise ExportRefused(
            f"The input {name!r} is {values.dtype} of shape {values.shape}: a module takes arrays "
            "of numbers or booleans, whose first axis is that of rows."
        )
    return Tensor(name=name, dtype=str(values.dtype), shape=(None, *values.shape[1:]))


def _run_on(model: Any, signature: Signature, feeds: Feeds) -> dict[str, Any]:
    count = len(next(iter(feeds.values())))
    try:
        with evaluation_mode(model):
            return named_outputs(caller_of(model, signature)(*tensors_of(feeds)))
    except ExportRefused:
        raise
    except Exception as error:  # whatever the user's module raises
        raise ExportRefused(
            f"{_type_name(model)} does not run on {count} rows of its inputs, and has to on any "
            f"number of them: {reason(error)}"
        ) from error


def _output_tensor(model: Any, name: str, found: Sequence[Any]) -> Tensor:
    """Return the output's dtype, and as its shape what is the same for 1, 2 and 3 rows."""
    where = f"The output {name!r} of {_type_name(model)}"
    shapes = [None if values is None else tuple(values.shape) for values in found]
    if any(shape is None or shape[:1] != (count,) for count, shape in enumerate(shapes, 1)):
        raise ExportRefused(
            f"{where} has the shapes {shapes} for 1, 2 and 3 rows; the first axis has to be that "
            "of rows. If rows were squeezed away, name the axis: squeeze(-1)."
        )
    try:
        dtype = str(found[0].numpy().dtype)
    except TypeError as error:
        raise ExportRefused(f"{where} is {found[0].dtype}: cast it to a common type.") from error
    if found[0].is_complex():
        raise ExportRefused(f"{where} is complex: return torch.view_as_real of it.")
    known = [shape for shape in shapes if shape is not None]
    axes = tuple(sizes[0] if len(set(sizes)) == 1 else None for sizes in zip(*known, strict=True))
    return Tensor(name=name, dtype=dtype, shape=(None, *axes[1:]))


def _float_dtypes(model: Any) -> set[str]:
    held = [*model.parameters(), *model.buffers()]
    return {
        str(values.dtype).removeprefix("torch.") for values in held if values.is_floating_point()
    }


def _tolerance(model: Any, signature: Signature) -> Tolerance:
    """Return that of the coarsest type which the numbers go through."""
    dtypes = _float_dtypes(model) | {tensor.dtype for tensor in signature.outputs}
    return next(
        (found for name, found in _TOLERANCES.items() if name in dtypes), _TOLERANCES["float32"]
    )


def _type_name(model: Any) -> str:
    return f"{type(model).__module__}.{type(model).__qualname__}"


def take_rows(feeds: Feeds, count: int) -> dict[str, np.ndarray]:
    """Return so many rows of the inputs, from the start and round again; of none, zeros."""
    return {
        name: values[np.arange(count) % len(values)]
        if len(values)
        else np.zeros((count, *values.shape[1:]), values.dtype)
        for name, values in feeds.items()
    }


def tensors_of(feeds: Feeds) -> tuple[Any, ...]:
    """Return the inputs as tensors, which share no memory that must not be written."""
    import torch

    return tuple(
        torch.from_numpy(np.require(values, requirements=["C", "W"])) for values in feeds.values()
    )


def caller_of(model: Any, signature: Signature) -> Callable[..., Any]:
    """Return a function of the signature's inputs, as tensors in order, that calls the module."""
    import torch

    if signature.layout == "columns":
        return lambda *columns: model(torch.cat(columns, dim=1))
    names = [tensor.name for tensor in signature.inputs]
    taken = inspect.signature(model.forward).parameters
    by_name = signature.layout == "custom" and all(
        name in taken and taken[name].kind is not inspect.Parameter.POSITIONAL_ONLY
        for name in names
    )
    if by_name:
        return lambda *inputs: model(**dict(zip(names, inputs, strict=True)))
    return lambda *inputs: model(*inputs)


def named_outputs(found: Any) -> dict[str, Any]:
    """Return what a module gave as tensors by name.

    One tensor is "output"; a tuple or list has "output_0" and so on; a mapping, a named tuple and
    a dataclass have the names that they give. What is None is no output.

    Raises:
        ExportRefused: There is something else in it than tensors.
    """
    import torch

    entries: Mapping[str, Any]
    if isinstance(found, torch.Tensor):
        entries = {"output": found}
    elif isinstance(found, Mapping):
        entries = found
    elif hasattr(found, "_asdict"):
        entries = found._asdict()
    elif isinstance(found, tuple | list):
        entries = {f"output_{place}": value for place, value in enumerate(found)}
    elif is_dataclass(found):
        entries = {each.name: getattr(found, each.name) for each in fields(found)}
    else:
        entries = {"output": found}
    outputs = {str(name): value for name, value in entries.items() if value is not None}
    for name, value in outputs.items():
        if not isinstance(value, torch.Tensor):
            raise ExportRefused(
                f"The module's output {name!r} is a {type(value).__name__}: a module that is "
                "exported returns a tensor, or a tuple or mapping of tensors."
            )
    if not outputs:
        raise ExportRefused("The module returns nothing: it has to return a tensor.")
    return outputs


def flat_module(model: Any, signature: Signature) -> Any:
    """Return a module of the signature's inputs that gives the outputs as a tuple."""
    import torch

    class Flat(torch.nn.Module):  # type: ignore[misc]  # mypy does not read torch
        def __init__(self) -> None:
            super().__init__()
            self.module = model  # so that torch finds its weights

        def forward(self, *inputs: Any) -> tuple[Any, ...]:
            return tuple(named_outputs(call(*inputs)).values())

    call = caller_of(model, signature)
    flat = Flat()
    flat.training = False
    return flat


def run_module(model: Any, signature: Signature, feeds: Feeds) -> Outputs:
    """Return what the module itself gives, by the names of the signature's outputs.

    Raises:
        ExportRefused: It gives other outputs for these rows than the signature says.
    """
    with evaluation_mode(model):
        return run_program(flat_module(model, signature), signature, feeds)


def run_program(program: Any, signature: Signature, feeds: Feeds) -> Outputs:
    """Return what a function of tensors gives; no rows give no rows without a call of it.

    Args:
        program: Takes the signature's inputs in order, and returns its outputs as a tuple.
        signature: Names both.
        feeds: The inputs.
    """
    import torch

    ordered = {
        tensor.name: np.asarray(feeds[tensor.name], tensor.dtype) for tensor in signature.inputs
    }
    if not len(next(iter(ordered.values()))):
        return {
            tensor.name: np.zeros((0, *(size or 0 for size in tensor.shape[1:])), tensor.dtype)
            for tensor in signature.outputs
        }
    with torch.no_grad():
        found = program(*tensors_of(ordered))
    if len(found) != len(signature.outputs):
        raise ExportRefused(
            f"{signature.model_type} gives {len(found)} outputs for some rows and "
            f"{len(signature.outputs)} for others: return the same for all."
        )
    return {
        tensor.name: values.numpy() for tensor, values in zip(signature.outputs, found, strict=True)
    }


def check_captured(model: Any, program: Any, description: ModelDescription, sample: Feeds) -> None:
    """Run what was captured on other numbers of rows than it was captured with.

    Raises:
        ExportRefused: It gives something else than the module, or fails.
    """
    signature, tolerance = description.signature, description.tolerance
    for count in (1, 2, CAPTURED_ROWS + 4):
        feeds = take_rows(sample, count)
        expected = run_module(model, signature, feeds)
        try:
            found = run_program(program, signature, feeds)
        except RuntimeError as error:
            raise ExportRefused(
                f"{signature.model_type} was captured with {CAPTURED_ROWS} rows, and does not run "
                f"on {count} any more: {reason(error)}"
            ) from error
        for name, values in expected.items():
            if found[name].shape != values.shape or not np.allclose(
                found[name], values, tolerance.rtol, tolerance.atol, equal_nan=True
            ):
                raise ExportRefused(
                    f"{signature.model_type} was captured with {CAPTURED_ROWS} rows, and gives "
                    f"another {name!r} than the module on {count}: a size or a number of those "
                    "rows is built into it. Compute with tensors, and with shape[0] unconverted."
                )


@contextmanager
def evaluation_mode(model: Any) -> Iterator[None]:
    """Put a module in evaluation mode, without gradients; leave all as it was, random state too."""
    import torch

    modes = [(part, part.training) for part in model.modules()]
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            model.eval()
            yield
    finally:
        for part, mode in modes:
            part.training = mode


@contextmanager
def capturing(model: Any) -> Iterator[None]:
    """Let torch capture a module in evaluation mode, and keep what it says of that to itself.

    While torch captures, it warns of deprecated parts of itself, logs which packages it misses, and
    prints graphs when it fails. What it raises says as much. The module's own warnings have been
    heard when it was described: now it runs on stand-ins.
    """
    disabled = logging.root.manager.disable
    with (
        evaluation_mode(model),
        warnings.catch_warnings(),
        redirect_stdout(io.StringIO()),
        redirect_stderr(io.StringIO()),
    ):
        warnings.simplefilter("ignore")
        logging.disable(logging.ERROR)
        try:
            yield
        finally:
            logging.disable(disabled)


def reason(error: BaseException) -> str:
    """Return the first line of what went wrong at the root, which torch wraps in advice."""
    while error.__cause__ is not None:
        error = error.__cause__
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[0] if lines else type(error).__name__).rstrip(".") + "."


def capture(model: Any, signature: Signature, sample: Feeds) -> Any:
    """Return a module's graph for any number of rows, as a `torch.export.ExportedProgram`.

    torch.onnx.export would capture it as well, but lets pass what holds for some numbers only.

    Raises:
        ExportRefused: The graph depends on the rows or on their number, or torch fails otherwise.
    """
    import torch

    batch = torch.export.Dim(_BATCH)
    try:
        with capturing(model):
            return torch.export.export(
                flat_module(model, signature),
                tensors_of(take_rows(sample, CAPTURED_ROWS)),
                dynamic_shapes=(tuple({0: batch} for _ in signature.inputs),),
            )
    except Exception as error:  # of torch there are dozens without a common base
        if f"Constraints violated ({_BATCH})" in str(error):
            raise ExportRefused(
                f"{signature.model_type} gives another graph for another number of rows: it "
                "branches on shape[0], or makes it a Python number. Compute with it as it is, and "
                "use -1 in place of a number."
            ) from error
        raise ExportRefused(
            f"torch.export does not capture {signature.model_type}: {reason(error)} Where its path "
            "depends on its rows, torch.where or torch.cond can stand in for `if`."
        ) from error


def refuse_onnx_options(options: ExportOptions, name: str) -> None:
    """Refuse options that say nothing of a format without ONNX' operators.

    Raises:
        ExportRefused: One of them is given.
    """
    defaults = ExportOptions()
    for option in ("opset", "precision", "optimization"):
        if getattr(options, option) != getattr(defaults, option):
            raise ExportRefused(
                f"{option}={getattr(options, option)!r} is an option of ONNX files; leave it out "
                f"for {name}, or export as ONNX."
            )
