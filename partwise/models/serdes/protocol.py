"""What a serde is."""

from typing import Any, Protocol, runtime_checkable


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
