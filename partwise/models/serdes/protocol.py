"""What a serde is."""

from functools import cache
from typing import Any, BinaryIO, Protocol, TypeGuard, runtime_checkable


@runtime_checkable
class ModelSerde(Protocol):
    """Turns a model into a file and back.

    A serde travels to workers and is part of a run's fingerprint, so it should be a frozen
    dataclass of plain settings. `partwise/testing/serde.py` holds the tests that every
    serde passes, ready to be inherited.

    Example:
        >>> @dataclass(frozen=True)  # doctest: +SKIP
        ... class SkopsSerde:
        ...     filename: str = "model.skops"
        ...
        ...     def write(self, model, file_path):
        ...         skops.io.dump(model, file_path)
        ...
        ...     def read(self, file_path):
        ...         return skops.io.load(file_path, trusted=[])
    """

    @property
    def filename(self) -> str:
        """The flat file name under which a model stands among its partition's artifacts."""

    def write(self, model: Any, file_path: str) -> None:
        """Write one file at this path, and no other."""

    def read(self, file_path: str) -> Any:
        """Return the model that `write` put there, ready for prediction."""


class StreamWriter(ModelSerde, Protocol):
    """A serde that can write without a path of its own, and so without a file for each model."""

    def write_stream(self, model: Any, file: BinaryIO) -> None:
        """Write to an open file, of which only `write` is called, what `write` writes to a path."""


class StreamReader(ModelSerde, Protocol):
    """A serde that can read without a path of its own."""

    def read_stream(self, file: BinaryIO) -> Any:
        """Return what `read` returns, of an open file, whose `name` is for messages."""


class StreamSerde(StreamWriter, StreamReader, Protocol):
    """A serde that can do both; one that is derived from it has the ways by a path from here."""

    def write(self, model: Any, file_path: str) -> None:
        """Write a model to a file; see `write_stream`."""
        with open(file_path, "wb") as file:
            self.write_stream(model, file)

    def read(self, file_path: str) -> Any:
        """Return the model of a file; see `read_stream`."""
        with open(file_path, "rb") as file:
            return self.read_stream(file)


def writes_streams(serde: ModelSerde) -> TypeGuard[StreamWriter]:
    """Whether a serde writes without a path what it writes with one."""
    return _is_ours(type(serde), "write")


def reads_streams(serde: ModelSerde) -> TypeGuard[StreamReader]:
    """Whether a serde reads without a path what it reads with one."""
    return _is_ours(type(serde), "read")


@cache
def _is_ours(kind: type, name: str) -> bool:
    """Whether a class has a way by streams, and no later way by paths.

    A class that is derived from a serde of ours may have a `write` of its own, which is meant.
    """
    for ancestor in kind.__mro__:
        members = vars(ancestor)
        if f"{name}_stream" in members or name in members:
            return f"{name}_stream" in members
    return False
