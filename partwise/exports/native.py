"""Models in their library's own format, as another process reads them."""

from dataclasses import dataclass
from typing import Any

from partwise.exports.keras.models import predict_with
from partwise.exports.trees.native import NativeExporter
from partwise.models.serdes import SERDES, library_of
from partwise.models.signature import Feeds, Outputs, Signature


@dataclass(frozen=True, slots=True)
class NativeModel:
    """A model in its library's own format, as another process reads it."""

    model: Any
    signature: Signature

    @classmethod
    def from_file(cls, file_path: str, serde: str, signature: Signature) -> "NativeModel":
        """Read a file with the serde of this name."""
        return cls(SERDES[serde]().read(file_path), signature)

    def run(self, feeds: Feeds) -> Outputs:
        """Return what the library predicts."""
        if library_of(self.model) == "keras":
            return predict_with(self.model, self.signature, feeds)
        return NativeExporter().predict(self.model, self.signature, feeds)
