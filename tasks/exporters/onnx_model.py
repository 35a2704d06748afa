"""ONNX files, run by onnxruntime."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from partwise.tasks.exporters.onnx_files import (
    OnnxContent,
    open_session,
    read_onnx,
    session_signature,
)
from partwise.tasks.exporters.signature import Signature, feeds_of_rows

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

    from partwise.tasks.exporters.signature import Feeds, Outputs


class OnnxModel:
    """An ONNX file that is ready to run. No library that trained it is needed, nor `onnx`.

    Example:
        >>> model = OnnxModel.from_file("model.onnx")  # doctest: +SKIP
        >>> model.predict(rows)  # doctest: +SKIP
        array([12.5, 7.25])
    """

    def __init__(self, content: OnnxContent, session: Any) -> None:
        self.content = content
        """What it was read from, with the weights that stood beside it."""
        self.session: Any = session
        """An `onnxruntime.InferenceSession`."""
        # onnxruntime (1.31) aborts the process when these get an empty batch.
        self._dies_of_no_rows = any(name in content.model for name in (b"LSTM", b"GRU", b"RNN"))

    @classmethod
    def from_file(cls, file_path: str, threads: int = 1) -> OnnxModel:
        """Open a file on the CPU.

        Raises:
            IntegrityError: The file is not there, names weights that it may not, or is none that
                onnxruntime takes.
        """
        content = read_onnx(file_path)
        return cls(content, open_session(content, threads))

    @property
    def signature(self) -> Signature:
        """What the model takes and gives, as the file's metadata say.

        Raises:
            IntegrityError: They do not say it, or not in a form that this release knows.
        """
        return session_signature(self.session)

    def run(self, feeds: Feeds) -> Outputs:
        """Return the model's outputs, in the file's order, for its inputs."""
        if self._dies_of_no_rows and not len(next(iter(feeds.values()))):
            return self.signature.outputs_of_no_rows()
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
