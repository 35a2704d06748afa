"""PyTorch modules as .pt2 files of torch.export.

The file is a zip of the graph as JSON, the weights and the signature. It runs where torch is
installed; AOTInductor can make native code of it. Load only what you trust: reading may unpickle.
"""

from typing import Any

from partwise.exports.protocol import ModelDescription
from partwise.exports.torch.capture import capture, check_captured, forget_origin
from partwise.exports.torch.program_exporter import ProgramExporter
from partwise.models.export_options import ExportOptions
from partwise.models.signature import Feeds
from partwise.models.torch_programs import Pt2Model


class Pt2Exporter(ProgramExporter):
    """Any `torch.nn.Module` whose graph does not depend on its rows; the rows' number is free."""

    FORMAT = ".pt2 files"

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
            ExportRefusedError: The graph depends on the rows, or does not give what the module
                does.
        """
        program = capture(model, description.signature, sample)
        check_captured(model, program.module(), description, sample)
        forget_origin(program)
        Pt2Model(program, description.signature).save(file_path)
