"""A model as its serde wrote it: in memory, and in a file where it is large or its serde needs one.

A file of its own took half of the time that a process had for a small model.
"""

import io
import os
from typing import Any, BinaryIO

from partwise.engine.outcome import INLINE_BYTES, Content, WrittenModel
from partwise.errors import SerdeError
from partwise.models.serdes import ModelSerde, serde_name
from partwise.models.serdes.protocol import writes_streams
from partwise.runs.bundle import read_model

ONLY_PLAIN = (
    "The file of a boosted model keeps, of attributes that a function sets on it, numbers, texts, "
    "bools, None, and lists and mappings of these, by names that the library does not use: put the "
    "rest into an upload, or pass serde=PickleSerde()."
)
"""What to do about attributes of a model that are lost."""


def write_model(model: Any, serde: ModelSerde, directory: str) -> WrittenModel:
    """Write a model with its serde; a file that this takes stands in `directory`.

    Raises:
        SerdeError: The serde left no file.
    """
    path = os.path.join(directory, serde.filename)
    content: Content = path
    if writes_streams(serde):
        with _Spool(path) as file:
            serde.write_stream(model, file)
            content = file.content()
    else:
        serde.write(model, path)
        if not os.path.isfile(path):
            raise SerdeError(
                f"{type(serde).__name__}.write() left no file at the path it was given."
            )
    not_kept = getattr(serde, "not_kept", None)
    return WrittenModel(
        filename=os.path.basename(path),
        content=content,
        serde=serde_name(serde),
        not_kept=", ".join(not_kept(model)) if not_kept is not None else "",
    )


def read_written(serde: ModelSerde, written: WrittenModel) -> Any:
    """Return a model that was written."""
    if isinstance(written.content, bytes):
        return read_model(serde, written.content, written.filename)
    return serde.read(written.content)


class _Spool(io.BytesIO):
    """What is written to it, in memory; in a file from the byte on that is too many for that."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self._path = path
        self._file: BinaryIO | None = None

    def write(self, data: Any) -> int:
        size = memoryview(data).nbytes
        if self._file is None:
            if self.tell() + size <= INLINE_BYTES:
                return super().write(data)
            self._file = open(self._path, "wb")  # noqa: SIM115 (closed with this one)
            self._file.write(self.getbuffer())
        return self._file.write(data)

    def content(self) -> Content:
        """Return what was written, or the path of the file where it stands."""
        if self._file is None:
            return self.getvalue()
        self._file.close()
        return self._path

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
        super().close()
