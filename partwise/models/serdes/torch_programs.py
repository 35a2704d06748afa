"""What export_models made of PyTorch modules: TorchScript, .pt2, and programs for AWS Neuron."""

from dataclasses import dataclass
from typing import Any, ClassVar

from partwise.errors import SerdeError


class _ProgramSerde:
    """Reads a program with its signature. The file holds code: read what you trust."""

    _KIND: ClassVar[str]
    """The name of the class of its programs in `partwise.models.torch_programs`."""

    def write(self, model: Any, file_path: str) -> None:
        """Write a program that was read.

        Raises:
            SerdeError: It is a module, which export_models makes a program of.
        """
        kind = self._kind()
        if not isinstance(model, kind):
            raise SerdeError(
                f"{type(self).__name__} writes a {kind.__name__}, not a {type(model).__name__}: "
                "train with the serde of the model's library, and call export_models."
            )
        model.save(file_path)

    def read(self, file_path: str) -> Any:
        """Return the program."""
        return self._kind().from_file(file_path)

    def _kind(self) -> Any:
        from partwise.models import torch_programs

        return getattr(torch_programs, self._KIND)


@dataclass(frozen=True, slots=True)
class TorchScriptSerde(_ProgramSerde):
    """Reads a TorchScript as a `TorchScriptModel`."""

    _KIND: ClassVar[str] = "TorchScriptModel"
    filename: str = "model.ts.pt"


@dataclass(frozen=True, slots=True)
class Pt2Serde(_ProgramSerde):
    """Reads a .pt2 file as a `Pt2Model`."""

    _KIND: ClassVar[str] = "Pt2Model"
    filename: str = "model.pt2"


@dataclass(frozen=True, slots=True)
class NeuronSerde(_ProgramSerde):
    """Reads what was compiled for AWS Neuron as a `NeuronModel`."""

    _KIND: ClassVar[str] = "NeuronModel"
    filename: str = "model.neuron.pt"
