"""Exported models as ONNX files."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from partwise.errors import SerdeError
from partwise.models.serdes.damage import readable


@dataclass(frozen=True, slots=True)
class OnnxSerde:
    """A model comes back as an `OnnxModel`, which onnxruntime runs on one thread of the CPU."""

    filename: str = "model.onnx"

    def write(self, model: Any, file_path: str) -> None:
        """Write an `OnnxModel` or an `onnx.ModelProto`.

        Raises:
            SerdeError: The model is neither, or was opened in place.
        """
        from partwise.models.onnx_model import OnnxModel

        if isinstance(model, OnnxModel):
            if model.content is None:
                raise SerdeError(
                    "The model was opened in place, with its weights left in their file: copy the "
                    "files, or open it with OnnxModel.from_file."
                )
            content = model.content.model
            # Weights that stand in a file of their own do so under the name that the model has.
            for name, weights in model.content.files.items():
                Path(file_path).with_name(name).write_bytes(weights)
        elif type(model).__name__ == "ModelProto":
            content = model.SerializeToString(deterministic=True)
        else:
            kind = type(model)
            raise SerdeError(
                f"OnnxSerde cannot write a {kind.__module__}.{kind.__qualname__}: it takes an "
                "OnnxModel or an onnx.ModelProto."
            )
        Path(file_path).write_bytes(content)

    def read(self, file_path: str) -> Any:
        """Return the model as an `OnnxModel`.

        Raises:
            IntegrityError: The file, or one that it names for its weights, is not taken.
        """
        from partwise.models.onnx_model import OnnxModel

        with readable(file_path, "onnxruntime"):
            return OnnxModel.from_file(file_path)

    def read_stream(self, file: BinaryIO) -> Any:
        """Return the model of an open file, without external data; see `read`."""
        from partwise.models.onnx_files import check_embedded
        from partwise.models.onnx_model import OnnxModel

        with readable(file.name, "onnxruntime"):
            return OnnxModel.of_content(check_embedded(file.read(), Path(file.name).name))
