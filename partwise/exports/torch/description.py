"""What a PyTorch module takes and gives, found out by running it on 1, 2 and 3 rows."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from partwise.errors import ExportRefusedError
from partwise.exports.networks import (
    TRIED_ROWS,
    common_shape,
    describe_network,
    running,
    signature_of_features,
    signature_of_feeds,
)
from partwise.exports.protocol import ModelDescription
from partwise.exports.torch.modules import caller_of, evaluation_mode, named_outputs
from partwise.models.export_options import ExportOptions
from partwise.models.signature import Feeds, Signature, Tensor, feeds_of_rows, take_rows, type_name
from partwise.models.torch_programs import tensors_of


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
        ExportRefusedError: It does not run on one row, or an output has another first axis than
            that of rows, or is not a tensor that the formats know.
        ColumnError: The rows lack a feature of the module.
    """
    _check_device_and_dtypes(model)
    dtypes = _float_dtypes(model)
    if feeds is None:
        draft = signature_of_features(model, dtypes, options.input_layout)
        some: Feeds = feeds_of_rows(draft, rows.slice(0, max(TRIED_ROWS)))
    else:
        inputs = [_input_tensor(name, values) for name, values in feeds.items()]
        draft, some = signature_of_feeds(model, inputs, feeds), feeds
    tries = [_run_on(model, draft, take_rows(some, count)) for count in TRIED_ROWS]
    outputs = [
        _output_tensor(model, name, [found.get(name) for found in tries]) for name in tries[0]
    ]
    return describe_network(draft, outputs, dtypes)


def _check_device_and_dtypes(model: Any) -> None:
    import torch

    for name, values in [*model.named_parameters(), *model.named_buffers()]:
        if values.device.type != "cpu":
            raise ExportRefusedError(
                f"{name!r} of {type_name(model)} is on {values.device}: export model.cpu()."
            )
        if values.dtype == torch.bfloat16:
            raise ExportRefusedError(
                f"{name!r} of {type_name(model)} is bfloat16, which numpy does not have: export "
                "model.float()."
            )


def _input_tensor(name: str, values: np.ndarray) -> Tensor:
    if values.dtype.kind not in "biuf" or not values.ndim:
        raise ExportRefusedError(
            f"The input {name!r} is {values.dtype} of shape {values.shape}: a module takes arrays "
            "of numbers or booleans, whose first axis is that of rows."
        )
    return Tensor(name=name, dtype=str(values.dtype), shape=(None, *values.shape[1:]))


def _run_on(model: Any, signature: Signature, feeds: Feeds) -> dict[str, Any]:
    with running(model, feeds), evaluation_mode(model):
        return named_outputs(caller_of(model, signature)(*tensors_of(feeds)))


def _output_tensor(model: Any, name: str, found: Sequence[Any]) -> Tensor:
    """Return the output's dtype, and as its shape what is the same for 1, 2 and 3 rows."""
    where = f"The output {name!r} of {type_name(model)}"
    shape = common_shape(where, found)
    try:
        dtype = str(found[0].numpy(force=True).dtype)
    except TypeError as error:
        raise ExportRefusedError(
            f"{where} is {found[0].dtype}: cast it to a common type."
        ) from error
    if found[0].is_complex():
        raise ExportRefusedError(f"{where} is complex: return torch.view_as_real of it.")
    return Tensor(name=name, dtype=dtype, shape=shape)


def _float_dtypes(model: Any) -> set[str]:
    held = [*model.parameters(), *model.buffers()]
    return {
        str(values.dtype).removeprefix("torch.") for values in held if values.is_floating_point()
    }
