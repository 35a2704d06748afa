"""What exporters of PyTorch modules as programs have in common."""

from typing import Any, ClassVar

import pyarrow as pa

from partwise.exports.networks import refuse_onnx_options
from partwise.exports.protocol import ModelDescription
from partwise.exports.torch.description import describe_module
from partwise.exports.torch.modules import run_module
from partwise.models.export_options import ExportOptions
from partwise.models.signature import Feeds, Outputs, Signature


class ProgramExporter:
    """Describes a module by running it, and compares an export with the module itself."""

    FORMAT: ClassVar[str]
    """What is written, in words."""

    def check(self, options: ExportOptions) -> None:
        """Refuse options that no model could be exported with."""
        refuse_onnx_options(options, self.FORMAT)

    def describe(
        self, model: Any, rows: pa.Table, feeds: Feeds | None, options: ExportOptions
    ) -> ModelDescription:
        """See `describe_module`; raises what it raises."""
        self.check(options)
        return describe_module(model, rows, feeds, options)

    def predict(self, model: Any, signature: Signature, feeds: Feeds) -> Outputs:
        """Return what the module itself gives in evaluation mode."""
        return run_module(model, signature, feeds)
