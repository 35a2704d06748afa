"""Files .pt2 of export_models."""

from dataclasses import dataclass

from partwise.tasks.errors import SerdeError
from partwise.tasks.exporters.pt2 import Pt2Model


@dataclass(frozen=True, slots=True, kw_only=True)
class Pt2Serde:
    """Reads a .pt2 file as a `Pt2Model`. Reading may unpickle: read what you trust."""

    filename: str = "model.pt2"

    def write(self, model: Pt2Model, file_path: str) -> None:
        """Write a program that was read.

        Raises:
            SerdeError: It is a module, which export_models makes a .pt2 file of.
        """
        if not isinstance(model, Pt2Model):
            raise SerdeError(
                f"Pt2Serde writes a Pt2Model, not a {type(model).__name__}: "
                "train with the serde of the model's library, and call export_models with "
                'format="pt2".'
            )
        model.save(file_path)

    def read(self, file_path: str) -> Pt2Model:
        """Return the program with its signature.

        Raises:
            IntegrityError: It is no .pt2 file, or export_models did not write it.
        """
        return Pt2Model.from_file(file_path)
