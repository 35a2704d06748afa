"""ONNX files, run by onnxruntime."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from partwise.tasks.errors import RunFormatError
from partwise.tasks.exporters.signature import METADATA_KEY, Signature, feeds_of_rows

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

    from partwise.tasks.exporters.signature import Feeds, Outputs

_ERRORS_ONLY = 3


class OnnxModel:
    """An ONNX file that is ready to run. No library that trained it is needed, nor `onnx`.

    Example:
        >>> model = OnnxModel.from_file("model.onnx")  # doctest: +SKIP
        >>> model.predict(rows)  # doctest: +SKIP
        array([12.5, 7.25])
    """

    def __init__(self, content: bytes, session: Any) -> None:
        self.content = content
        self.session: Any = session
        """An `onnxruntime.InferenceSession`."""

    @classmethod
    def from_file(cls, file_path: str, threads: int = 1) -> OnnxModel:
        """Open a file on the CPU.

        Raises:
            RunFormatError: onnxruntime does not take it.
        """
        content = Path(file_path).read_bytes()
        return cls(content, _open(content, file_path, threads))

    @property
    def signature(self) -> Signature:
        """What the model takes and gives, as the file's metadata say.

        Raises:
            RunFormatError: They do not say it, or not in a form that this release knows.
        """
        found = self.session.get_modelmeta().custom_metadata_map.get(METADATA_KEY)
        if not found:
            raise RunFormatError(
                f"The ONNX file has no {METADATA_KEY!r} in its metadata: export_models did not "
                "write it, or something removed them."
            )
        try:
            return Signature.model_validate_json(found)
        except ValidationError as error:
            raise RunFormatError(
                f"The {METADATA_KEY!r} in the ONNX file's metadata cannot be read: {error}"
            ) from error

    def run(self, feeds: Feeds) -> Outputs:
        """Return the model's outputs, in the file's order, for its inputs."""
        names = [output.name for output in self.session.get_outputs()]
        return dict(zip(names, self.session.run(names, dict(feeds)), strict=True))

    def predict(self, rows: pa.Table) -> np.ndarray:
        """Return what the model's own `predict` would give for rows: shape (n,) or (n, k).

        Raises:
            ColumnError: The rows lack a feature, or its type does not fit.
            InputError: The user's own function made the inputs when the model was exported.
        """
        signature = self.signature
        return signature.predictions(self.run(feeds_of_rows(signature, rows)))


def _open(content: bytes, file_path: str, threads: int) -> Any:
    import onnxruntime

    # Its hints do not say what it exports.
    runtime: Any = onnxruntime
    options = runtime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = _ERRORS_ONLY
    try:
        return runtime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    except Exception as error:
        raise RunFormatError(f"onnxruntime does not take {file_path}: {error}") from error
