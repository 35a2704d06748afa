"""TorchScript files of export_models."""

from dataclasses import dataclass

from partwise.tasks.errors import SerdeError
from partwise.tasks.exporters.torchscript import TorchScriptModel


@dataclass(frozen=True, slots=True, kw_only=True)
class TorchScriptSerde:
    """Reads a TorchScript as a `TorchScriptModel`. The file holds code: read what you trust."""

    filename: str = "model.ts.pt"

    def write(self, model: TorchScriptModel, file_path: str) -> None:
        """Write a TorchScript that was read.

        Raises:
            SerdeError: It is a module, which export_models makes a TorchScript of.
        """
        if not isinstance(model, TorchScriptModel):
            raise SerdeError(
                f"TorchScriptSerde writes a TorchScriptModel, not a {type(model).__name__}: "
                "train with the serde of the model's library, and call export_models with "
                'format="torchscript".'
            )
        model.save(file_path)

    def read(self, file_path: str) -> TorchScriptModel:
        """Return the program with its signature.

        Raises:
            IntegrityError: It is no TorchScript, or export_models did not write it.
        """
        return TorchScriptModel.from_file(file_path)
