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
from partwise.exports.protocol import ModelDescription
from partwise.exports.torch.capture import CAPTURED_ROWS, capturing, check_captured
from partwise.exports.torch.modules import flat_module
from partwise.exports.torch.program_exporter import ProgramExporter
from partwise.formatting import reason
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


def trace_module(model: Any, signature: Signature, sample: Feeds) -> Any:
    """Return the module as a `torch.jit.ScriptModule`."""
    import torch

    try:
        with capturing(model), warnings.catch_warnings(record=True) as heard:
            warnings.simplefilter("always", torch.jit.TracerWarning)
            program = torch.jit.trace(
                flat_module(model, signature),
                tensors_of(take_rows(sample, CAPTURED_ROWS)),
                check_trace=False,  # once more on the same rows; `check_captured` takes others
            )
    except Exception as error:  # of torch there are dozens without a common base
        raise ExportRefusedError(
            f"torch.jit.trace does not capture {signature.model_type}: {reason(error)}"
        ) from error
    # A trace through `if` is right for these rows, and perhaps for no others. The branches in
    # torch's own layers check shapes.
    own = os.path.dirname(torch.__file__) + os.sep
    for warning in heard:
        if "to a Python boolean" in str(warning.message) and not warning.filename.startswith(own):
            raise ExportRefusedError(
                f"{signature.model_type} may take another path for other rows, and a trace has one "
                f"only: {os.path.basename(warning.filename)}, line {warning.lineno}. Use "
                'torch.where in place of `if`, or export as "pt2".'
            )
    return program
