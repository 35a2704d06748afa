"""PyTorch modules as .pt2 files of torch.export, and what runs them.

The file is a zip of the graph as JSON, the weights and the signature. It runs where torch is
installed; AOTInductor can make native code of it. Load only what you trust: reading may unpickle.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
import pyarrow as pa

from partwise.errors import IntegrityError
from partwise.exports.networks import reason, refuse_onnx_options
from partwise.exports.protocol import ModelDescription
from partwise.exports.torch.capture import capture, check_captured
from partwise.exports.torch.description import describe_module
from partwise.exports.torch.modules import run_module, run_program
from partwise.models.export_options import ExportOptions
from partwise.models.signature import METADATA_KEY, Feeds, Outputs, Signature, feeds_of_rows


@dataclass(frozen=True)
class Pt2Model:
    """A program of torch.export with its signature.

    Example:
        >>> Pt2Model.from_file("model.pt2").predict(rows)  # doctest: +SKIP
    """

    program: Any
    """A `torch.export.ExportedProgram` of the signature's inputs that returns its outputs as a
    tuple."""
    signature: Signature

    @classmethod
    def from_file(cls, file_path: str) -> Self:
        """Load what export_models or `save` wrote.

        Raises:
            IntegrityError: It is no .pt2 file, or has no signature that this release knows.
        """
        import torch

        metadata = {METADATA_KEY: ""}
        try:
            with open(file_path, "rb") as file:  # torch wants other names to end in .pt2
                program = torch.export.load(file, extra_files=metadata)
        except OSError:
            raise
        except Exception as error:  # whatever its many readers raise on bytes that are none
            raise IntegrityError(f"{file_path} is no .pt2 file: {reason(error)}") from error
        return cls(program, Signature.from_metadata(metadata))

    def save(self, file_path: str) -> None:
        """Write the program and its signature to one file."""
        import torch

        metadata = {METADATA_KEY: self.signature.to_json()}
        with open(file_path, "wb") as file:  # a name would stand in the file
            torch.export.save(self.program, file, extra_files=metadata)

    @cached_property
    def _call(self) -> Callable[..., Any]:
        return self.program.module()  # type: ignore[no-any-return]

    def run(self, feeds: Feeds) -> Outputs:
        """Return the outputs by name for inputs by name; no rows give no rows."""
        return run_program(self._call, self.signature, feeds)

    def predict(self, rows: pa.Table) -> np.ndarray:
        """Return a prediction for each row.

        Raises:
            ColumnError: A column is missing, or its type does not fit.
            InputError: The inputs were made by a function of the user's: call `run`.
        """
        return self.signature.predictions(self.run(feeds_of_rows(self.signature, rows)))


class Pt2Exporter:
    """Any `torch.nn.Module` whose graph does not depend on its rows; the rows' number is free."""

    def check(self, options: ExportOptions) -> None:
        """Refuse options that no model could be exported with."""
        refuse_onnx_options(options, ".pt2 files")

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
        """Capture the module, compare the graph on other numbers of rows, and write it.

        Neither the sample nor stack traces, which name folders of this machine, go into the file.

        Raises:
            ExportRefused: The graph depends on the rows, or does not give what the module does.
        """
        program = capture(model, description.signature, sample)
        check_captured(model, program.module(), description, sample)
        program.example_inputs = None
        for node in program.graph.nodes:
            node.meta.pop("stack_trace", None)
        Pt2Model(program, description.signature).save(file_path)

    def predict(self, model: Any, signature: Signature, feeds: Feeds) -> Outputs:
        """Return what the module itself gives in evaluation mode."""
        return run_module(model, signature, feeds)
