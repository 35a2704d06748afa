"""PyTorch modules as TorchScript.

PyTorch has deprecated TorchScript in favour of torch.export since its release 2.11. torch 2.13
still writes and reads it, and servers such as Triton and programs with libtorch run it. Take the
format "pt2" where you can choose.

A TorchScript file holds code. Load only what you trust.
"""

import os
import warnings
from typing import Any

from partwise.errors import ExportRefusedError
from partwise.exports.networks import refusing
from partwise.exports.protocol import ModelDescription
from partwise.exports.torch.capture import CAPTURED_ROWS, capturing, check_captured
from partwise.exports.torch.modules import flat_module
from partwise.exports.torch.program_exporter import ProgramExporter
from partwise.models.export_options import ExportOptions
from partwise.models.signature import Feeds, Signature, take_rows
from partwise.models.torch_programs import TorchScriptModel, tensors_of


class TorchScriptExporter(ProgramExporter):
    """Any `torch.nn.Module` that computes the same for all rows, by torch.jit.trace.

    Equal models give equal weights and code, but not equal bytes: torch numbers the classes in the
    code in the order in which a process traces them, and draws the file's ID again.
    """

    FORMAT = "TorchScript"

    def write(
        self,
        model: Any,
        description: ModelDescription,
        sample: Feeds,
        options: ExportOptions,  # noqa: ARG002 (of the protocol; none is left to use)
        file_path: str,
    ) -> None:
        """Trace the module, compare the trace on other numbers of rows, and write it.

        Raises:
            ExportRefusedError: The module branches on its rows, or the trace does not give what it
                does.
        """
        program = trace_module(model, description.signature, sample)
        check_captured(model, program, description, sample)
        TorchScriptModel(program, description.signature).save(file_path)


_TAKEN_OUT = ("Python number", "Python integer", "Python float", "Python list", "NumPy array")


def trace_module(model: Any, signature: Signature, sample: Feeds) -> Any:
    """Return the module as a `torch.jit.ScriptModule`."""
    import torch

    with (
        refusing(f"torch.jit.trace does not capture {signature.model_type}"),
        capturing(model),
        warnings.catch_warnings(record=True) as heard,
    ):
        warnings.simplefilter("always", torch.jit.TracerWarning)
        program = torch.jit.trace(
            flat_module(model, signature),
            tensors_of(take_rows(sample, CAPTURED_ROWS)),
            check_trace=False,  # once more on the same rows; `check_captured` takes others
        )
    # What torch's own layers take out of tensors are shapes.
    own = os.path.dirname(torch.__file__) + os.sep
    for warning in heard:
        if not warning.filename.startswith(own):
            _refuse_value(str(warning.message), warning, signature.model_type)
    return program


def _refuse_value(said: str, warning: warnings.WarningMessage, model_type: str) -> None:
    """Refuse a value that a module takes out of a tensor: a trace has that of these rows for all.

    A proof on other rows may miss it, as where one in a thousand takes another path.
    """
    where = f"{os.path.basename(warning.filename)}, line {warning.lineno}"
    if "to a Python boolean" in said:
        raise ExportRefusedError(
            f"{model_type} may take another path for other rows, and a trace has one only: "
            f'{where}. Use torch.where in place of `if`, or export as "pt2".'
        )
    if any(f"Converting a tensor to a {kind}" in said for kind in _TAKEN_OUT):
        raise ExportRefusedError(
            f"{model_type} takes a value out of a tensor, which may be another one for other rows, "
            f"and a trace has one only: {where}. Use functions of torch in place of .item(), "
            '.numpy(), int() and float(), or export as "pt2".'
        )
