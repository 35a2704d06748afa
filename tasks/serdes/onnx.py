"""Exported models as ONNX files."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from partwise.tasks.errors import SerdeError


@dataclass(frozen=True, slots=True, kw_only=True)
class OnnxSerde:
    """A model comes back as an `OnnxModel`, which onnxruntime runs on one thread of the CPU."""

    filename: str = "model.onnx"

    def write(self, model: Any, file_path: str) -> None:
        """Write an `OnnxModel` or an `onnx.ModelProto`.

        Raises:
            SerdeError: The model is neither.
        """
        from partwise.tasks.exporters.onnx_model import OnnxModel

        if isinstance(model, OnnxModel):
            content = model.content
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
            RunFormatError: onnxruntime does not take the file.
        """
        from partwise.tasks.exporters.onnx_model import OnnxModel

        return OnnxModel.from_file(file_path)
