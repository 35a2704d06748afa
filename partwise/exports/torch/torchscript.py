"""PyTorch modules as TorchScript, and what runs them.

PyTorch has deprecated TorchScript in favour of torch.export since its release 2.11. torch 2.13
still writes and reads it, and servers such as Triton and programs with libtorch run it. Take the
format "pt2" where you can choose.

A TorchScript file holds code. Load only what you trust.
"""

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import pyarrow as pa

from partwise.errors import ExportRefused, IntegrityError
from partwise.exports.networks import reason, refuse_onnx_options, take_rows
from partwise.exports.protocol import ModelDescription
from partwise.exports.torch.capture import CAPTURED_ROWS, capturing, check_captured
from partwise.exports.torch.description import describe_module
from partwise.exports.torch.modules import flat_module, run_module, run_program, tensors_of
from partwise.models.export_options import ExportOptions
from partwise.models.signature import METADATA_KEY, Feeds, Outputs, Signature, feeds_of_rows


@dataclass(frozen=True)
class TorchScriptModel:
    """A TorchScript program with its signature.

    Example:
        >>> TorchScriptModel.from_file("model.ts.pt").predict(rows)  # doctest: +SKIP
    """

    program: Any
    """A `torch.jit.ScriptModule` of the signature's inputs that returns its outputs as a tuple."""
    signature: Signature

    @classmethod
    def from_file(cls, file_path: str) -> Self:
        """Load what export_models or `save` wrote, on the CPU.

        Raises:
            IntegrityError: It is no TorchScript, or has no signature that this release knows.
        """
        import torch

        metadata = {METADATA_KEY: ""}
        try:
            with _deprecated(), open(file_path, "rb") as file:
                program = torch.jit.load(file, map_location="cpu", _extra_files=metadata)
        except RuntimeError as error:
            raise IntegrityError(f"{file_path} is no TorchScript: {reason(error)}") from error
        texts = {key: _text(value) for key, value in metadata.items()}
        return cls(program, Signature.from_metadata(texts))

    def save(self, file_path: str) -> None:
        """Write the program and its signature to one file."""
        import torch

        metadata = {METADATA_KEY: self.signature.to_json()}
        with _deprecated(), open(file_path, "wb") as file:  # a name would stand in the file
            torch.jit.save(self.program, file, _extra_files=metadata)

    def run(self, feeds: Feeds) -> Outputs:
        """Return the outputs by name for inputs by name; no rows give no rows.

        Raises:
            InputError: An input has another size than the program was traced for.
        """
        self.signature.check_sizes(feeds)
        return run_program(self.program, self.signature, feeds)

    def predict(self, rows: pa.Table) -> np.ndarray:
        """Return a prediction for each row.

        Raises:
            ColumnError: A column is missing, or its type does not fit.
            InputError: The inputs were made by a function of the user's: call `run`.
        """
        return self.signature.predictions(self.run(feeds_of_rows(self.signature, rows)))


class TorchScriptExporter:
    """Any `torch.nn.Module` that computes the same for all rows, by torch.jit.trace.

    Equal models give equal weights and code, but not equal bytes: torch numbers the classes in the
    code in the order in which a process traces them, and draws the file's ID anew.
    """

    def check(self, options: ExportOptions) -> None:
        """Refuse options that no model could be exported with."""
        refuse_onnx_options(options, "TorchScript")

    def describe(
        self, model: Any, rows: pa.Table, feeds: Feeds | None, options: ExportOptions
    ) -> ModelDescription:
        """See `describe_module`; raises what it raises."""
        self.check(options)
        return describe_module(model, rows, feeds, options)

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
            ExportRefused: The module branches on its rows, or the trace does not give what it does.
        """
        program = trace_module(model, description.signature, sample)
        check_captured(model, program, description, sample)
        TorchScriptModel(program, description.signature).save(file_path)

    def predict(self, model: Any, signature: Signature, feeds: Feeds) -> Outputs:
        """Return what the module itself gives in evaluation mode."""
        return run_module(model, signature, feeds)


def trace_module(model: Any, signature: Signature, sample: Feeds) -> Any:
    """Return the module as a `torch.jit.ScriptModule`.

    Raises:
        ExportRefused: Its path depends on its rows, of which a trace has only the one that these
            rows took; or torch cannot trace it.
    """
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
        raise ExportRefused(
            f"torch.jit.trace does not capture {signature.model_type}: {reason(error)}"
        ) from error
    # A trace through `if` is right for these rows, and perhaps for no others. The branches in
    # torch's own layers check shapes.
    own = os.path.dirname(torch.__file__) + os.sep
    for warning in heard:
        if "to a Python boolean" in str(warning.message) and not warning.filename.startswith(own):
            raise ExportRefused(
                f"{signature.model_type} may take another path for other rows, and a trace has one "
                f"only: {os.path.basename(warning.filename)}, line {warning.lineno}. Use "
                'torch.where in place of `if`, or export as "pt2".'
            )
    return program


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


@contextmanager
def _deprecated() -> Iterator[None]:
    """Hide what this module's docstring says: that TorchScript is deprecated."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", r"`torch\.jit\.\w+` is deprecated", DeprecationWarning)
        yield
