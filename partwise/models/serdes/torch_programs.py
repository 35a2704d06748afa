"""What export_models made of PyTorch modules: TorchScript, .pt2, and programs for AWS Neuron."""

import importlib
from dataclasses import dataclass
from typing import Any, ClassVar

from partwise.errors import SerdeError


class _ProgramSerde:
    """Reads a program with its signature. The file holds code: read what you trust."""

    MODEL: ClassVar[tuple[str, str]]
    """Module and class of what is read; imported when first needed, as torch takes seconds."""

    def write(self, model: Any, file_path: str) -> None:
        """Write a program that was read.

        Raises:
            SerdeError: It is a module, which export_models makes a program of.
        """
        if not isinstance(model, self._model()):
            raise SerdeError(
                f"{type(self).__name__} writes a {self.MODEL[1]}, not a {type(model).__name__}: "
                "train with the serde of the model's library, and call export_models."
            )
        model.save(file_path)

    def read(self, file_path: str) -> Any:
        """Return the program.

        Raises:
            IntegrityError: It is no such program, or export_models did not write it.
            ExportRefused: It is for AWS Neuron, whose SDK is not installed.
        """
        return self._model().from_file(file_path)

    def _model(self) -> Any:
        module, name = self.MODEL
        return getattr(importlib.import_module(f"partwise.exports.{module}"), name)


@dataclass(frozen=True, slots=True, kw_only=True)
class TorchScriptSerde(_ProgramSerde):
    """Reads a TorchScript as a `TorchScriptModel`."""

    MODEL: ClassVar[tuple[str, str]] = ("torch.torchscript", "TorchScriptModel")

    filename: str = "model.ts.pt"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pt2Serde(_ProgramSerde):
    """Reads a .pt2 file as a `Pt2Model`."""

    MODEL: ClassVar[tuple[str, str]] = ("torch.pt2", "Pt2Model")

    filename: str = "model.pt2"


@dataclass(frozen=True, slots=True, kw_only=True)
class NeuronSerde(_ProgramSerde):
    """Reads what was compiled for AWS Neuron as a `NeuronModel`."""

    MODEL: ClassVar[tuple[str, str]] = ("neuron", "NeuronModel")

    filename: str = "model.neuron.pt"
