"""ONNX files, run by onnxruntime."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from partwise.errors import InputError
from partwise.models.guards import NODE_PREFIX, guards_in_words, guards_of_metadata
from partwise.models.onnx_files import (
    OnnxContent,
    open_session,
    open_session_in_place,
    read_graph,
    read_onnx,
)
from partwise.models.signature import Signature, feeds_of_rows

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

    from partwise.models.signature import Feeds, Outputs


class OnnxModel:
    """An ONNX file that is ready to run. No library that trained it is needed, nor `onnx`.

    Example:
        >>> model = OnnxModel.from_file("model.onnx")  # doctest: +SKIP
        >>> model.predict(rows)  # doctest: +SKIP
        array([12.5, 7.25])
    """

    def __init__(self, graph: bytes, session: Any, content: OnnxContent | None = None) -> None:
        self.session: Any = session
        """An `onnxruntime.InferenceSession`."""
        self.content = content
        """What it was read from, with its external data; None: it was opened in
        place."""
        self.guards = guards_of_metadata(session.get_modelmeta().custom_metadata_map)
        """What the file refuses, because it would predict otherwise than its model."""
        self._output_names = [output.name for output in session.get_outputs()]
        # onnxruntime (1.31) aborts the process when these get an empty batch.
        self._dies_of_no_rows = any(name in graph for name in (b"LSTM", b"GRU", b"RNN"))

    @classmethod
    def from_file(cls, file_path: str, threads: int = 1) -> OnnxModel:
        """Open a file on the CPU.

        Raises:
            IntegrityError: The file is not there, names weights that it may not, or is none that
                onnxruntime takes.
        """
        return cls.of_content(read_onnx(file_path), threads)

    @classmethod
    def of_content(cls, content: OnnxContent, threads: int = 1) -> OnnxModel:
        """Open what was read of a file, on the CPU.

        Raises:
            IntegrityError: onnxruntime does not take it.
        """
        return cls(content.model, open_session(content, threads), content)

    @classmethod
    def in_place(cls, file_path: str, threads: int = 1) -> OnnxModel:
        """Open a file of any size on the CPU, in a folder that nobody else writes to meanwhile.

        Raises:
            IntegrityError: As `from_file`.
        """
        graph = read_graph(file_path)
        return cls(graph, open_session_in_place(file_path, graph, threads))

    @property
    def signature(self) -> Signature:
        """What the model takes and gives, as the file's metadata say.

        Raises:
            IntegrityError: They do not say it, or not in a form that this release knows.
        """
        return Signature.from_metadata(self.session.get_modelmeta().custom_metadata_map)

    def run(self, feeds: Feeds) -> Outputs:
        """Return the model's outputs, in the file's order, for its inputs.

        Raises:
            InputError: They hold what the file refuses.
        """
        names = self._output_names
        if not len(next(iter(feeds.values()))):
            return dict(zip(names, self._run_no_rows(names, feeds), strict=True))
        try:
            return dict(zip(names, self.session.run(names, dict(feeds)), strict=True))
        except Exception as error:  # each of onnxruntime's status codes is one of its own
            if NODE_PREFIX not in str(error):
                raise
            met = [guard for guard in self.guards if guard.is_met(feeds)]
            raise InputError(
                f"The model refuses {guards_in_words(met)}: its file would predict otherwise than "
                "the model that it was made of, which gives NaN or an error for them. Fill or drop "
                "such values before."
            ) from error

    def _run_no_rows(self, names: list[str], feeds: Feeds) -> list[np.ndarray]:
        """Run on an empty batch, or, where a graph cannot, on a row that is then taken away.

        A graph that reshapes to (-1, rows), say, cannot: of nothing no size can be inferred. And
        onnxruntime (1.31) reduces nothing to nothing in the shape that it had.
        """
        import numpy as np
        import onnxruntime

        if not self._dies_of_no_rows:
            quiet = onnxruntime.RunOptions()
            quiet.log_severity_level = 4  # it prints its errors past Python's streams
            with suppress(Exception):  # each of onnxruntime's status codes is one of its own
                outputs: list[np.ndarray] = self.session.run(names, dict(feeds), quiet)
                if all(map(_fits, outputs, self.session.get_outputs())):
                    return outputs
        row = {
            name: values if len(values) else np.zeros((1, *values.shape[1:]), values.dtype)
            for name, values in feeds.items()
        }
        return [values[:0] for values in self.session.run(names, row)]

    def predict(self, rows: pa.Table) -> np.ndarray:
        """Return what the model's own `predict` would give for rows: shape (n,) or (n, k).

        Raises:
            ColumnError: The rows lack a feature, or its type does not fit.
            InputError: The user's own function made the inputs when the model was exported.
        """
        signature = self.signature
        return signature.predictions(self.run(feeds_of_rows(signature, rows)))


def _fits(values: np.ndarray, declared: Any) -> bool:
    """Whether an output has the axes that the graph declares, where it says their sizes."""
    return len(values.shape) == len(declared.shape) and all(
        found == size
        for found, size in zip(values.shape[1:], declared.shape[1:], strict=True)
        if isinstance(size, int)
    )
