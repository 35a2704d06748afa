"""What a PyTorch module takes and gives, found out by running it on 1, 2 and 3 rows."""

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from partwise.tasks.errors import ExportRefused
from partwise.tasks.exporters.options import ExportOptions
from partwise.tasks.exporters.protocol import ModelDescription, Tolerance
from partwise.tasks.exporters.signature import (
    Feature,
    Feeds,
    Signature,
    Tensor,
    feature_tensors,
    feeds_of_rows,
)
from partwise.tasks.exporters.torch_modules import (
    caller_of,
    evaluation_mode,
    named_outputs,
    reason,
    take_rows,
    tensors_of,
)

_TRIED_ROWS = (1, 2, 3)

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
    some = feeds_of_rows(draft, rows.slice(0, max(_TRIED_ROWS))) if feeds is None else feeds
    tries = [_run_on(model, draft, take_rows(some, count)) for count in _TRIED_ROWS]
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
    if any(
        shape is None or shape[:1] != (count,)
        for count, shape in zip(_TRIED_ROWS, shapes, strict=True)
    ):
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
